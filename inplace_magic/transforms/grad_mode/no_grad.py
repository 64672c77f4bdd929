"""A parameter is updated by hand: the update belongs outside the graph.

    w -= lr * w.grad                  with torch.no_grad():
    b -= lr * b.grad                      w -= lr * w.grad
                                          b -= lr * b.grad

    for p in model.parameters():      with torch.no_grad():
        p.add_(p.grad, alpha=-lr)         for p in model.parameters():
                                              p.add_(p.grad, alpha=-lr)

The whole loop goes into the block if updating is all that it does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import bindings, later, loop_of, parameters, reads, scope
from ...source.dataflow import assigned, calls_named
from ...source.editor import Code, Edit, Function
from ..analysis.targets import Site, called_target, is_inplace_name, root, site, torch_in, written
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_update_outside")
_INITIALISERS = frozenset({
    "normal_", "uniform_", "fill_", "zero_", "copy_", "bernoulli_", "random_", "exponential_", "log_normal_",
    "trunc_normal_", "geometric_", "cauchy_", "set_", "resize_",
})  # fmt: skip


@register("leaf", "view_of_leaf", "no_grad_view")
def no_grad(problem: Problem) -> Iterator[Proposal]:
    write = written(problem)
    named = torch_in(problem, write.code) if write is not None else None
    if write is None or named is None:
        return
    torch, imported = named
    statements, update = _block(write, _refused(problem, write.code)), is_update(problem, write)
    if _goes_on(write, statements) and not _reads_gradient(write.statement) and not _initialises(write):
        return
    edit = wrapped(write.code, statements, f"with {torch}.no_grad():")
    if edit is None:
        return
    first = " ".join(write.code.text(write.statement).split("\n")[0].split())
    inner = _carries_graph(write)
    yield Proposal(
        title=f"with {torch}.no_grad(): {first}",
        why=_WHY,
        form="no_grad: update" if update else "no_grad: value",
        texts={write.code.cell.number: write.code.apply(edit, *imported)},
        reading="tracked" if inner else "update",
        local=True,
        # A step that was asked for as a part of the graph is not to be cut out of it. Without a backward there is
        # nothing to lose.
        lossless=(inner or not update) and bool(problem.evidence.passes),
    )


def is_update(problem: Problem, write: Site) -> bool:
    """Whether the write looks like the update of a parameter rather than like a step of a computation."""
    name, statement, code = write.root_text, write.statement, write.code
    if _reads_gradient(statement) or problem.clash.write is None or problem.clash.write.parameter or name is None:
        return True
    if problem.family == "no_grad_view":  # a view of anything
        return False
    path = problem.clash.write.name or ""
    if "." in path or "[" in path or "." in name or problem.clash.write.operation in _INITIALISERS:
        return True
    if _initialises(write):
        return True
    loop = loop_of(code, statement, name)
    if loop is not None and "parameters" in code.text(loop.iter):
        return True
    if any(b.value is not None and "Parameter" in code.text(b.value) for b in bindings(code, name, statement)):
        return True
    # Bound anew, the name would no longer lead to the leaf whose gradient is asked for.
    asked = [*later(code, statement), *_before(code, statement)]
    return bool(reads(code, f"{name}.grad", asked)) and not _bound_here(code, name, statement)


def _initialises(write: Site) -> bool:
    above = scope(write.code, write.statement)
    return getattr(above, "name", "").endswith(("__init__", "init_weights", "reset_parameters"))


def _goes_on(write: Site, statements: list[ast.stmt]) -> bool:
    """Whether a function goes on with the value that the statements write: that is data, and no update.

    The value is an argument, or has a name of the function's own beside the one that leads to the leaf.
    """
    function, name = scope(write.code, write.statement), write.root_text
    if name is None or not isinstance(function, Function):
        return False
    if name not in parameters(function) and not _renamed(write.code, name, write.statement):
        return False
    rest = [s for s in later(write.code, write.statement) if not _returns(s, name)]
    own = [node for statement in statements for node in ast.walk(statement)]
    read = [write.code.statement(n) for n in reads(write.code, name, rest) if n not in own]
    return getattr(function, "name", "") == "forward" or any(not _of_itself(write.code, s, name) for s in read)


def _renamed(code: Code, name: str, statement: ast.stmt) -> bool:
    """Whether the name was bound to what has a name already (``q = self.rotation``)."""
    return any(isinstance(b.value, (ast.Name, ast.Attribute)) for b in bindings(code, name, statement)[:1])


def _of_itself(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a statement does no more than change the named tensor: ``w.detach_()``, ``w[0] = w[1]``."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        changed = [called_target(statement.value)]
    else:
        parts = [target for target in assigned(statement) if not isinstance(target, ast.Name)]
        changed = [part.value if isinstance(part, ast.Attribute) else part for part in parts]
    held = [root(target) for target in changed if target is not None]
    return bool(held) and all(node is not None and code.text(node) == name for node in held)


def _returns(statement: ast.AST, name: str) -> bool:
    return isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name) and statement.value.id == name


def _before(code: Code, statement: ast.stmt) -> list[ast.AST]:
    block = code.block(statement)
    return list(block[: block.index(statement)])


def _bound_here(code: Code, name: str, statement: ast.stmt) -> bool:
    """Whether the name is another one for something that is at hand anyway (``augmented = images``)."""
    return any(isinstance(b.value, (ast.Name, ast.Subscript)) for b in bindings(code, name, statement))


def _carries_graph(write: Site) -> bool:
    """Whether the step itself belongs to a graph, as the inner step of a meta-learner does."""
    asked = "backward" if _reads_gradient(write.statement) else "grad"
    return any(
        keyword.arg == "create_graph" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        for call in calls_named(scope(write.code, write.statement), asked)
        for keyword in call.keywords
    )


def _reads_gradient(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(statement))


def _refused(problem: Problem, code: Code) -> list[ast.stmt]:
    """The writes of a text that torch has refused, this one's among them."""
    stacks = [c.write.stack[:1] for c in problem.evidence.clashes if c.family == problem.family and c.write is not None]
    return [one.statement for stack in stacks for spot in stack if (one := site(problem, spot)) and one.code is code]


def _block(write: Site, refused: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that belong together: neighbours that update too, and the loops that do nothing else."""
    code = write.code
    statement: ast.stmt = write.statement
    while True:
        block = code.block(statement)
        above = code.parent(statement)
        wholly = all(_updates(code, s, write, refused) for s in block)
        if wholly and (isinstance(above, ast.For) or _is_branch_of_update(code, above, write, refused)):
            assert isinstance(above, ast.stmt)
            if not above.orelse:  # type: ignore[attr-defined]
                statement = above
                continue
        index = block.index(statement)
        first = last = index
        while first > 0 and _updates(code, block[first - 1], write, refused):
            first -= 1
        while last + 1 < len(block) and _updates(code, block[last + 1], write, refused):
            last += 1
        return block[first : last + 1]


def _is_branch_of_update(code: Code, above: ast.AST | None, write: Site, refused: list[ast.stmt]) -> bool:
    """Whether a branch is one of several updates, or all that a loop does; one by itself stays around the block."""
    if not isinstance(above, ast.If) or code.text(above).startswith("elif"):
        return False
    beside = [_updates(code, s, write, refused) for s in code.block(above)]
    return beside.count(True) > 1 or (all(beside) and isinstance(code.parent(above), ast.For))


def _updates(code: Code, statement: ast.stmt, write: Site, refused: list[ast.stmt]) -> bool:
    """Whether a statement updates something in place, or clears a gradient, and does nothing else."""
    if isinstance(statement, (ast.For, ast.If)):
        return not statement.orelse and all(_updates(code, s, write, refused) for s in statement.body)
    if statement in refused or statement is write.statement or isinstance(statement, (ast.Pass, ast.Continue)):
        return True
    target: ast.expr | None = None
    if isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "grad":
            return True
        if not isinstance(target, ast.Subscript):
            return False
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if not isinstance(call.func, ast.Attribute) or not is_inplace_name(call.func.attr):
            return False
        target = called_target(call)
    if target is None:
        return False
    held = root(target)
    same = held is not None and code.text(held) == write.root_text
    return same or _reads_gradient(statement)


def wrapped(code: Code, statements: list[ast.stmt], header: str) -> Edit | None:
    """The statements, moved one level in under a new header; None where their text cannot be moved.

    What shares a line with the first or the last of them gets a line of its own.
    """
    if any(_spans_lines(n) for s in statements for n in ast.walk(s)):
        return None
    indent = code.indent(statements[0])
    start, end, text = code.whole_lines(statements)
    first, last = code.span(statements[0])[0] - start, code.span(statements[-1])[1] - start
    before, after, ahead, behind = text[:first].strip(), text[last:].lstrip(), "", ""
    if before:
        if code.begins_on_head(statements[0]):  # of a loop or a branch
            return None
        ahead, text, last = (
            f"{indent}{before[:-1].rstrip()}{code.newline}",
            indent + text[first:],
            last - first + len(indent),
        )
    if after.startswith(";") and (rest := after.lstrip("; ")).strip() and not rest.startswith("#"):
        behind = f"{indent}{rest}"
        text = text[:last] + code.newline
    body = _indented(text, indent, indent + code.indent_step)
    return Edit(start, end, f"{ahead}{indent}{header}{code.newline}{body}{behind}")


def unwrapped(code: Code, block: ast.With) -> Edit | None:
    """The lines of a block one level out, without its header but with its comments; None where they cannot be moved."""
    first = block.body[0]
    if not code.alone(block) or first.lineno == block.lineno or any(_spans_lines(n) for n in ast.walk(block)):
        return None
    indent = code.indent(block)
    start, end, text = code.whole_lines([block])
    lines = text.splitlines(keepends=True)
    ends = max(block.items[-1].context_expr.end_lineno or 0, block.lineno) - block.lineno
    _, sign, comment = lines[ends].partition("#")
    kept = f"{indent}{sign}{comment}" if sign else ""
    return Edit(start, end, kept + _indented("".join(lines[ends + 1 :]), code.indent(first), indent))


def moved(code: Code, statements: list[ast.stmt], indent: str) -> str | None:
    """The lines of neighbouring statements at another depth; None where that would change a string."""
    if not all(code.alone(s) for s in statements) or any(_spans_lines(n) for s in statements for n in ast.walk(s)):
        return None
    _, _, text = code.whole_lines(statements)
    return _indented(text, code.indent(statements[0]), indent)


def _indented(text: str, old: str, new: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(new + line.removeprefix(old) if line.strip() else line for line in lines)


def _spans_lines(node: ast.AST) -> bool:
    """A string on several lines: to move its lines would change its text."""
    text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))
    return text and node.lineno != node.end_lineno  # type: ignore[attr-defined]
