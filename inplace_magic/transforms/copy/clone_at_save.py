"""Where the tensor is saved, autograd is given a copy, so that the write cannot reach it.

    a = emb.weight @ W.t()            a = emb.weight.clone() @ W.t()
    energy = (b ** 2).sum()           energy = (b.clone() ** 2).sum()
    neg = q @ self.queue.detach()     neg = q @ self.queue.clone().detach()
    head = x[:, 0].reshape(n, -1)     head = x[:, 0].clone().reshape(n, -1)
    p = torch.sigmoid(z)              p = torch.sigmoid(z).clone()

Of the saving expression's operands it is the one that the write names; where that cannot be told, each is a proposal.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...message import message
from ...source.bindings import argument, bindings, parameters
from ...source.editor import Code, Edit, atom, dotted
from ...source.location import SourceRange
from ..analysis.targets import Site, is_functional, is_inplace_name, root, seen_through, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_saved")
_MOST = 4
_FRAMES = 4
# Formulas that keep their own result: a copy of the operand would not help.
_KEEPS_RESULT = (
    "Exp", "Sigmoid", "Tanh", "Relu", "Softmax", "LogSoftmax", "Sqrt", "Rsqrt", "Reciprocal", "Elu", "Norm",
    "LinalgVectorNorm", "Max", "Min", "Amax", "Amin", "Cumprod", "Logsumexp", "Expm1", "Tan", "Cdist", "HardtanhBackward",
    "LeakyRelu",
)  # fmt: skip
_NO_TENSOR = frozenset({"apply", "save_for_backward"})  # methods of something that is no tensor


@register("modified", "silent", "inference")
def clone_at_save(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is not None and write.origin == "optim":
        return
    if write is not None and write.origin == "nn" and problem.save_stack[:1] == problem.write_stack[:1]:
        return  # saved and written by modules inside one call
    stack = problem.write_stack if problem.family == "inference" else problem.save_stack
    named = _named(problem)
    yield from itertools.islice(_proposals(problem, stack, named), _MOST)


def _named(problem: Problem) -> set[tuple[int | None, str, str]]:
    """(cell, function, name) of the written tensor, for each frame of the write where a name can be told."""
    found: set[tuple[int | None, str, str]] = set()
    frames = sites(problem)
    name = frames[0].root_text if frames else None
    for i, frame in enumerate(frames):
        if name is not None:
            found.add((frame.spot.cell, frame.spot.function, name))
            whole = seen_through(frame.code, name, frame.statement)
            if whole is not None:
                found.add((frame.spot.cell, frame.spot.function, whole))
        function = frame.code.function(frame.statement)
        if i + 1 < len(frames) and name is not None:
            name = _outside(frame, frames[i + 1], name, parameters(function))
    return found


def _outside(inner: Site, outer: Site, name: str, known: list[str]) -> str | None:
    """The caller's name for what the callee calls ``name``."""
    call = outer.node.value if isinstance(outer.node, ast.Expr) else outer.node
    if name.startswith("self.") and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        owner = dotted(call.func.value)
        return None if owner is None else owner + name[len("self") :]
    if name not in known:
        return None
    given = argument(inner.code.function(inner.statement), name, call)
    found = root(given) if given is not None else None
    return outer.code.text(found) if found is not None else None


def _proposals(
    problem: Problem, stack: tuple[SourceRange, ...], named: set[tuple[int | None, str, str]]
) -> Iterator[Proposal]:
    path = problem.clash.write.name if problem.clash.write is not None else None
    matched = False
    for spot in stack[:_FRAMES]:
        code = problem.code(spot.cell)
        node = code.at(spot) if code is not None else None
        if code is None or node is None:
            continue
        names = {name for cell, function, name in named if (cell, function) == (spot.cell, spot.function)}
        if path is not None:
            names.add(path)
        for proposal in _matched(code, node, names):
            matched = True
            yield proposal
    if stack:
        yield from _result(problem, stack[0], last_resort=not matched)
    for spot in stack[: 0 if matched else 2]:
        yield from _each_operand(problem, spot)


def _matched(code: Code, node: ast.AST, names: set[str]) -> Iterator[Proposal]:
    """The operands that the write names, all of them copied; or the view from which an operand was made."""
    found = [o for o in _operands(node) if (r := root(o)) is not None and code.text(r) in names]
    if found:
        edits = [_copy(code, o) for o in found]
        yield _proposal(code, edits, found[0], "operand")
        return
    for operand in _operands(node):
        held = root(operand)
        if held is None or dotted(held) is None:
            continue
        for binding in bindings(code, code.text(held), code.statement(node))[:3]:
            start = root(binding.value) if binding.value is not None else None
            if binding.value is not None and start is not None and code.text(start) in names:
                yield _proposal(code, [_copy(code, binding.value)], binding.value, "view")


def _result(problem: Problem, spot: SourceRange, *, last_resort: bool) -> Iterator[Proposal]:
    """A copy of what the saving expression gives, for formulas that keep their own result."""
    code = problem.code(spot.cell)
    node = code.at(spot) if code is not None else None
    kind = (problem.clash.save.node if problem.clash.save is not None else None) or ""
    keeps = kind.startswith(_KEEPS_RESULT)
    if code is None or not (keeps or last_resort):
        return
    result = node.value if isinstance(node, (ast.Assign, ast.Return)) else node
    above = code.parent(result) if result is not None else None
    if isinstance(above, ast.Attribute) and above.attr == "clone":
        return
    if isinstance(result, (ast.Call, ast.BinOp)) and not isinstance(above, ast.Expr):
        edits = [code.replace(result, f"{atom(code, result)}.clone()")]
        yield _proposal(code, edits, result, "result" if keeps else "any result")


def _each_operand(problem: Problem, spot: SourceRange) -> Iterator[Proposal]:
    code = problem.code(spot.cell)
    node = code.at(spot) if code is not None else None
    if code is None or node is None:
        return
    for operand in _operands(node):
        if root(operand) is not None:
            yield _proposal(code, [_copy(code, operand)], operand, "any operand")


def _operands(node: ast.AST) -> list[ast.expr]:
    """The tensors that an expression may save: operands, arguments, and the object of a method."""
    if isinstance(node, (ast.Expr, ast.Assign, ast.Return, ast.AnnAssign)):
        node = node.value or node
    if isinstance(node, ast.AugAssign):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
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
    return [
        f for f in found if not isinstance(f, (ast.Constant, ast.Starred)) and dotted(f) not in ("self", "cls", "ctx")
    ]


def _copy(code: Code, operand: ast.expr) -> Edit:
    """The copy is made as early in a chain of views as the memory is still shared: behind the subscripts."""
    node = operand
    start = root(operand)
    while node is not start:
        if isinstance(node, ast.Subscript):
            break
        node = node.func.value if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
    return code.replace(node, f"{atom(code, node)}.clone()")


def _proposal(code: Code, edits: list[Edit], shown: ast.expr, form: str) -> Proposal:
    return in_one_text(code, edits, code.edited(shown, edits), _WHY, f"clone_at_save: {form}", local=True)
