"""A rewrite that has not been tried, as a frozen record. It says nothing about gradients: they are measured."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from ..diagnosis import LiveChange
from ..message import kind_of
from ..source.editor import Code, Edit

Reading = Literal["tracked", "update"]
Change = tuple[Code, Edit]
Part = TypeVar("Part")
_LOCAL = frozenset({
    "clone_alias", "clone_at_save", "clone_before_write", "fast_weights", "hook", "index_views", "module_flag",
    "no_grad", "out_of_place",
})  # fmt: skip


@dataclass(frozen=True)
class Proposal:
    """``form``: its row in ``search.COSTS``, ``rule: variant``. ``edits``: what is written where, in cells and files.

    ``live`` are changes of objects that exist already; where they make a cell's rerun superfluous, the cell is named
    in ``spared``. ``reading`` tells what a refused write into a leaf is taken to mean: part of the graph, or an update.
    ``lossless``: worth nothing unless the gradients stay the same, as where the write may have been meant for more than what
    the rewrite gives it to. ``meant``: the code can hardly have meant what it says, and now says what it was meant to: two
    names that it uses side by side get a value each, where they had one between them; one loss is sent back once; a flag that
    saves memory does nothing else. ``begins``: names that are to have another value afterwards, which is what the rewrite is
    for. ``kept``: a cut where a running value is kept, from which the same iteration may read it as well.
    ``idle``: what gives no gradient to anything any more, although it is still computed. ``lessens``: a cut by which a loss
    may train less than it says, where its form does not tell that. ``as_before``: so many backwards, the first ones, have to
    give what they gave.
    """

    title: str
    why: str
    form: str
    edits: tuple[Change, ...]
    live: tuple[LiveChange, ...] = ()
    spared: tuple[int, ...] = ()
    reading: Reading = "tracked"
    lossless: bool = False
    meant: bool = False
    begins: frozenset[str] = frozenset()
    kept: bool = False
    idle: str = ""
    lessens: bool = False
    as_before: int = 0

    @cached_property
    def texts(self) -> dict[int, str]:
        """Execution count to the whole new text. Raises Overlap where two edits meet."""
        codes: dict[int, tuple[Code, dict[Edit, None]]] = {}
        for code, edit in self.edits:
            codes.setdefault(code.cell.number, (code, {}))[1][edit] = None
        return {number: code.apply(*edits) for number, (code, edits) in codes.items()}

    def with_texts(self, texts: Mapping[int, str]) -> Proposal:
        """The same change with other texts for its cells."""
        codes = {code.cell.number: code for code, _ in self.edits if code.cell.number in texts}
        whole = ((code, Edit(0, len(code.cell.raw), texts[number])) for number, code in codes.items())
        return replace(self, edits=tuple(whole))

    @property
    def rule(self) -> str:
        return self.form.partition(":")[0]

    @property
    def local(self) -> bool:
        """Whether it mends the line of a write or of a save and leaves the flow of the program alone.

        A fix of several steps that began with one of them goes on with them.
        """
        return self.rule in _LOCAL


def in_one_text(code: Code, edits: Sequence[Edit], title: str | ast.AST, why: str, form: str, **facts: Any) -> Proposal:
    """The edits of one cell or file, as a proposal whose title has one line: a text, or that of a node as it becomes."""
    text = title if isinstance(title, str) else code.edited(title, edits)
    shown = text if kind_of(text) else " ".join(text.split())
    return Proposal(shown, why, form, tuple((code, edit) for edit in edits), **facts)


def each_then_all(parts: list[Part]) -> list[list[Part]]:
    """What several proposals change: one of the parts each, then all of them together."""
    return [*([one] for one in parts), *([parts] if len(parts) > 1 else [])]
