"""Lines of styled text, measured in terminal cells, so that wide characters align. rich is loaded to draw them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .escape import code_spans
from .load_rich import load_rich

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Where a line of code may go on in the next row: behind these.
_CODE_BREAK = re.compile(r"[ ,(\[{=+*/|&:.-]+")


class Canvas:
    """A page of a width. Nothing that is added is ever cut, but for what ``fit`` is asked to cut."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._rich = load_rich()
        self._lines: list[Text] = []
        self._measure = self._new_console(color=False)

    def text(self, plain: str = "", style: str = "") -> Text:
        made: Text = self._rich.text.Text()
        # A span, not the base style of the whole, which would run on into what is added behind it.
        return made.append(plain, style or None)

    def prose(self, plain: str, style: str = "") -> Text:
        made = self.text()
        for is_code, part in code_spans(plain):
            made.append(f"`{part}`" if is_code else part, "cyan" if is_code else style or None)
        return made

    def cells(self, text: Text | str) -> int:
        return int(self._rich.cells.cell_len(text if isinstance(text, str) else text.plain))

    def fit(self, plain: str, most: int) -> str:
        """The beginning of a text, in at most so many cells."""
        if self.cells(plain) <= most:
            return plain
        while plain and self.cells(plain) > most - 1:
            plain = plain[:-1]
        return plain + "…"

    def fit_end(self, plain: str, most: int) -> str:
        """The end of a text; a label keeps the file and the line."""
        if self.cells(plain) <= most:
            return plain
        while plain and self.cells(plain) > most - 1:
            plain = plain[1:]
        return "…" + plain

    def window(self, plain: str, start: int, end: int, most: int) -> tuple[str, int]:
        """The part of a line around a stretch of it, in at most so many cells, and by how many characters it moved left."""
        if start == 0 or self.cells(plain[:end]) <= most - 1:
            return self.fit(plain, most), 0
        room = most - 2  # for the two ellipses
        first = start
        while first > 0 and self.cells(plain[first - 1 : end]) <= room - min(8, room // 4):
            first -= 1
        moved = first - 1
        return self.fit("…" + plain[first:], most), moved

    def wrap(self, text: Text, width: int) -> list[Text]:
        lines = list(text.wrap(self._measure, max(width, 8))) or [text]
        for line in lines:
            line.rstrip()
        return lines

    def code_rows(self, plain: str, width: int) -> Iterator[str]:
        """A line of code in rows: broken behind an operator or a bracket, and never in a name if it can be helped."""
        rest, indent = plain, " " * (len(plain) - len(plain.lstrip(" ")) + 4)
        while self.cells(rest) > width:
            most = len(self.fit(rest, width + 1)) - 1 or 1
            while self.cells(rest[:most]) > width:
                most -= 1
            ends = [found.end() for found in _CODE_BREAK.finditer(rest, 0, most)]
            at = ends[-1] if ends and rest[: ends[-1]].strip() and ends[-1] > width // 3 else most
            yield rest[:at].rstrip()
            rest = (indent if len(indent) < width // 2 else "    ") + rest[at:].lstrip()
        yield rest

    def add(self, text: Text, indent: int = 0) -> None:
        line = self.text(" " * indent) + text
        line.rstrip()
        self._lines.append(line)

    def flow(self, text: Text, indent: int = 0, *, hang: int = 0) -> None:
        """Add ``text`` wrapped to the page; ``hang`` indents every line but the first."""
        if not text.plain:
            return
        first, *rest = self.wrap(text, self.width - indent)
        self.add(first, indent)
        if rest:
            behind = text[len(first.plain) :]
            while behind.plain[:1] == " ":
                behind = behind[1:]
            for line in self.wrap(behind, self.width - indent - hang):
                self.add(line, indent + hang)

    def blank(self) -> None:
        if self._lines and self._lines[-1].plain:
            self._lines.append(self.text())

    def draw(self, color: bool) -> str:
        drawn = io.StringIO()
        console = self._new_console(color=color, file=drawn)
        for line in self._lines:
            console.print(line, soft_wrap=True)
        return drawn.getvalue().rstrip("\n")

    def _new_console(self, *, color: bool, file: io.StringIO | None = None) -> Console:
        console: Console = self._rich.console.Console(
            file=file or io.StringIO(),
            width=self.width,
            color_system="standard" if color else None,
            force_terminal=color,
            force_jupyter=False,
            force_interactive=False,
            no_color=not color,
            legacy_windows=False,
            # The environment's own wishes are the caller's to weigh.
            _environ={},
        )
        return console
