"""Statements taken out of their place, or put at another depth, as text with their comments."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .editor import Code, Edit, Function


def unused(name: str, code: Code, others: Iterable[str] = ()) -> str:
    """The name, or one like it that neither the cell uses yet nor the others are."""
    taken = {*others} | bound_names(code) | {n.id for n in ast.walk(code.tree) if isinstance(n, ast.Name)}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 100))) if n not in taken)


def bound_names(code: Code) -> set[str]:
    """All that a text gives a name, in whatever scope."""
    stored = (ast.Store, ast.Del)
    found: set[str | None] = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Name):
            found |= {node.id} if isinstance(node.ctx, stored) else set()
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, (*Function, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping):
            found.add(node.rest)
    return {name for name in found if name is not None}


@dataclass(frozen=True)
class Lifted:
    """Statements taken out of a cell, with the comments right above them."""

    text: str
    edits: tuple[Edit, ...]
    indent: str

    @property
    def lines(self) -> list[str]:
        """The lines to insert elsewhere."""
        return [line.removeprefix(self.indent) for line in self.text.splitlines() if line.strip()]


def lift(code: Code, statements: Sequence[ast.stmt]) -> Lifted | None:
    """Takes statements out, to be put elsewhere; None where they share a line with the head of a block.

    Where a blank line parts them from what is above, it goes with them, and stands behind them at the new place. What
    shares a line with others, which stay, gets one of its own.
    """
    if not statements or any(code.begins_on_head(s) for s in statements):
        return None
    raw, text = code.cell.raw, ""
    edits: list[Edit] = []
    shared = [_beside(code, s) for s in statements]
    for statement, beside in zip(statements, shared):
        if not all(any(s is one for one in statements) for s in beside):
            text += code.indent(beside[0]) + code.text(statement) + code.newline
            edits.append(_out_of_line(code, statement, beside, statements))
        elif statement is beside[0]:
            start, end = start_with_comments(code, statement), line_end(code, beside[-1])
            text += raw[start:end] if raw[start:end].endswith("\n") else raw[start:end] + code.newline
            edits.append(Edit(start, end, ""))
    above = raw[: edits[0].start].splitlines(keepends=True)
    whole = edits[0].end == line_end(code, statements[0])
    if whole and above and not above[-1].strip() and statements[0] is not code.block(statements[0])[0]:
        edits[0] = Edit(edits[0].start - len(above[-1]), edits[0].end, "")
        text += code.newline
    return Lifted(text, tuple(edits), code.indent(shared[0][0]))


def _beside(code: Code, statement: ast.stmt) -> list[ast.stmt]:
    """The statement with those of its block that share lines with it."""
    found, block = [statement], code.block(statement)
    at = block.index(statement)
    for other in reversed(block[:at]):
        if (other.end_lineno or other.lineno) < found[0].lineno:
            break
        found.insert(0, other)
    for other in block[at + 1 :]:
        if other.lineno > (found[-1].end_lineno or found[-1].lineno):
            break
        found.append(other)
    return found


def _out_of_line(code: Code, statement: ast.stmt, beside: list[ast.stmt], gone: Sequence[ast.stmt]) -> Edit:
    """Takes one of several statements out of their line, with the semicolon behind it; that before it, where all behind
    it go as well.
    """
    at, (start, end) = beside.index(statement), code.span(statement)
    behind = beside[at + 1 :]
    if all(any(s is one for one in gone) for s in behind):
        return Edit(code.span(beside[at - 1])[1], end, "")
    return Edit(start, code.span(behind[0])[0], "")


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


def unwrapped(code: Code, block: ast.stmt, body: list[ast.stmt]) -> Edit | None:
    """The lines of a block's body, or of one of its branches, in its place; None where they cannot be moved.

    Comments stay, the one behind the header of a ``with`` among them; that behind a test goes with it.
    """
    first, last = body[0], body[-1]
    if not code.alone(block) or any(isinstance(s, ast.If) and code.text(s).startswith("elif") for s in (block, first)):
        return None
    start, end, text = code.whole_lines([block])
    if code.begins_on_head(first):
        begin = code.span(block)[0]
        return Edit(begin, end, code.cell.raw[code.span(first)[0] : line_end(code, last)])
    if any(_spans_lines(n) for s in body for n in ast.walk(s)):
        return None
    indent, lines = code.indent(block), text.splitlines(keepends=True)
    head = first.lineno - block.lineno - 1
    while lines[head].lstrip().startswith("#") or not lines[head].strip():
        head -= 1
    _, sign, comment = lines[head].partition("#")
    kept = f"{indent}{sign}{comment}" if sign and isinstance(block, ast.With) else ""
    inner = "".join(lines[head + 1 : (last.end_lineno or last.lineno) - block.lineno + 1])
    return Edit(start, end, kept + _indented(inner, code.indent(first), indent))


def at_depth(code: Code, statements: list[ast.stmt], indent: str) -> str | None:
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
