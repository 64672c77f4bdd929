"""A cell's text together with its syntax tree: what stands at a place is found, then edited without touching the rest."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .document import Document
from .lines import lines_of
from .location import SourceRange
from .modules import imported, note_modules

Loop = (ast.For, ast.While, ast.AsyncFor)
Function = (ast.FunctionDef, ast.AsyncFunctionDef)
CONSTRUCTORS = ("__init__", "__post_init__")
Def = ast.FunctionDef | ast.AsyncFunctionDef
_BREAK = "\ue002"  # around new lines within a line, until all edits are made


class Overlap(ValueError):
    """Two edits meet in the same place, so that this rewrite cannot be written."""


@dataclass(frozen=True)
class Edit:
    """A stretch of the text, as character offsets, and what to put there."""

    start: int
    end: int
    text: str


class Code:
    """One cell, parsed. All nodes handed in must come from ``tree``."""

    def __init__(self, cell: Document) -> None:
        if cell.tree is None:
            raise ValueError(f"In[{cell.number}] cannot be parsed")
        self.cell = cell
        self.tree = cell.tree
        self.modules = {**imported(self.tree), **cell.modules}
        note_modules(self.tree, self.modules)
        self.newline = "\r\n" if "\r\n" in cell.raw else "\n"
        self._lines = lines_of(cell.raw, keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._parents: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    # ---- finding ------------------------------------------------------------------------------------------------

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the node's parent outwards."""
        while (found := self._parents.get(node)) is not None:
            yield found
            node = found

    def function(self, node: ast.AST) -> Def | None:
        """The function definition around the node, or None at the cell's own level."""
        return next((above for above in self.parents(node) if isinstance(above, Function)), None)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that the node belongs to, or the node itself."""
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return node

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that the statement stands in."""
        above = self._parents[statement]
        for field in ("body", "orelse", "finalbody", "handlers"):
            statements = getattr(above, field, None)
            if isinstance(statements, list) and statement in statements:
                return statements
        raise ValueError("the statement stands in no block")

    def following(self, statement: ast.stmt) -> list[ast.stmt]:
        """What stands behind a statement in its block."""
        block = self.block(statement)
        return block[block.index(statement) + 1 :]

    def preceding(self, statement: ast.stmt) -> list[ast.stmt]:
        """What stands before a statement in its block."""
        block = self.block(statement)
        return block[: block.index(statement)]

    def at(self, spot: SourceRange) -> ast.AST | None:
        """The node at exactly this stretch of source, or the innermost statement of that line."""
        if spot.column is not None and spot.end_line is not None:
            for node in ast.walk(self.tree):
                if (
                    getattr(node, "lineno", None) == spot.line
                    and node.col_offset == spot.column  # type: ignore[attr-defined]
                    and node.end_lineno == spot.end_line  # type: ignore[attr-defined]
                    and node.end_col_offset == spot.end_column  # type: ignore[attr-defined]
                    and not isinstance(node, ast.Module)
                ):
                    return node
        return self.statement_at(spot.line, spot.column)

    def statement_at(self, line: int, column: int | None = None) -> ast.stmt | None:
        """The innermost statement whose lines hold ``line`` (and, of several on one line, the column)."""
        found: ast.stmt | None = None
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
                continue
            if column is not None and not _holds(node, line, column):
                continue
            if found is None or _size(node) <= _size(found):
                found = node
        return found

    def text(self, node: ast.AST) -> str:
        """The node's source, byte for byte."""
        start, end = self.span(node)
        return self.cell.raw[start:end]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The node's source as character offsets; decorators count as part of a definition."""
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        for decorator in getattr(node, "decorator_list", ()):
            if decorator.lineno < line:
                line, column = decorator.lineno, max(decorator.col_offset - 1, 0)
        return self._offset(line, column), self._offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _offset(self, line: int, column: int) -> int:
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column].decode(errors="ignore"))

    def indent(self, statement: ast.stmt) -> str:
        """The white space in front of the statement's line."""
        line = self._lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def line_start(self, statement: ast.stmt) -> int:
        """Where the statement's first line begins, that of its first decorator."""
        return self.whole_lines([statement])[0]

    def is_whole(self, edit: Edit) -> bool:
        """Whether an edit replaces whole lines."""
        return edit.start < edit.end and edit.start in self._starts and edit.end in self._starts

    def begins_line(self, statement: ast.stmt) -> bool:
        """Whether nothing stands before the statement on its line."""
        start, _ = self.span(statement)
        return not self.cell.raw[self._starts[statement.lineno - 1] : start].strip()

    def alone(self, statement: ast.stmt) -> bool:
        """Whether nothing else but a comment shares the statement's lines."""
        _, end = self.span(statement)
        after = self.cell.raw[end : self._starts[statement.end_lineno or statement.lineno]].strip()
        return self.begins_line(statement) and (not after or after.startswith("#"))

    # ---- editing ------------------------------------------------------------------------------------------------

    def replace(self, node: ast.AST, text: str) -> Edit:
        start, end = self.span(node)
        return Edit(start, end, text)

    def behind(self, node: ast.AST, text: str) -> Edit:
        """A call or an attribute behind an expression, which goes into parentheses where it needs them and has none yet."""
        around = self._parentheses(node)
        if around is None:
            return self.replace(node, atom(self, node) + text)
        start, end = around
        return Edit(start, end, self.cell.raw[start:end] + text)

    def _parentheses(self, node: ast.AST) -> tuple[int, int] | None:
        """Where parentheses around a node alone begin and end; None where it has none, or those of a call."""
        (start, end), raw = self.span(node), self.cell.raw
        before, after = raw[:start].rstrip(), raw[end:].lstrip()
        if not before.endswith("(") or not after.startswith(")") or "\n" in raw[len(before) : start]:
            return None
        word = re.search(r"[\w)\]]*$", before[:-1].rstrip())
        if word is not None and word[0] and not keyword.iskeyword(word[0]):
            return None
        return len(before) - 1, len(raw) - len(after) + 1

    def instead(self, statement: ast.stmt, *lines: str) -> Edit:
        """New statements in the place of one that has its lines to itself, as deep as it is; a comment behind it goes."""
        start, end, text = self.whole_lines([statement])
        new = "".join(f"{self.indent(statement)}{line}{self.newline}" for line in lines)
        return Edit(start, end, new if text.endswith(("\n", "\r")) else new.removesuffix(self.newline))

    def insert_before(self, statement: ast.stmt, *lines: str) -> Edit:
        """New statements in front of one, as deep as it is."""
        if self.begins_line(statement):
            at = self.line_start(statement)
            indent = self.indent(statement)
            return Edit(at, at, "".join(f"{indent}{line}{self.newline}" for line in lines))
        start, _ = self.span(statement)
        return Edit(start, start, self._lines_apart(statement, lines) or "".join(f"{_bare(line)}; " for line in lines))

    def insert_after(self, statement: ast.stmt, *lines: str) -> Edit:
        """New statements behind one, as deep as it is."""
        _, end = self.span(statement)
        if not self._shares_line_after(statement) and not self.begins_on_head(statement):
            at = self._starts[statement.end_lineno or statement.lineno]
            indent = self.indent(statement)
            text = "".join(f"{indent}{line}".rstrip(" \t") + self.newline for line in lines)
            last = self._lines[-1] if self._lines else ""
            if at == self._starts[-1] and not last.endswith(("\n", "\r")):
                text = self.newline + text.removesuffix(self.newline)
            return Edit(at, at, text)
        return Edit(end, end, self._lines_apart(statement, lines) or "".join(f"; {_bare(line)}" for line in lines))

    def _lines_apart(self, statement: ast.stmt, lines: tuple[str, ...]) -> str:
        """New statements to be put between those of one line, which they part; nothing for a single
        simple one with no comment, nor on the line of a block's head."""
        single = len(lines) == 1 and not hasattr(ast.parse(lines[0]).body[0], "body") and _bare(lines[0]) == lines[0]
        if single or self.begins_on_head(statement):
            return ""
        indent = self.indent(statement)
        inner = self.newline.join(f"{indent}{line}" for line in lines)
        return f"{_BREAK}{inner}{_BREAK}{self.newline}{indent}"

    def delete(self, statement: ast.stmt, *others: ast.stmt) -> Edit:
        """Takes a statement out, its line with it (a comment behind it too) if nothing else stands there.

        ``others``: what is taken out as well. Where nothing is left of a block, it says ``pass``, as does a cell below a
        magic, which IPython refuses to run with no body.
        """
        beside, gone = self._beside(statement), {statement, *others}
        kept = [one for one in beside if one not in gone]
        at, (start, end) = beside.index(statement), self.span(statement)
        needed = not isinstance(self.parent(statement), ast.Module) or self.cell.magic is not None
        empty = needed and gone.issuperset(self.block(statement))
        if kept or self.begins_on_head(statement):
            if any(one in kept for one in beside[at + 1 :]):
                return Edit(start, self.span(beside[at + 1])[0], "")
            return Edit(self.span(beside[at - 1])[1] if at else start, end, "" if at else "pass")
        if at:
            return Edit(end, end, "")  # its line goes with the first one there
        start, end, _ = self.whole_lines(beside)
        first = empty and statement is self.block(statement)[0]
        return Edit(start, end, f"{self.indent(statement)}pass{self.newline}" if first else "")

    def _beside(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statement with those of its block that share lines with it."""
        block = self.block(statement)
        first = last = block.index(statement)
        while first and (block[first - 1].end_lineno or 0) >= block[first].lineno:
            first -= 1
        while last + 1 < len(block) and block[last + 1].lineno <= (block[last].end_lineno or 0):
            last += 1
        return block[first : last + 1]

    def without_decorator(self, decorator: ast.expr) -> Edit:
        """Takes a decorator out, its lines with it."""
        end = self._starts[decorator.end_lineno or decorator.lineno]
        return Edit(self._starts[decorator.lineno - 1], end, "")

    def begins_on_head(self, statement: ast.stmt) -> bool:
        """Whether a statement stands on the line of the loop, branch or function that it belongs to."""
        first = self.block(statement)[0]
        return first.lineno == statement.lineno and not self.begins_line(first)

    def _shares_line_after(self, statement: ast.stmt) -> bool:
        _, end = self.span(statement)
        rest = self.cell.raw[end : self._starts[statement.end_lineno or statement.lineno]].strip()
        return rest.startswith(";") and bool(rest.strip("; ")) and not rest.strip("; ").startswith("#")

    def without_argument(self, node: ast.AST) -> Edit:
        """Takes an argument out of a call, with the comma before it, or the one behind it where it comes first or a comment
        stands before it."""
        start, end = self.span(node)
        raw, call = self.cell.raw, self._parents[node]
        ends = [self.span(one)[1] for one in (*call.args, *call.keywords)]  # type: ignore[attr-defined]
        last = max((one for one in ends if one <= start), default=start)
        before, comma, _ = raw[last:start].partition(",")
        if comma and "#" not in raw[last:start]:
            return Edit(last + len(before), end, "")
        behind = re.match(r"\s*,\s*", raw[end:])
        return Edit(start, end + (behind.end() if behind else 0), "")

    def add_argument(self, call: ast.Call, argument: str) -> Edit:
        """One more argument at the end of a call."""
        end = self.span(call)[1] - 1
        last = max((self.span(node)[1] for node in (*call.args, *call.keywords)), default=end)
        gap = re.sub(r"#.*", "", self.cell.raw[last:end]).strip()
        if not call.args and not call.keywords:
            return Edit(end, end, argument)
        if gap.endswith(",") and "\n" in self.cell.raw[last:end]:
            at = self.cell.raw.index(",", last) + 1
            return Edit(at, at, f" {argument},")
        if gap.endswith(","):
            return Edit(end, end, f" {argument}")
        at = end if gap else last  # behind what parentheses around the last argument are left
        return Edit(at, at, f", {argument}")

    def edited(self, node: ast.AST, edits: Iterable[Edit]) -> str:
        """The node's text with those of the edits made that lie inside of it."""
        return edited(self.text(node), self.span(node)[0], edits)

    def whole_lines(self, statements: list[ast.stmt]) -> tuple[int, int, str]:
        """Where the lines of neighbouring statements begin and end, and their text."""
        top, bottom = statements[0], statements[-1]
        first = min([top.lineno, *(d.lineno for d in getattr(top, "decorator_list", ()))])
        start, end = self._starts[first - 1], self._starts[bottom.end_lineno or bottom.lineno]
        return start, end, self.cell.raw[start:end]

    @property
    def indent_step(self) -> str:
        """By how much this cell's text goes in; four spaces where it never does."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body and body[0].lineno != node.lineno:
                outer, inner = self.indent(node), self.indent(body[0])
                if inner.startswith(outer) and len(inner) > len(outer):
                    return inner[len(outer) :]
        return "    "

    def apply(self, *edits: Edit) -> str:
        """The cell's text with the edits made. Raises Overlap if two of them meet in the same place.

        It ends as the cell does: a cell of a notebook has no newline at its end.
        """
        text = self.cell.raw
        last = len(text) + 1
        if any(edit.start < edit.end == len(text) and not edit.text and edit.start in self._starts for edit in edits):
            edits = tuple(  # behind what is left there stands a newline already
                Edit(e.start, e.end, e.text.removeprefix(self.newline)) if e.start == e.end == len(text) else e
                for e in edits
            )
        edits = tuple(edit for edit in edits if edit.text or edit.start < edit.end)
        for _, edit in sorted(enumerate(edits), key=lambda pair: (pair[1].start, pair[1].end, pair[0]), reverse=True):
            if edit.end > last:
                raise Overlap("edits overlap")
            text = text[: edit.start] + edit.text + text[edit.end :]
            last = edit.start
        text = _parted(text, self.newline)
        return text if self.cell.raw.endswith(("\n", "\r")) else text.removesuffix(self.newline)


def _bare(line: str) -> str:
    """A statement without the comment behind it, which would take what else stands on its line; a part of a block as it is."""
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        return line
    *above, last = lines_of(line, keepends=True)[: statement.end_lineno]
    return "".join(above) + last.encode()[: statement.end_col_offset].decode()


def _parted(text: str, newline: str) -> str:
    """The text where a line is broken around new ones: no semicolon stays ahead of a break or behind it, and no empty line."""
    if _BREAK not in text:
        return text
    text = re.sub(rf"{_BREAK}\r?\n[ \t;]*(?=[\r\n]|\Z)", "", text)
    text = re.sub(rf"{_BREAK}(\r?\n[ \t]*);?[ \t]*", r"\1", text)
    text = re.sub(rf"(?m)^[ \t]*{_BREAK}", "", text)
    return re.sub(rf"[ \t;]*{_BREAK}", newline, text)


def edited(text: str, start: int, edits: Iterable[Edit]) -> str:
    """A stretch of a cell's text, which begins at ``start``, with those of the edits made that lie inside of it."""
    end = start + len(text)
    for edit in sorted((e for e in edits if start <= e.start and e.end <= end), key=lambda e: -e.start):
        text = text[: edit.start - start] + edit.text + text[edit.end - start :]
    return text


def _holds(node: ast.stmt, line: int, column: int) -> bool:
    after_start = (line, column) >= (node.lineno, node.col_offset)
    before_end = (line, column) < (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return after_start and before_end


def _size(node: ast.stmt) -> tuple[int, int]:
    lines = (node.end_lineno or node.lineno) - node.lineno
    return lines, (node.end_col_offset or 0) - node.col_offset if lines == 0 else 0


def names_loaded(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are read anywhere below the nodes: also by ``x += 1``."""
    found = [node for top in nodes for node in ast.walk(top)]
    read = {node.id for node in found if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    return read | {n.target.id for n in found if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}


def names_bound(nodes: Iterable[ast.stmt]) -> set[str]:
    """Names that statements bind at their own level: assignments, loops, with, imports, definitions."""
    bound: set[str] = set()
    todo: list[ast.AST] = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, (*Function, ast.ClassDef)):
            bound.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        todo.extend(ast.iter_child_nodes(node))
    return bound


def dotted(node: ast.AST | None) -> str | None:
    """``a.b.c`` for a chain of names, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return None if left is None else f"{left}.{node.attr}"
    return None


_ATOMS = (
    ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.Set, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.JoinedStr,
)  # fmt: skip


def atom(code: Code, node: ast.AST) -> str:
    """The node's source, in parentheses unless it binds as tightly as a name."""
    text = code.text(node)
    if isinstance(node, _ATOMS) or (isinstance(node, ast.Tuple) and not _is_open(code, node)):
        return text
    return f"({text})"


def as_item(code: Code, node: ast.AST) -> str:
    """The node's source as one item of a tuple."""
    return f"({code.text(node)})" if _is_open(code, node) else code.text(node)


def _is_open(code: Code, node: ast.AST) -> bool:
    """Whether a node is a tuple without parentheses of its own: ``(a, b), c``."""
    return isinstance(node, ast.Tuple) and bool(node.elts) and code.span(node)[0] == code.span(node.elts[0])[0]
