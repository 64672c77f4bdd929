"""The report in each medium: what must never appear in it, then golden files of every shape.

INPLACE_MAGIC_WRITE_GOLDEN=1 writes the golden files anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.cells import cell_len

from inplace_magic.diagnosis import Diagnosis
from inplace_magic.report import html, text
from inplace_magic.report.bundle import MIME, bundle

from .samples import ALL, HOSTILE, MODIFIED

GOLDEN = Path(__file__).parent / "golden"
NAMES = pytest.mark.parametrize("name", list(ALL))
ALLOWED = {
    "div", "p", "strong", "small", "table", "tbody", "tr", "td", "code", "bdi", "span", "pre", "del", "ins", "details",
    "summary",
}  # fmt: skip


class _Page(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "every element is closed where it was opened"

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


@NAMES
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    drawn = text.render(ALL[name], width=width, color=False)
    assert max(cell_len(line) for line in drawn.splitlines()) <= width


@NAMES
def test_without_colour_there_is_no_escape_code(name: str) -> None:
    assert "\x1b" not in text.render(ALL[name], width=100, color=False)


def test_colour_is_only_added_never_needed() -> None:
    import re

    coloured = text.render(MODIFIED, width=100, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text.render(MODIFIED, width=100, color=False)


def test_what_a_cell_holds_stays_text_in_html() -> None:
    page = _Page(html.render(HOSTILE))
    assert page.tags <= ALLOWED
    assert page.attributes <= {"class", "style"}
    assert not page.open
    for steering in ("\x1b", "\x00", "\u202e", "\u2066", "\ud800", "\u2028"):
        assert steering not in page.text
    html.render(HOSTILE).encode("utf-8")


def test_what_a_cell_holds_steers_no_terminal() -> None:
    drawn = text.render(HOSTILE, width=100, color=True)
    import re

    assert set(re.findall(r"\x1b\[[^a-zA-Z]*([a-zA-Z])", drawn)) <= {"m"}, "only colours of ours"
    assert "[bold]markup[/bold]" in text.render(HOSTILE, width=200, color=False)


@pytest.mark.parametrize("medium", ["text", "html"])
def test_what_was_not_run_is_never_called_proved(medium: str) -> None:
    fixes = tuple(replace(fix, verified=False, gradients="unknown", proof="proved") for fix in MODIFIED.fixes)
    one = replace(MODIFIED, fixes=fixes)
    drawn = text.render(one, width=100, color=False) if medium == "text" else html.render(one)
    assert "proved" not in drawn and "verified" not in drawn
    assert "has not been run" in " ".join(drawn.split())


def test_a_fix_that_cuts_the_graph_is_not_called_proved_without_saying_so() -> None:
    fix = replace(MODIFIED.fixes[0], gradients="truncated", proof="")
    drawn = " ".join(text.render(replace(MODIFIED, fixes=(fix,)), width=100, color=False).split())
    assert "cuts the graph" in drawn


def test_a_report_without_a_fix_says_so_and_names_no_command() -> None:
    drawn = text.render(replace(MODIFIED, fixes=()), width=100, color=False)
    assert "no fix was proved" in drawn and "%autograd_fix" not in drawn


def test_drawing_leaves_random_as_it_was_and_importing_loads_nothing() -> None:
    code = (
        "import random, sys\nimport inplace_magic.report.text as t\n"
        "assert not {'rich', 'torch'} & set(sys.modules)\nfrom inplace_magic.diagnosis import Diagnosis\n"
        "before = random.getstate()\nt.render(Diagnosis('leaf', 'x', 1), width=80, color=True)\n"
        "assert random.getstate() == before and 'rich' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@NAMES
def test_the_bundle_is_json_and_has_every_medium(name: str) -> None:
    made = bundle(ALL[name], width=100)
    assert set(made) == {"text/plain", "text/html", MIME}
    if name != "hostile":  # a lone surrogate has no json text that every reader takes
        assert json.loads(json.dumps(made[MIME])) == made[MIME]


@NAMES
@pytest.mark.parametrize("kind", ["txt", "html"])
def test_golden(name: str, kind: str) -> None:
    one: Diagnosis = ALL[name]
    drawn = text.render(one, width=100, color=False) if kind == "txt" else html.render(one)
    path = GOLDEN / f"{name}.{kind}"
    if os.environ.get("INPLACE_MAGIC_WRITE_GOLDEN"):
        path.write_text(drawn + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn + "\n"
