"""Where the tensor is saved, autograd is given a copy, so that the write cannot reach it.

    a = emb.weight @ W.t()            a = emb.weight.clone() @ W.t()
    energy = (b ** 2).sum()           energy = (b.clone() ** 2).sum()
    neg = q @ self.queue.detach()     neg = q @ self.queue.clone().detach()
    head = x[:, 0].reshape(n, -1)     head = x[:, 0].clone().reshape(n, -1)
    p = torch.sigmoid(z)              p = torch.sigmoid(z).clone()

    x.mul_(x.sigmoid())               x_given = x.clone()
    ctx.save_for_backward(x)          x.mul_(x.sigmoid())
                                      ctx.save_for_backward(x_given)

Of the saving expression's operands it is the one that the write names; where it names none, it is the result, or any of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import handed, value_of
from ...source.blocks import loops
from ...source.dataflow import called_name, reads
from ...source.editor import Code, Edit, dotted
from ..analysis.contents import OWN_MEMORY
from ..analysis.targets import chain, handed_down, is_functional, is_inplace_name, root, seen_through, written
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_saved")
_FRAMES = 4
_NO_TENSOR = frozenset({"apply", "save_for_backward"})  # methods of something that is no tensor


@register("modified", "silent", "inference", "multi_output_view")
def clone_at_save(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is not None and write.origin == "optim":
        return
    yield from _given(problem)
    if write is not None and write.origin == "nn" and problem.save_stack[:1] == problem.write_stack[:1]:
        return  # saved and written by modules inside one call
    stack = problem.write_stack if problem.family == "inference" else problem.save_stack
    path = (write.name if write is not None else None) or ""
    frames = problem.frames(stack[:_FRAMES])[::-1]
    named = {
        (site.code, site.spot.function, one)
        for site, name in handed_down(problem, _FRAMES)
        for one in (name, seen_through(site.code, name, site.statement))
        if one is not None
    }
    here = written(problem)
    if here is not None and write is not None and all(frame.statement is not here.statement for frame in frames):
        named |= {(here.code, here.spot.function, path) for path in write.held}
    known = [{name for *place, name in named if place == [f.code, f.spot.function]} for f in frames]
    for n in range(len(frames) - 1, 0, -1):
        known[n - 1] |= {*_handed_in(frames[n], frames[n - 1], known[n])}
    matched = [proposal for frame, names in zip(frames, known) for proposal in _matched(frame, names, path)]
    yield from matched or [one for frame in frames[:1] for one in _result(frame)]


def _given(problem: Problem) -> Iterator[Proposal]:
    """A copy from ahead of the statement that writes, or calls what does."""
    for frame in problem.saved[-1:] if problem.wants_given else []:
        code, function = frame.code, frame.spot.function
        here = [one.statement for one in problem.lost if one.code is code and one.spot.function == function]
        writes = [next(reversed(loops(code, one)), one) for one in here]
        saved = [
            n for n in ast.walk(frame.expression) if isinstance(n, ast.Name) and writes and n.id in reads(writes[-1])
        ]
        for name in dict.fromkeys(node.id for node in saved):
            own = problem.unused(f"{name}_given", code, frame.statement)
            edits = [code.insert_before(writes[-1], line := f"{own} = {name}.clone()")]
            edits += [code.replace(node, own) for node in saved if node.id == name]
            yield in_one_text(code, edits, line, _WHY, "clone_at_save")


def _matched(frame: Frame, names: set[str], path: str) -> Iterator[Proposal]:
    """The operands that the write names, all of them copied.

    ``path``: the way to what was written over the user's names, ``net.embedding.weight`` for ``self.embedding.weight``.
    """
    code = frame.code
    names = names | {path, f"self.{path.partition('.')[2]}"}
    operands = _operands(frame.node)
    found = [one for one in operands if {*_looked_through(frame, one)} & names]
    if not found and "." in path:  # the object may have another name here
        found = [o for o in operands if isinstance(of := root(o), ast.Attribute) and of.attr == path.rpartition(".")[2]]
    if found:
        edits = [_copy(code, operand) for operand in found]
        yield in_one_text(code, edits, code.edited(found[0], edits), _WHY, "clone_at_save")


def _handed_in(outer: Frame, inner: Frame, names: set[str]) -> Iterator[str]:
    """What a function calls what its caller knows by these names: ``self.state`` for ``memory.state`` in ``memory.read()``."""
    function, call = inner.code.function(inner.statement), outer.expression
    if isinstance(function, ast.FunctionDef) and isinstance(call, ast.Call):
        yield from (own for name in names for own in handed(inner.code, function, call, name))


def _looked_through(frame: Frame, operand: ast.expr) -> Iterator[str | None]:
    """What an operand is a look at: ``row`` for ``row = table[i]`` leads to ``table``. A mere second name is none."""
    name = ast.unparse(operand)
    yield from (ast.unparse(node) for node in chain(operand) if node is not None)
    if not isinstance(value_of(frame.code, name, frame.statement), ast.Name):
        yield seen_through(frame.code, name, frame.statement)


def _result(frame: Frame) -> Iterator[Proposal]:
    """A copy of what the saving expression gives, for many formulas keep their own result, and of what it is given. A Function
    keeps copies of its own."""
    code, result = frame.code, frame.expression
    above = code.parent(result)
    if called_name(result) == "save_for_backward" and (operands := _operands(result)):
        edits = [_copy(code, operand) for operand in operands]
        yield in_one_text(code, edits, code.edited(result, edits), _WHY, "clone_at_save: result")
    elif isinstance(result, (ast.Call, ast.BinOp)) and not isinstance(above, ast.Expr) and not _is_copied(result):
        looked_at = isinstance(above, ast.Attribute)
        edits = [] if looked_at and above.attr in OWN_MEMORY else [code.behind(result, ".clone()")]  # type: ignore[union-attr]
        for edit in [*edits, *(_copy(code, one) for one in _operands(result))]:
            form = "clone_at_save: result" if edit in edits and not looked_at else "clone_at_save: any"
            yield in_one_text(code, [edit], edit.text, _WHY, form)


def _operands(node: ast.AST) -> list[ast.expr]:
    """The tensors that an expression may save: operands, arguments, and the object of a method."""
    if isinstance(node, (ast.Expr, ast.Assign, ast.Return, ast.AnnAssign)):
        node = node.value or node
    if isinstance(node, ast.AugAssign):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [one for one in (node.left, node.right) if not isinstance(one, ast.Constant)]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Subscript):
        return [node.value, node.slice] if isinstance(node.ctx, ast.Load) else []  # a copy would be written, and lost
    if not isinstance(node, ast.Call):
        return []
    found: list[ast.expr] = []
    # The tensor that a method writes into must not be a copy, or the write is lost.
    method = node.func if isinstance(node.func, ast.Attribute) and not is_functional(node.func.value) else None
    if method is not None and method.attr not in _NO_TENSOR and not is_inplace_name(method.attr):
        found.append(method.value)
    for given in (*node.args, *(k.value for k in node.keywords)):
        found += given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
    found = [f for f in found if not isinstance(f, (ast.Constant, ast.Starred)) and not _is_copied(f)]
    return [f for f in found if dotted(f) not in ("self", "cls", "ctx")]


def _is_copied(operand: ast.AST) -> bool:
    """Whether an operand is a look at a copy already."""
    return isinstance(operand, ast.expr) and any(called_name(n) == "clone" for n in chain(operand))


def _copy(code: Code, operand: ast.expr) -> Edit:
    """The copy is made as early in a chain of views as the memory is still shared: behind the subscripts."""
    node = operand
    start = root(operand)
    while start is not None and node is not start:
        if isinstance(node, ast.Subscript):
            break
        node = node.func.value if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
    return code.behind(node, ".clone()")
