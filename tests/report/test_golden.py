"""Reports as they are seen. INPLACE_MAGIC_WRITE_GOLDEN=1 writes them anew; read the difference before it is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inplace_magic.message import LANGUAGES, Language
from inplace_magic.report import html, text
from inplace_magic.report.contents import Report, report_of
from inplace_magic.report.escape import code_spans
from tests.report import samples

GOLDEN = Path(__file__).parent / "golden"


def _compare(name: str, drawn: str) -> None:
    path = GOLDEN / name
    if os.environ.get("INPLACE_MAGIC_WRITE_GOLDEN"):
        path.write_bytes(f"{drawn}\n".encode())
    assert f"{drawn}\n" == path.read_bytes().decode()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", samples.ALL)
def test_text(name: str, width: int, language: Language) -> None:
    drawn = text.render(samples.ALL[name], width=width, color=False, language=language)
    _compare(f"{name}.{width}.{language}.txt", drawn)


def _words(report: Report) -> set[str]:
    """Every word of a report's prose; code is known by its backticks, and may go on in the next row."""
    prose = [report.headline, report.status, *report.sentences, *report.notes, report.no_fix]
    prose += [mark.label for block in report.blocks for line in block.lines for mark in line.marks]
    prose += [text for fix in report.fixes for text in (fix.status, *fix.clauses)]
    return {word for text in prose for is_code, part in code_spans(text) if not is_code for word in part.split()}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", [name for name in samples.ALL if name != "hostile"])
def test_no_word_is_broken(name: str, width: int) -> None:
    drawn = text.render(samples.ALL[name], width=width, color=False, whole=True)
    missing = {word for word in _words(report_of(samples.ALL[name])) if word not in drawn}
    assert not missing


@pytest.mark.parametrize("name", samples.ALL)
def test_html(name: str) -> None:
    _compare(f"{name}.html", html.render(samples.ALL[name]))
