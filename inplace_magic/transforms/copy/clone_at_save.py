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
from ...source.dataflow import called_name
from ...source.editor import Code, Edit, dotted
from ...source.location import SourceRange
from ..analysis.targets import Site, is_functional, is_inplace_name, root, root_text, seen_through, sites
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_saved")
_MOST = 4
_FRAMES = 4
# Formulas that keep their own result: a copy of the operand would not help. Some of them keep nothing else.
_NOTHING_ELSE = ("Exp", "Sigmoid", "Tanh", "Relu", "Softmax", "LogSoftmax", "Sqrt", "Rsqrt", "Reciprocal", "Tan")
_KEEPS_RESULT = (
    *_NOTHING_ELSE, "Elu", "Norm", "LinalgVectorNorm", "Max", "Min", "Amax", "Amin", "Cumprod", "Logsumexp", "Cdist",
    "HardtanhBackward", "LeakyRelu",
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
    yield from itertools.islice(_proposals(problem, stack), _MOST)


def _named(problem: Problem) -> set[tuple[int | None, str, str | None]]:
    """(cell, function, name) of the written tensor, for each frame of the write where a name can be told."""
    found: set[tuple[int | None, str, str | None]] = set()
    frames = sites(problem)
    name = frames[0].root_text if frames else None
    for frame, caller in itertools.zip_longest(frames, frames[1:]):
        if name is None:
            break
        whole = seen_through(frame.code, name, frame.statement)
        found |= {(frame.spot.cell, frame.spot.function, one) for one in (name, whole)}
        name = _outside(frame, caller, name) if caller is not None else None
    return found


def _outside(inner: Site, outer: Site, name: str) -> str | None:
    """The caller's name for what the callee calls ``name``."""
    call = outer.node.value if isinstance(outer.node, ast.Expr) else outer.node
    if name.startswith("self.") and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        owner = dotted(call.func.value)
        return None if owner is None else owner + name[len("self") :]
    return root_text(outer.code, argument(inner.code.function(inner.statement), name, call))


def _proposals(problem: Problem, stack: tuple[SourceRange, ...]) -> Iterator[Proposal]:
    named, path = _named(problem), (problem.clash.write.name if problem.clash.write is not None else None) or ""
    kind = (problem.clash.save.node if problem.clash.save is not None else None) or ""
    frames = problem.frames(stack[: 0 if kind.startswith(_NOTHING_ELSE) else _FRAMES])[::-1]
    known = [{name for *place, name in named if place == [f.spot.cell, f.spot.function]} for f in frames]
    matched = [proposal for frame, names in zip(frames, known) for proposal in _matched(problem, frame, names, path)]
    results = [proposal for frame in problem.frames(stack[:1]) for proposal in _result(kind, frame)]
    others = [(f.code, o) for f in frames[:2] for o in _operands(f.node) if root(o) is not None and not matched]
    yield from (*matched, *results, *(_proposal(code, [_copy(code, o)], o, "any operand") for code, o in others))


def _matched(problem: Problem, frame: Frame, names: set[str | None], path: str) -> Iterator[Proposal]:
    """The operands that the write names, all of them copied; or the view from which an operand was made.

    ``path``: the way to what was written over the user's names, ``net.embedding.weight`` for ``self.embedding.weight``.
    """
    code = frame.code
    names = names | {path, f"self.{path.partition('.')[2]}"}
    operands = _operands(frame.node)
    held = [(operand, of) for operand in operands if (of := root(operand)) is not None]
    found = [operand for operand, of in held if code.text(of) in names]
    found += [operand for operand in operands if names & {*_given_by(problem, operand)}]
    if found:
        yield _proposal(code, [_copy(code, o) for o in found], found[0], "operand")
        return
    for _, of in held:
        for binding in bindings(code, code.text(of), frame.statement)[:3] if dotted(of) is not None else ():
            start = root(binding.value) if binding.value is not None else None
            if binding.value is not None and start is not None and code.text(start) in names:
                yield _proposal(code, [_copy(code, binding.value)], binding.value, "view")


def _given_by(problem: Problem, operand: ast.expr) -> Iterator[str]:
    """What a method gives that hands out what its object keeps: ``queue.data`` for ``queue.negatives()``."""
    method = operand.func if isinstance(operand, ast.Call) else None
    owner = dotted(method.value) if isinstance(method, ast.Attribute) else None
    if owner is None:
        return
    for code, function in problem.nodes(ast.FunctionDef):
        own = next(iter(parameters(function)), "")
        for node in ast.walk(function) if function.name == called_name(operand) else ():
            kept = root_text(code, node.value) if isinstance(node, ast.Return) else None
            if kept is not None and kept.startswith(f"{own}."):
                yield owner + kept.removeprefix(own)


def _result(kind: str, frame: Frame) -> Iterator[Proposal]:
    """A copy of what the saving expression gives, for formulas that keep their own result."""
    code, result = frame.code, frame.expression
    above = code.parent(result)
    if not kind.startswith(_KEEPS_RESULT) or getattr(above, "attr", "") == "clone":
        return
    if isinstance(result, (ast.Call, ast.BinOp)) and not isinstance(above, ast.Expr):
        yield _proposal(code, [code.behind(result, ".clone()")], result, "result")


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
    while start is not None and node is not start:
        if isinstance(node, ast.Subscript):
            break
        node = node.func.value if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
    return code.behind(node, ".clone()")


def _proposal(code: Code, edits: list[Edit], shown: ast.expr, form: str) -> Proposal:
    return in_one_text(code, edits, code.edited(shown, edits), _WHY, f"clone_at_save: {form}")
