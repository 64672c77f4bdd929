"""Views of a leaf that were made at once, and are read after the leaf's update: they are made anew where they are read.

rows = list(w)
for x, y in data:                         for x, y in data:
                                              rows = list(w)
    loss = f(x, y) + penalty(rows)            loss = f(x, y) + penalty(rows)
    loss.backward()                           loss.backward()
    opt.step()                                opt.step()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...families import is_of_base
from ...message import message
from ...source.bindings import parameters, reads
from ...source.blocks import own_statements, scope
from ...source.dataflow import binds
from ...source.editor import Code, Function, names_loaded
from ...source.lift import source_lines
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_views_again")


@register("multi_output_view")
def kept_views(problem: Problem) -> Iterator[Proposal]:
    made = problem.frames(problem.save_stack)
    if not made or not is_of_base(problem.clash.message):
        return
    maker = next((frame for frame in reversed(made) if not isinstance(frame.statement, ast.Return)), made[-1])
    statement, code = maker.statement, maker.code
    if not isinstance(statement, ast.Assign):
        return
    for frame in problem.frames(problem.need_stack)[::-1]:
        before = _reader(problem, frame, binds(statement))
        if before is None or not _can_be_made(maker, frame):
            continue
        edits = [frame.code.insert_before(before, *source_lines(code, statement))]
        if frame.code is code and _only_here(code, statement, before):
            edits.append(code.delete(statement))
        title = " ".join(code.text(statement).split())
        yield in_one_text(frame.code, edits, title, _WHY, "kept_views")
        return


def _reader(problem: Problem, frame: Frame, names: set[str]) -> ast.stmt | None:
    """The first statement, of those that run after the update, that reads one of the names beside the one that failed."""
    code, top = frame.code, frame.statement
    while not _reads_any(code, [top], names):
        above = code.parent(top)
        if not isinstance(above, ast.stmt) or isinstance(above, (*Function, ast.ClassDef)):
            return None
        top = above
    block = code.block(top)
    written = [f.statement for f in problem.frames(problem.write_stack) if f.code is code]
    behind = [i for i, one in enumerate(block[: block.index(top)], 1) if any(w in ast.walk(one) for w in written)]
    return next(one for one in block[max(behind, default=0) :] if _reads_any(code, [one], names))


def _can_be_made(maker: Frame, reader: Frame) -> bool:
    """Whether what the views are made from is known by the same names where they are read."""
    here, there = scope(maker.code, maker.statement), scope(reader.code, reader.statement)
    if not isinstance(here, Function) or here is there:
        return True
    own = {name for one in own_statements(maker.code, here) for name in binds(one)} | set(parameters(here))
    shared = set(parameters(here)[:1]) & set(parameters(there)[:1])  # self
    return not (names_loaded([maker.statement]) & own) - shared


def _only_here(code: Code, maker: ast.stmt, reader: ast.stmt) -> bool:
    """Whether the views are read nowhere else than below what stands beside the reader."""
    if scope(code, maker) is not scope(code, reader) or not code.alone(maker):
        return False
    block, within = code.block(reader), [node for one in code.block(reader) for node in ast.walk(one)]
    elsewhere = [n for name in binds(maker) for n in reads(code, name, [code.tree]) if n not in within]
    return not elsewhere and maker not in block


def _reads_any(code: Code, nodes: list[ast.AST], names: set[str]) -> bool:
    return any(reads(code, name, nodes) for name in names)
