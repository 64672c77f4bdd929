"""A tensor made in inference mode can never enter a graph; one made under no_grad can.

with torch.inference_mode():      with torch.no_grad():
    features = body(x)                features = body(x)

with torch.no_grad():
    tail = h.view(-1)             tail = h.view(-1)
tail.add_(1)                      tail.add_(1)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...diagnosis import LiveChange
from ...message import message
from ...source.editor import Code, Edit, Function, names_bound, names_loaded
from ...source.location import SourceRange
from ..analysis.targets import bindings, written
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register
from .no_grad import moved

_WHY = message("why_no_grad_instead")
_VIEW_WHY = message("why_view_seen")
_MOST = 4


@register("inference", "no_grad_view")
def inference_mode(problem: Problem) -> Iterator[Proposal]:
    """The blocks and decorators that a stack leads to first, then those of the cells before, nearest first."""
    found: dict[tuple[int, int], tuple[Code, ast.expr]] = {}
    for spot in _spots(problem):
        code = problem.code(spot.cell)
        node = code.at(spot) if code is not None else None
        if code is not None and node is not None:
            for above in (node, *code.parents(node)):
                for mode in _modes(above):
                    found.setdefault((code.cell.number, code.span(mode)[0]), (code, mode))
    for number in sorted((n for n in problem.sources.cells if n <= problem.cell), reverse=True):
        code = problem.code(number)
        if code is None:
            continue
        for inner in ast.walk(code.tree):
            for mode in _modes(inner):
                found.setdefault((number, code.span(mode)[0]), (code, mode))
    form = "inference_mode" if problem.family == "inference" else "inference_mode: of views"
    live = _live(problem)
    for code, mode in list(found.values())[:_MOST]:
        edit = _renamed(code, mode)
        number = code.cell.number
        yield Proposal(
            title=f"with {edit.text}:" if _is_block(code, mode) else f"@{edit.text}",
            why=_WHY,
            form=form,
            texts={number: code.apply(edit)},
            live=live,
            spared=(number,) if live and number != problem.cell else (),
        )


def _live(problem: Problem) -> tuple[LiveChange, ...]:
    """The inference tensors that lie about in the session become normal ones."""
    code = problem.code(problem.cell)
    made_here = names_bound(code.tree.body) if code is not None else set()
    paths = problem.evidence.inference_tensors if problem.family == "inference" else ()
    heads = [(path, re.match(r"\w+", path)) for path in paths]
    return tuple(LiveChange("clone", path) for path, head in heads if head and head.group() not in made_here)


def _spots(problem: Problem) -> tuple[SourceRange, ...]:
    return (*problem.save_stack, *problem.write_stack, *problem.raised)


def _modes(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions ``torch.inference_mode`` with or without a call, of a block or of a definition."""
    candidates: list[ast.expr] = []
    if isinstance(node, (ast.With, ast.AsyncWith)):
        candidates = [item.context_expr for item in node.items]
    elif isinstance(node, (*Function, ast.ClassDef)):
        candidates = list(node.decorator_list)
    for one in candidates:
        func = one.func if isinstance(one, ast.Call) else one
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name == "inference_mode":
            yield one


def _renamed(code: Code, mode: ast.expr) -> Edit:
    func = mode.func if isinstance(mode, ast.Call) else mode
    owner = f"{code.text(func.value)}." if isinstance(func, ast.Attribute) else "torch."
    return code.replace(mode, f"{owner}no_grad()")


def _is_block(code: Code, mode: ast.expr) -> bool:
    return isinstance(code.parent(mode), ast.withitem)


@register("no_grad_view")
def view_outside(problem: Problem) -> Iterator[Proposal]:
    """The view that is written is made in front of the block that switched gradients off."""
    write = written(problem)
    name = write.root_text if write is not None else None
    if write is None or name is None:
        return
    code = write.code
    for binding in bindings(code, name, write.statement)[:2]:
        block = code.parent(binding.statement)
        if not isinstance(block, ast.With) or not any(_switches_off(code, i.context_expr) for i in block.items):
            continue
        edits = _taken_out(code, block, binding.statement)
        if edits is not None:
            yield Proposal(
                title=message("title_outside", what=code.text(binding.statement).splitlines()[0]),
                why=_VIEW_WHY,
                form="inference_mode: view outside",
                texts={code.cell.number: code.apply(*edits)},
            )


@register("no_grad_view")
def maker_with_gradients(problem: Problem) -> Iterator[Proposal]:
    """The view comes from a function that is decorated with no_grad: it is made without the decorator."""
    write = written(problem)
    name = write.root_text if write is not None else None
    if write is None or name is None:
        return
    made = [b.value for b in bindings(write.code, name, write.statement)[:1]]
    called = made[0].func if made and isinstance(made[0], ast.Call) else None
    wanted = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
    for number in sorted(problem.sources.cells, reverse=True) if wanted is not None else ():
        code = problem.code(number)
        for node in ast.walk(code.tree) if code is not None else ():
            if code is None or not isinstance(node, Function) or node.name != wanted:
                continue
            off = [d for d in node.decorator_list if _switches_off(code, d)]
            if len(off) != 1:
                continue
            start, end = code.span(off[0])
            raw = code.cell.raw
            edit = Edit(raw.rfind("\n", 0, start) + 1, raw.find("\n", end) + 1, "")
            yield Proposal(
                title=message("title_undecorated", name=node.name, decorator=code.text(off[0])),
                why=_VIEW_WHY,
                form="inference_mode: maker",
                texts={number: code.apply(edit)},
            )


def _switches_off(code: Code, node: ast.expr) -> bool:
    text = code.text(node)
    return "no_grad" in text or "inference_mode" in text


def _taken_out(code: Code, block: ast.With, statement: ast.stmt) -> list[Edit] | None:
    """The statement, with those of the block that it builds on, in front of the block; the block goes if it is empty."""
    taken = [statement]
    for earlier in reversed(block.body[: block.body.index(statement)]):
        if names_bound([earlier]) & names_loaded(taken):
            taken.insert(0, earlier)
    if not code.alone(block) or block.body[0].lineno == block.lineno:
        return None
    texts = [moved(code, [one], code.indent(block)) for one in taken]
    if None in texts:
        return None
    text = "".join(t for t in texts if t is not None)
    start, end, _ = code.whole_lines([block])
    if len(taken) == len(block.body):
        return [Edit(start, end, text)]
    return [Edit(start, start, text), *(code.delete(one) for one in taken)]
