"""Statements taken out of their place, as text with their comments."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .editor import Code, Edit


def unused(name: str, code: Code) -> str:
    """The name, or one like it that the cell does not use yet."""
    taken = {node.id for node in ast.walk(code.tree) if isinstance(node, ast.Name)}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 100))) if n not in taken)


@dataclass(frozen=True)
class Lifted:
    """Whole lines taken out of a cell, with the comments right above them."""

    text: str
    edits: tuple[Edit, ...]


def lift(code: Code, statements: Sequence[ast.stmt]) -> Lifted | None:
    """Takes statements out, to be put elsewhere; None where they share lines with others than each other.

    Where a blank line parts them from what is above, it goes with them, and stands behind them at the new place.
    """
    if not statements or not all(code.alone(s) or _together(code, s, statements) for s in statements):
        return None
    raw = code.cell.raw
    text = ""
    edits: list[Edit] = []
    for statement in statements:
        start = start_with_comments(code, statement)
        end = line_end(code, statement)
        if edits and start < edits[-1].end:
            continue  # on the line of the one before
        text += raw[start:end] if raw[start:end].endswith("\n") else raw[start:end] + code.newline
        edits.append(Edit(start, end, ""))
    above = raw[: edits[0].start].splitlines(keepends=True)
    if above and not above[-1].strip() and statements[0] is not code.block(statements[0])[0]:
        edits[0] = Edit(edits[0].start - len(above[-1]), edits[0].end, "")
        text += code.newline
    return Lifted(text, tuple(edits))


def _together(code: Code, statement: ast.stmt, statements: Sequence[ast.stmt]) -> bool:
    """Whether all that shares lines with a statement of one line is among the statements."""
    line = statement.lineno
    block = code.block(statement)
    beside = [s for s in block if s.lineno <= line <= (s.end_lineno or s.lineno)]
    whole = code.begins_line(beside[0]) and all(s.lineno == s.end_lineno == line for s in beside)
    return whole and all(any(s is one for one in statements) for s in beside)


def start_with_comments(code: Code, statement: ast.stmt) -> int:
    """Where the statement's line begins, or the comment lines right above it."""
    lines = code.cell.raw.splitlines(keepends=True)
    first = statement.lineno - 1
    while first > 0 and lines[first - 1].strip().startswith("#"):
        first -= 1
    return sum(len(line) for line in lines[:first])


def line_end(code: Code, statement: ast.stmt) -> int:
    lines = code.cell.raw.splitlines(keepends=True)
    return sum(len(line) for line in lines[: statement.end_lineno])


def source_lines(code: Code, statement: ast.stmt, edits: Iterable[Edit] = ()) -> list[str]:
    """The statement's text as lines to insert, its further lines as deep as the first."""
    lines = code.edited(statement, edits).splitlines()
    indent = code.indent(statement)
    return [lines[0], *(line.removeprefix(indent) for line in lines[1:])]
