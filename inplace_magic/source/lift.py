"""Statements taken out of their place, or put at another depth, as lines with their comments.

A string on several lines counts as one line here: it stands as it is wherever its statement goes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .editor import Code, Edit, edited
from .lines import lines_of

_WITHIN = str.maketrans("\r\n", "\ue000\ue001")  # line breaks within a string
_AS_IT_WAS = str.maketrans("\ue000\ue001", "\r\n")


@dataclass(frozen=True)
class Lifted:
    """Statements taken out of a cell: their lines, to be inserted elsewhere, with the comments right above them."""

    lines: list[str]
    edits: tuple[Edit, ...]


def lift(code: Code, statements: Sequence[ast.stmt], edits: Sequence[Edit] = ()) -> Lifted:
    """Takes statements out, to be put elsewhere, with some edits made.

    A blank line that parts them from what is above goes as well. What shares a line with others, which stay, gets one
    of its own; where nothing is left of a block, it says ``pass``.
    """
    lines: list[str] = []
    gone: list[Edit] = []
    for statement in statements:
        out = code.delete(statement, *statements)
        if code.begins_line(statement) and code.is_whole(out):
            start = code.line_start(statement) - len(_comments_above(code, statement))
            lines += _split(code, start, out.end, code.indent(statement), edits)
            out = Edit(start, out.end, out.text)
        elif out.start < out.end:
            lines += as_lines(code, statement, edits)
        gone.append(out)
    if statements and code.is_whole(gone[0]) and statements[0] is not code.block(statements[0])[0]:
        above = lines_of(code.cell.raw[: gone[0].start], keepends=True)
        blank = len(above[-1]) if above and not above[-1].strip() else 0
        gone[0] = Edit(gone[0].start - blank, gone[0].end, gone[0].text)
    return Lifted(lines, tuple(gone))


def moved(code: Code, statements: Sequence[ast.stmt], other: ast.stmt, behind: bool = False) -> list[Edit]:
    """The edits that take statements out of their place, and put them ahead of another one, or ``behind`` it."""
    lifted = lift(code, statements)
    insert = code.insert_after if behind else code.insert_before
    return [*lifted.edits, insert(other, *lifted.lines)] if statements else []


def as_lines(code: Code, statement: ast.stmt, edits: Sequence[Edit] = ()) -> list[str]:
    """The statement as lines to insert, some edits made."""
    return _split(code, *code.span(statement), code.indent(statement), edits)


def wrapped(code: Code, statements: list[ast.stmt], header: str) -> Edit | None:
    """The statements, moved one level in under a new header; None where they stand on the head line of a block.

    What shares a line with the first or the last of them gets a line of its own.
    """
    if code.begins_on_head(statements[0]):
        return None
    start, end, _ = code.whole_lines(statements)
    first, last = code.span(statements[0])[0], code.span(statements[-1])[1]
    raw, indent = code.cell.raw, code.indent(statements[0])
    before, after = raw[start:first].strip().rstrip("; "), raw[last:end].lstrip()
    rest = after.lstrip("; ").rstrip() if after.startswith(";") else ""
    beside = bool(rest) and not rest.startswith("#")
    inner = _split(code, first, last if beside else end, indent, blank=True)
    lines = [*([before] if before else []), header, *(code.indent_step + line if line else "" for line in inner)]
    lines += [rest] if beside else []
    return Edit(start, end, "".join(f"{indent if line else ''}{line}{code.newline}" for line in lines))


def unwrapped(
    code: Code, block: ast.stmt, body: list[ast.stmt], edits: Sequence[Edit] = (), comment: bool = True
) -> Edit | None:
    """The lines of a block's body, or of one of its branches, in its place, some edits made; None for a part of an ``elif``.

    Comments stay, the one behind the header of a ``with`` among them if ``comment``; that behind a test goes with it.
    """
    first, last = body[0], body[-1]
    if not code.alone(block) or any(isinstance(s, ast.If) and code.text(s).startswith("elif") for s in (block, first)):
        return None
    start, end, text = code.whole_lines([block])
    _, behind, _ = code.whole_lines([last])
    if code.begins_on_head(first):
        at = code.span(first)[0]
        return Edit(code.span(block)[0], end, edited(code.cell.raw[at:behind], at, edits))
    lines = lines_of(text, keepends=True)
    head = header_lines(lines, first.lineno - block.lineno)
    _, sign, remark = head[-1].rstrip("\r\n").partition("#")
    kept = [f"{sign}{remark}"] if sign and comment and isinstance(block, ast.With) else []
    inner = _split(code, start + sum(map(len, head)), behind, code.indent(first), edits)
    indent = code.indent(block)
    return Edit(start, end, "".join(f"{indent}{line}{code.newline}" for line in [*kept, *inner]))


def header_lines(lines: Sequence[str], ahead: int) -> Sequence[str]:
    """The lines of a block's header: those ahead of its body, without the comments that stand between the two."""
    while lines[ahead - 1].lstrip().startswith("#") or not lines[ahead - 1].strip():
        ahead -= 1
    return lines[:ahead]


def _comments_above(code: Code, statement: ast.stmt) -> str:
    """The comment lines right above a statement."""
    above = lines_of(code.cell.raw[: code.line_start(statement)], keepends=True)
    first = len(above)
    while first > 0 and above[first - 1].strip().startswith("#"):
        first -= 1
    return "".join(above[first:])


def _split(code: Code, start: int, end: int, indent: str, edits: Iterable[Edit] = (), blank: bool = False) -> list[str]:
    """A stretch of the text, some edits made, as lines without the indent; those that are blank as empty ones, or not at all."""
    raw = code.cell.raw
    for first, last in _texts(code):
        raw = raw[:first] + raw[first:last].translate(_WITHIN) + raw[last:]
    text = edited(raw[start:end], start, edits)
    lines = [line.removeprefix(indent).translate(_AS_IT_WAS) if line.strip() else "" for line in lines_of(text)]
    return lines if blank else [line for line in lines if line]


def _texts(code: Code) -> Iterator[tuple[int, int]]:
    """Where strings lie, those inside an f-string as a part of it."""
    todo: list[ast.AST] = [code.tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))):
            yield code.span(node)
        else:
            todo += ast.iter_child_nodes(node)
