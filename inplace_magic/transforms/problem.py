"""One conflict to be mended, with what is known around it: evidence and text, never the shell."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from ..record.evidence import Crossing, Evidence, RecordedConflict
from ..source.bindings import Binding, bindings, bound, parameters
from ..source.blocks import at_top
from ..source.editor import Code, names_bound
from ..source.location import SourceRange
from ..source.names import unused
from ..source.sources import Sources

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Frame:
    """One of the user's frames at an event: the node that ran, in its text."""

    code: Code
    node: ast.AST
    spot: SourceRange

    @property
    def statement(self) -> ast.stmt:
        return self.code.statement(self.node)

    @property
    def expression(self) -> ast.AST:
        """What ran, without the statement that only keeps, or returns, what it gives."""
        kept = isinstance(self.node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return))
        return getattr(self.node, "value", None) or self.node if kept else self.node


def shared(first: list[Frame], second: list[Frame]) -> list[tuple[Frame, Frame]]:
    """The frames in which two stacks, outermost frame first, still run the same statements."""
    return [*itertools.takewhile(lambda pair: pair[0].statement is pair[1].statement, zip(first, second))]


def parted(first: list[Frame], second: list[Frame]) -> tuple[list[Frame], list[Frame]]:
    """What is left of the two from there."""
    depth = len(shared(first, second))
    return first[depth:], second[depth:]


def member(path: str) -> str:
    """``.attribute`` for a path that ends with one; else the path."""
    return "".join(path.rpartition(".")[1:])


@dataclass(frozen=True)
class Problem:
    """One conflict to be mended, and what is known around it.

    ``sources`` hold the texts to edit (those of an earlier fix, when a fix is being extended). ``raised`` is the
    user's part of the traceback, innermost first; ``cell`` the failing cell. ``extends``: a fix is being extended.
    """

    family: str
    clash: RecordedConflict
    evidence: Evidence
    sources: Sources
    cell: int
    raised: tuple[SourceRange, ...] = ()
    extends: bool = False

    def code(self, cell: int | None) -> Code | None:
        """The parsed text of a cell, or None where there is none (a file, a cell that does not parse)."""
        return self.sources.code(cell)

    def codes(self) -> Iterator[Code]:
        """The parsed texts up to the failing cell, the latest first."""
        for number in sorted(self.sources.cells, reverse=True):
            if number <= self.cell and (code := self.code(number)) is not None:
                yield code

    def nodes(self, kind: type[Node]) -> Iterator[tuple[Code, Node]]:
        """What is of a kind in these texts."""
        return ((code, n) for code in self.codes() for n in ast.walk(code.tree) if isinstance(n, kind))

    def bindings(self, code: Code, name: str, near: ast.stmt) -> Iterator[tuple[Code, Binding]]:
        """Where a name gets its value: in the same function; what has none there, at the top of its cell and of those before it."""
        own, function = bindings(code, name, near), code.function(near)
        yield from ((code, one) for one in own)
        if own or name in parameters(function):
            return
        for other in (one for one in self.codes() if one.cell.number < code.cell.number + (function is not None)):
            for s in reversed([*at_top(other.tree.body)]):
                yield from ((other, Binding(s, value)) for key, value in bound(other, s) if key == name)

    @cached_property
    def names(self) -> set[str]:
        """The names that these texts bind at their top."""
        return names_bound([s for one in self.codes() for s in one.tree.body])

    def unused(self, name: str, code: Code, at: ast.AST) -> str:
        """The name, or one like it that is free where a node stands: at the top, that no text has given anything."""
        return unused(name, code, self.names if code.function(at) is None else ())

    @cached_property
    def none_at_first(self) -> frozenset[str]:
        """What is ``None`` before the recorded run begins, and is something else in the session that it begins from.

        Names of the cells that it leaves out, and ``.attribute`` of any object; nothing in a run from the top, which
        meets them as they are at first.
        """
        return frozenset(
            member(path)
            for code, statement in (self.nodes(ast.stmt) if not self.evidence.fresh else ())
            for path, value in bound(code, statement)
            if isinstance(value, ast.Constant) and value.value is None
            if "." in path or (code.cell.number not in self.evidence.cells and code.function(statement) is None)
        )

    def spared(self, code: Code) -> tuple[int, ...]:
        """The cell whose rerun a change of live objects makes superfluous; the failing cell runs in any case."""
        return () if code.cell.number == self.cell else (code.cell.number,)

    def frame(self, spot: SourceRange) -> Frame | None:
        """What stands at a spot, or None where the text is not known."""
        code = self.code(spot.cell)
        node = code.at(spot) if code is not None else None
        return None if code is None or node is None else Frame(code, node, spot)

    def frames(self, stack: Iterable[SourceRange]) -> list[Frame]:
        """The frames of a stack whose texts are known, outermost first."""
        return [frame for spot in stack if (frame := self.frame(spot)) is not None][::-1]

    @property
    def write_stack(self) -> tuple[SourceRange, ...]:
        return self.clash.write.stack if self.clash.write is not None else ()

    @property
    def save_stack(self) -> tuple[SourceRange, ...]:
        return self.clash.save.stack if self.clash.save is not None else ()

    @property
    def need_stack(self) -> tuple[SourceRange, ...]:
        return self.clash.need.stack if self.clash.need is not None else self.raised

    @property
    def ahead(self) -> int:
        """How many backwards had run by the one that needs the tensor; none where no such backward is known."""
        return self.clash.need.index if self.clash.need is not None else 0

    @cached_property
    def wants_given(self) -> bool:
        """Whether a Function's backward wants the value from before a write, behind which its forward has saved it."""
        written = self.write_stack if self.family == "silent" else ()
        alike = (one for one in self.evidence.clashes if one.write is not None and one.write.stack == written)
        return any(one.save is not None and one.write is not None and one.save.clock > one.write.clock for one in alike)

    @property
    def is_followed(self) -> bool:
        """Whether autograd follows the write: its gradients are those of the values, which are others than were meant."""
        return self.clash.write is not None and self.clash.write.how == "aliased"

    @cached_property
    def saved(self) -> list[Frame]:
        """The frames in which the tensor was saved, outermost first."""
        return self.frames(self.save_stack)

    @cached_property
    def needed(self) -> list[Frame]:
        """The frames of the backward that needs it."""
        return self.frames(self.need_stack)

    @cached_property
    def lost(self) -> list[Frame]:
        """The frames of the event by which it was lost: the write, or the backward that freed the graph."""
        return self.frames(self.clash.cause.stack if self.clash.cause is not None else ())

    @cached_property
    def crossing(self) -> Crossing:
        """The edges of every conflict between the same two events: one cut has to meet all of them."""

        def events(clash: RecordedConflict) -> list[tuple[SourceRange, ...]]:
            return [event.stack for event in (clash.cause, clash.need) if event is not None]

        alike = (one for one in self.evidence.clashes if events(one) == events(self.clash))
        same = [one.crossing for one in alike if one.crossing is not None]
        return Crossing(
            over=tuple(dict.fromkeys(edge for one in same for edge in one.over)),
            shared=tuple(dict.fromkeys(edge for one in same for edge in one.shared)),
            stale=tuple(dict.fromkeys(stack for one in same for stack in one.stale)),
            untrained=tuple(dict.fromkeys(edge for one in same for edge in one.untrained)),
            partly=frozenset(path for one in same for path in one.partly),
        )
