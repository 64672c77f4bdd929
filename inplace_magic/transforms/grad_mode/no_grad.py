"""A parameter is updated by hand: the update belongs outside the graph.

    w -= lr * w.grad                  with torch.no_grad():
    b -= lr * b.grad                      w -= lr * w.grad
                                          b -= lr * b.grad

    for p in model.parameters():      with torch.no_grad():
        p.add_(p.grad, alpha=-lr)         for p in model.parameters():
                                              p.add_(p.grad, alpha=-lr)

The whole loop goes into the block if updating is all that it does; an optimizer's ``step`` is decorated, as torch's own are.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator

from ...message import message
from ...source.bindings import bindings, later, parameters, reads
from ...source.blocks import scope, upwards
from ...source.dataflow import binds, calls_named
from ...source.editor import Code, Function, dotted
from ...source.lift import wrapped
from ..analysis.targets import (
    Site,
    applies_function,
    reads_gradient,
    root_text,
    seen_through,
    sites,
    torch_in,
    written,
    written_by,
)
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_update_outside")
_INITIALISERS = frozenset({
    "normal_", "uniform_", "fill_", "zero_", "copy_", "bernoulli_", "random_", "exponential_", "log_normal_",
    "trunc_normal_", "geometric_", "cauchy_", "set_", "resize_",
})  # fmt: skip


@register("leaf", "view_of_leaf", "no_grad_view", "multi_output_view", "out_grad")
def no_grad(problem: Problem) -> Iterator[Proposal]:
    write = written(problem)
    named = torch_in(problem, write.code) if write is not None else None
    if write is None or named is None or not _may_be_update(problem):
        return
    if applies_function(problem, write):  # a custom Function is there for its gradient
        return
    torch, imported = named
    statements, update = _block(write, _refused(problem, write.code)), _is_update(problem, write)
    moved = _is_iterate(write) or bool(_names(write) & _stepped(problem))
    data = _goes_on(write, statements) or (is_input(problem, write) and _is_given_back(problem, write))
    if not moved and data and not reads_gradient(write.statement):
        return
    whole = _step_of_optimizer(write)
    if whole is not None:
        line = f"@{torch}.no_grad()"
        edits = [write.code.insert_before(whole, line), *imported]
        title = f"{line} def {whole.name}"
        yield in_one_text(write.code, edits, title, _WHY, "no_grad: update", reading="update")
    called = _called_by(problem, write)
    code, statements = (write.code, statements) if called is None else (called.code, [called.statement])
    edit = wrapped(code, statements, f"with {torch}.no_grad():") if statements else None
    if edit is None or (called is not None and called.code is not write.code and imported):
        return
    first = " ".join(code.text(statements[0] if called else write.statement).split("\n")[0].split())
    inner = carries_graph(write)
    outside = update and not inner and not is_input(problem, write)
    yield Proposal(
        title=f"with {torch}.no_grad(): {first}",
        why=_WHY,
        form="no_grad: update" if update else "no_grad: value",
        edits=tuple((code, one) for one in (edit, *imported)),
        reading="update" if outside else "tracked",
        # A step that was asked for as a part of the graph is not to be cut out of it. Without a backward there is
        # nothing to lose.
        lossless=(inner or not update) and bool(problem.evidence.passes),
    )


def _step_of_optimizer(write: Site) -> ast.FunctionDef | None:
    """The ``step`` of an optimizer of the user's: its states are to have no history either. Not where it calls a closure, which
    needs gradients.
    """
    function = write.code.function(write.statement)
    owner = write.code.parent(function) if function is not None else None
    bases = [(dotted(base) or "").rpartition(".")[2] for base in getattr(owner, "bases", ())]
    closure = function is not None and calls_named(function, "closure") and not calls_named(function, "enable_grad")
    of_optimizer = any(base.endswith("Optimizer") for base in bases) and getattr(function, "name", "") == "step"
    return function if of_optimizer and not closure and isinstance(function, ast.FunctionDef) else None


def _may_be_update(problem: Problem) -> bool:
    """One of several views, written, is an update where they are views of a leaf. An optimizer's step is one already."""
    event = problem.clash.write
    if event is None or event.origin == "optim":
        return False
    return event.leaf if problem.family == "out_grad" else problem.family != "multi_output_view" or event.of_leaf


def _called_by(problem: Problem, write: Site) -> Frame | None:
    """The statement that calls the lambda in which the write stands: no block can be put around that itself."""
    if not any(isinstance(above, ast.Lambda) for above in write.code.parents(write.node)):
        return None
    callers = sites(problem)[1:2]
    return callers[0] if callers and isinstance(callers[0].statement, ast.Expr) else None


def _is_update(problem: Problem, write: Site) -> bool:
    """Whether the write looks like the update of a parameter rather than like a step of a computation."""
    name, statement, code, event = write.root_text, write.statement, write.code, problem.clash.write
    if reads_gradient(statement) or event is None or event.parameter:
        return True
    if problem.family == "no_grad_view":  # a view of anything
        return False
    if name is None:
        return True
    if _is_stepped(problem, write):
        return True
    if any(mark in f"{event.name}{name}" for mark in ".[") or event.operation in _INITIALISERS:
        return True
    # Bound anew, the name would no longer lead to the leaf whose gradient is asked for.
    bound = [b.value for b in bindings(code, name, statement)]
    at_hand = any(isinstance(value, (ast.Name, ast.Subscript)) for value in bound)  # ``augmented = images``
    return _is_iterate(write) and not at_hand


def is_input(problem: Problem, write: Site) -> bool:
    """Whether nothing is seen to train the leaf that is written: then the write may well be meant as a part of the graph.

    Written anew as a whole, it could learn nothing, had the graph a part in it.
    """
    event, name = problem.clash.write, write.root_text
    if event is None or name is None or event.parameter or event.fed or _is_stepped(problem, write):
        return False
    if event.operation in _INITIALISERS and event.leaf and write.target is write.root:
        return False
    writes = [(code, n, into) for code, n in problem.nodes(ast.AST) for into in written_by(n)]
    along = any(reads(code, f"{root_text(code, into)}.grad", [n]) for code, n, into in writes)
    asked = any(
        calls_named(code.tree, "grad") for code in problem.codes()
    )  # whose names are not followed into the write
    return not along and (not asked or (_puts_constant(write) and _is_given_back(problem, write)))


def _puts_constant(write: Site) -> bool:
    """``x[:, 0] = 0``, ``x[:, 0].zero_()``: no step of an update."""
    node = write.node.value if isinstance(write.node, ast.Expr) else write.node
    given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
    given += [write.statement.value] if isinstance(write.statement, (ast.Assign, ast.AugAssign)) else []
    return write.target is not write.root and all(isinstance(one, ast.Constant) for one in given)


def _is_stepped(problem: Problem, write: Site) -> bool:
    """Whether an optimizer steps the leaf that is written."""
    event = problem.clash.write
    return event is not None and (event.stepped or bool((_names(write) | {event.name}) & _stepped(problem)))


def _names(write: Site) -> set[str | None]:
    """What the code around calls the leaf that is written."""
    return {write.root_text, seen_through(write.code, write.root_text or "", write.statement)}


def _stepped(problem: Problem) -> set[str | None]:
    """The names of the leaves that optimizers step."""
    return {leaf for one in problem.evidence.passes for leaf in one.stepped}


def _goes_on(write: Site, statements: list[ast.stmt]) -> bool:
    """Whether a function goes on with the value that the statements write: that is data, and no update.

    The value is an argument, or has a name of the function's own beside the one that leads to the leaf.
    """
    function, name = scope(write.code, write.statement), write.root_text
    if name is None or not isinstance(function, Function):
        return False
    bound = [b.value for b in bindings(write.code, name, write.statement)[:1]]  # ``q = self.rotation``
    if name not in parameters(function) and not any(isinstance(value, (ast.Name, ast.Attribute)) for value in bound):
        return False
    own = [node for statement in statements for node in ast.walk(statement)]
    read = [n for n in reads(write.code, name, later(write.code, write.statement)) if n not in own]
    goes_on = [s for s in map(write.code.statement, read) if not _gives_back(s, read)]
    return getattr(function, "name", "") == "forward" or any(not _of_itself(write.code, s, name) for s in goes_on)


def _is_given_back(problem: Problem, write: Site) -> bool:
    """Whether the function gives back what it was handed, and its caller goes on with that: ``out = step(out)``."""
    name, function = write.root_text, write.code.function(write.statement)
    caller = next(iter(sites(problem)[1:2]), None)
    following = (s for above in upwards(write.code, write.statement) for s in write.code.following(above))
    given = [s for s in following if isinstance(s, ast.Return)]
    back = name in parameters(function) and any(_gives_back(s, reads(write.code, str(name), [s])) for s in given)
    return back and caller is not None and not isinstance(caller.statement, ast.Expr)


def _gives_back(statement: ast.stmt, read: list[ast.expr]) -> bool:
    """``return w``, ``return w, velocity``"""
    value = statement.value if isinstance(statement, ast.Return) else None
    return any(one in read for one in (value.elts if isinstance(value, ast.Tuple) else [value]))


def _is_iterate(write: Site) -> bool:
    """Whether the code around reads the gradient of what it writes: a sampler adds its noise to such a tensor as well."""
    around = ast.walk(scope(write.code, write.statement))
    read = [node.value for node in around if isinstance(node, ast.Attribute) and node.attr == "grad"]
    return any(root_text(write.code, value) == write.root_text for value in read)


def _of_itself(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a statement does no more than change the named tensor: ``w.detach_()``, ``w[0] = w[1]``, ``w = w.to(device)``."""
    if isinstance(statement, ast.Assign) and binds(statement) == {name}:
        return root_text(code, statement.value) == name
    parts = written_by(statement.value if isinstance(statement, ast.Expr) else statement)
    return {root_text(code, part.value if isinstance(part, ast.Attribute) else part) for part in parts} == {name}


def carries_graph(write: Site) -> bool:
    """Whether the step itself belongs to a graph, as the inner step of a meta-learner does."""
    asked = "backward" if reads_gradient(write.statement) else "grad"
    return creates_graph(calls_named(scope(write.code, write.statement), asked))


def creates_graph(calls: Iterable[ast.Call]) -> bool:
    """Whether one of some gradients is computed with a graph of its own."""
    return any(
        keyword.arg == "create_graph" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        for call in calls
        for keyword in call.keywords
    )


def _refused(problem: Problem, code: Code) -> list[ast.stmt]:
    """The writes of a text that torch has refused, this one's among them."""
    writes = [c.write for c in problem.evidence.clashes if c.family == problem.family and c.write is not None]
    return [one.statement for write in writes for one in problem.frames(write.stack[:1]) if one.code is code]


def _block(write: Site, refused: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that belong together: neighbours that update too, and the loops that do nothing else; none where the
    write stands on the head line of a block that does more.
    """
    code = write.code
    statement: ast.stmt = write.statement
    while True:
        block = code.block(statement)
        above = code.parent(statement)
        if isinstance(above, (ast.For, ast.If)) and (code.begins_on_head(statement) or _is_elif(code, statement)):
            statement = above
            continue
        updates = [_updates(code, s, write, refused) for s in block]
        whole = isinstance(above, ast.For) or _is_branch_of_update(code, above, write, refused)
        if whole and _updates(code, above, write, refused):  # type: ignore[arg-type]
            statement = above  # type: ignore[assignment]
            continue
        at = block.index(statement)
        first = at - len(list(itertools.takewhile(bool, reversed(updates[:at]))))
        return block[first : at + len(list(itertools.takewhile(bool, updates[at:])))]


def _is_elif(code: Code, statement: ast.AST) -> bool:
    return isinstance(statement, ast.If) and code.text(statement).startswith("elif")


def _is_branch_of_update(code: Code, above: ast.AST | None, write: Site, refused: list[ast.stmt]) -> bool:
    """Whether a branch is one of several updates, or all that a loop does; one by itself stays around the block."""
    if not isinstance(above, ast.If) or _is_elif(code, above):
        return False
    beside = [_updates(code, s, write, refused) for s in code.block(above)]
    return beside.count(True) > 1 or (all(beside) and isinstance(code.parent(above), ast.For))


def _updates(code: Code, statement: ast.stmt, write: Site, refused: list[ast.stmt]) -> bool:
    """Whether a statement updates something in place, or clears a gradient, and does nothing else."""
    if isinstance(statement, ast.If):
        return all(_updates(code, s, write, refused) for s in [*statement.body, *statement.orelse])
    if isinstance(statement, ast.For):
        return not statement.orelse and all(_updates(code, s, write, refused) for s in statement.body)
    if statement in refused or statement is write.statement or isinstance(statement, (ast.Pass, ast.Continue)):
        return True
    if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "attr", "") == "grad":
        return True
    changed = written_by(statement.value if isinstance(statement, ast.Expr) else statement)
    if len(changed) != 1 or (isinstance(changed[0], ast.Attribute) and isinstance(statement, ast.Assign)):
        return False
    return root_text(code, changed[0]) == write.root_text or reads_gradient(statement)
