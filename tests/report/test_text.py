from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len

from inplace_magic.diagnosis import Diagnosis
from inplace_magic.report import text
from tests.report import samples

_CODES = re.compile(r"\x1b\[[0-9;]*m")


def _lines(diagnosis: Diagnosis, width: int) -> list[str]:
    return text.render(diagnosis, width=width, color=False).split("\n")


@pytest.mark.parametrize("width", [24, 40, 61, 80, 100, 120, 300])
@pytest.mark.parametrize("name", samples.ALL)
def test_no_line_is_wider_than_the_page(name: str, width: int) -> None:
    assert [line for line in _lines(samples.ALL[name], width) if cell_len(line) > width] == []


@pytest.mark.parametrize("width", [0, 1, 10])
def test_an_absurd_width_is_drawn_all_the_same(width: int) -> None:
    assert "changed here" in text.render(samples.MODIFIED, width=width, color=False)


@pytest.mark.parametrize("name", samples.ALL)
def test_without_colour_there_is_no_escape_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    drawn = text.render(samples.ALL[name], width=80, color=False)
    assert "\x1b" not in drawn


@pytest.mark.parametrize("name", samples.ALL)
def test_colour_adds_nothing_but_colour(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    plain = text.render(samples.ALL[name], width=80, color=False)
    colored = text.render(samples.ALL[name], width=80, color=True)
    assert colored != plain
    assert [line.rstrip() for line in _CODES.sub("", colored).split("\n")] == plain.split("\n")


def test_wide_characters_align() -> None:
    words = ("saved here", "changed here", "needed here")
    rows = [(line, word) for line in _lines(samples.WIDE, 100) for word in words if word in line]
    assert [cell_len(line[: line.index(word)]) for line, word in rows] == [cell_len(rows[0][0].split("saved")[0])] * 3


def test_what_steers_a_terminal_is_shown_escaped() -> None:
    drawn = text.render(samples.HOSTILE, width=120, color=False)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ud800-\udfff]", drawn)
    assert r"\x1b]0;owned\x07" in drawn
    assert r"\u202e" in drawn
    assert r"\ud800" in drawn
    drawn.encode()


def test_markup_and_emoji_codes_stay_text() -> None:
    assert "[bold]markup[/bold] :smile:" in text.render(samples.HOSTILE, width=120, color=True)


def test_the_difference_of_long_lines_is_not_cut_away() -> None:
    old, new = [line for line in _lines(samples.HOSTILE, 80) if line.startswith(("  - ", "  + "))][:2]
    assert old[4:] != new[4:]


def test_the_other_command_is_named() -> None:
    drawn = text.render(samples.SECOND_BACKWARD, width=100, color=False, accept="--fix")
    assert "Accept with --fix     the others: --fix 2, --fix 3" in drawn
    assert "%autograd_fix" not in drawn


def test_without_a_command_none_is_named() -> None:
    assert "Accept" not in text.render(samples.MODIFIED, width=100, color=False, accept="")


def test_without_a_fix_nothing_is_to_be_accepted() -> None:
    drawn = text.render(samples.UNKNOWN, width=100, color=False)
    assert "no fix was proved" in drawn
    assert "Accept" not in drawn


def test_a_diagnosis_without_anything_is_drawn() -> None:
    drawn = text.render(Diagnosis("modified", "Broken", None), width=60, color=False)
    assert drawn.split("\n")[0].startswith("Broken")


def test_the_first_fix_is_shown_in_full_and_the_others_by_title() -> None:
    drawn = text.render(samples.MODIFIED, width=100, color=False)
    assert "+     x = x + feature16" in drawn
    assert "clone what relu gives" in drawn
    assert "F.relu(x).clone()" not in drawn


def test_a_long_headline_pushes_the_time_to_the_next_line() -> None:
    drawn = _lines(replace(samples.LEAF, headline="word " * 12), 60)
    assert drawn[1] == "0.1 s, your session is as it was"


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_drawing_for_the_first_time_leaves_random_alone() -> None:
    code = """
import random, sys
from inplace_magic.report import load_rich, text
from inplace_magic.diagnosis import Diagnosis
random.seed(3)
state = random.getstate()
assert "rich" not in sys.modules
text.render(Diagnosis("modified", "Broken", 1), width=80, color=True)
assert "rich.console" in sys.modules
print(random.getstate() == state)
"""
    assert _python(code) == "True"


def test_loading_rich_leaves_random_alone() -> None:
    code = """
import random
from inplace_magic.report.load_rich import load_rich
random.seed(3)
state = random.getstate()
rich = load_rich()
print(random.getstate() == state, rich.console.Console.__name__, rich.cells.cell_len("a"), rich.text.Text.__name__)
"""
    assert _python(code) == "True Console 1 Text"


@pytest.mark.parametrize("module", ["text", "html", "bundle"])
def test_importing_the_report_imports_neither_rich_nor_torch(module: str) -> None:
    code = f"import sys, inplace_magic.report.{module}; print({{'rich', 'torch', 'pygments'}} & set(sys.modules))"
    assert _python(code) == "set()"
