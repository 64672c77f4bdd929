"""Where the tensor is saved, autograd is given a copy, so that the write cannot reach it.

    a = emb.weight @ W.t()            a = emb.weight.clone() @ W.t()
    energy = (b ** 2).sum()           energy = (b.clone() ** 2).sum()
    neg = q @ self.queue.detach()     neg = q @ self.queue.clone().detach()
    head = x[:, 0].reshape(n, -1)     head = x[:, 0].clone().reshape(n, -1)
    p = torch.sigmoid(z)              p = torch.sigmoid(z).clone()
    theta, omega = path[k]            theta, omega = path[k].clone()

    x.mul_(x.sigmoid())               x_given = x.clone()
    ctx.save_for_backward(x)          x.mul_(x.sigmoid())
                                      ctx.save_for_backward(x_given)

Of the saving expression's operands it is the one that the write names; where it names none, it is the result, or any of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...record.evidence import Write
from ...source.bindings import bindings, value_of
from ...source.blocks import loops
from ...source.dataflow import called_name, given_to, is_functional, is_inplace_name, reads
from ...source.editor import Code, Edit, dotted
from ..analysis.contents import OWN_MEMORY
from ..analysis.meetings import is_in_update, sent_back_again, updates_weights
from ..analysis.targets import chain, handed_down, root, seen_through
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_saved")
_FRAMES = 4
_NO_TENSOR = frozenset({"apply", "save_for_backward"})  # methods of something that is no tensor


@register("modified", "silent", "inference", "multi_output_view")
def clone_at_save(problem: Problem) -> Iterator[Proposal]:
    event = problem.clash.write
    if event is None or event.origin == "optim" or sent_back_again(problem):
        return
    if updates_weights(problem) and is_in_update(problem):
        return  # a step by hand: the gradients would be those of the weights of before
    yield from _given(problem)
    if event.origin == "nn" and problem.save_stack[:1] == problem.write_stack[:1]:
        return  # saved and written by modules inside one call
    stack = problem.write_stack if problem.family == "inference" else problem.save_stack
    frames = problem.frames(stack[:_FRAMES])[::-1]
    names = _names(problem, event)
    for frame in frames:
        matched = [*_matched(frame, names)]
        yield from matched or (_result(frame) if frame is frames[0] else ())


def _names(problem: Problem, event: Write) -> set[str | None]:
    """By what names the code that writes, and those who call it, know what is written."""
    path = event.name or ""
    handed = [*handed_down(problem, _FRAMES)]
    seen = [seen_through(site.code, name, site.statement) for site, name in handed]
    return {path, f"self.{path.partition('.')[2]}", *event.held, *(name for _, name in handed), *seen} - {None}


def _given(problem: Problem) -> Iterator[Proposal]:
    """A copy from ahead of the statement that writes, or calls what does."""
    for frame in problem.saved[-1:] if problem.wants_given else []:
        code, function = frame.code, frame.spot.function
        for event in [one for one in problem.lost if one.code is code and one.spot.function == function][-1:]:
            first = [event.statement, *loops(code, event.statement)][-1]
            for name in sorted(reads(frame.expression) & reads(first)):
                saved = [n for n in ast.walk(frame.expression) if isinstance(n, ast.Name) and n.id == name]
                own = problem.unused(f"{name}_given", code, frame.statement)
                edits = [code.insert_before(first, line := f"{own} = {name}.clone()")]
                yield in_one_text(code, [*edits, *(code.replace(n, own) for n in saved)], line, _WHY, "clone_at_save")


def _matched(frame: Frame, names: set[str | None]) -> Iterator[Proposal]:
    """The operands that the write names, or that are a look at what it names, all of them copied. A mere second name is none."""
    code, statement = frame.code, frame.statement
    operands = [
        o for o in _operands(frame.expression) if not isinstance(value_of(code, ast.unparse(o), statement), ast.Name)
    ]
    looks = [{*map(ast.unparse, chain(o)), seen_through(code, ast.unparse(o), statement)} for o in operands]
    found = [one for one, looked_at in zip(operands, looks) if looked_at & names]
    if found:
        yield in_one_text(code, [_copy(code, one) for one in found], found[0], _WHY, "clone_at_save")
    for whole in dict.fromkeys(whole for o in operands if (whole := _unpacked(code, o, statement)) is not None):
        if names & {*map(ast.unparse, chain(whole))}:
            copied = _copy(code, whole)
            yield in_one_text(code, [copied], code.edited(whole, [copied]), _WHY, "clone_at_save")


def _unpacked(code: Code, operand: ast.expr, statement: ast.stmt) -> ast.expr | None:
    """What an operand is a part of: ``path[k]`` for ``theta`` of ``theta, omega = path[k]``."""
    made = next(iter(bindings(code, ast.unparse(operand), statement)), None)
    return getattr(made.statement, "value", None) if made is not None and made.value is None else None


def _result(frame: Frame) -> Iterator[Proposal]:
    """A copy of what the saving expression gives, for many formulas keep their own result, and of what it is given. A Function
    keeps copies of its own."""
    code, result = frame.code, frame.expression
    above, copies = code.parent(result), [_copy(code, one) for one in _operands(result)]
    if called_name(result) == "save_for_backward":
        yield in_one_text(code, copies, result, _WHY, "clone_at_save: result")
    elif isinstance(result, (ast.Call, ast.BinOp)) and not isinstance(above, ast.Expr) and not _is_copied(result):
        looked_at, whole = isinstance(above, ast.Attribute), code.behind(result, ".clone()")
        if getattr(above, "attr", "") not in OWN_MEMORY:
            yield in_one_text(code, [whole], whole.text, _WHY, f"clone_at_save: {'any' if looked_at else 'result'}")
        for edit in copies:
            yield in_one_text(code, [edit], edit.text, _WHY, "clone_at_save: any")


def _operands(node: ast.AST) -> list[ast.expr]:
    """The tensors that an expression may save: operands, arguments, and the object of a method."""
    found: list[ast.expr] = []
    match node:
        case ast.AugAssign():
            found = [node.value]
        case ast.BinOp():
            found = [node.left, node.right]
        case ast.Subscript(ctx=ast.Load()):  # else a copy would be written, and lost
            found = [node.value, node.slice]
        case ast.Call():
            # The tensor that a method writes into must not be a copy either.
            method = node.func if isinstance(node.func, ast.Attribute) and not is_functional(node.func.value) else None
            if method is not None and method.attr not in _NO_TENSOR and not is_inplace_name(method.attr):
                found = [method.value]
            for given in given_to(node):
                found += given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
    tensors = [one for one in found if not isinstance(one, (ast.Constant, ast.Starred)) and not _is_copied(one)]
    return [one for one in tensors if dotted(one) not in ("self", "cls", "ctx")]


def _is_copied(operand: ast.expr) -> bool:
    """Whether an operand is a look at a copy already."""
    return any(called_name(node) == "clone" for node in chain(operand))


def _copy(code: Code, operand: ast.expr) -> Edit:
    """The copy is made as early in a chain of views as the memory is still shared: behind the subscripts."""
    subscripts = (one for one in chain(operand) if isinstance(one, ast.Subscript))
    start = root(operand)
    return code.behind(operand if start is None else next(subscripts, start), ".clone()")
