"""What a stream's encoding lacks is replaced by what looks alike; nothing that is printed raises."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len

from inplace_magic.report import text
from inplace_magic.report.printing import say, showable
from tests.report import samples


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gb18030"])
def test_what_can_be_shown_is_as_it_was(encoding: str) -> None:
    said = "12 │ x += 1  # é 中文 … \t🔥"
    assert showable(said, stream(encoding)) == said


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "gbk", "shift_jis"])
@pytest.mark.parametrize("name", samples.ALL)
def test_carets_stay_below_what_they_mark(name: str, encoding: str) -> None:
    drawn = text.render(samples.ALL[name], width=80, color=False)
    shown = showable(drawn, stream(encoding))
    assert shown.encode(encoding).decode(encoding) == shown
    for before, after in zip(drawn.split("\n"), shown.split("\n"), strict=True):
        assert before.isascii() <= (before == after)
        assert len(before) == len(after)
        assert before.find("^") == after.find("^") and cell_len(after) <= 80


def test_lines_are_drawn_with_ascii_where_there_is_nothing_else() -> None:
    assert showable("12 │ fix · one, … 中", stream("ascii")) == "12 | fix - one, ~ ?"


def test_a_stream_of_an_unknown_or_no_encoding_gets_the_text_as_it_is() -> None:
    class Unknown(io.StringIO):
        encoding = "no such"

    for out in (Unknown(), io.StringIO()):
        say("│ 中", out)
        assert out.getvalue() == "│ 中\n"


def test_a_stream_that_can_only_write_is_enough() -> None:
    class Bare:
        said = ""

        def write(self, text: str) -> None:
            self.said += text

    out = Bare()
    say("│", out, end="")  # type: ignore[arg-type]
    assert out.said == "│"
