"""Reports as they are seen. INPLACE_MAGIC_WRITE_GOLDEN=1 writes them anew; read the difference before it is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inplace_magic.message import LANGUAGES, Language
from inplace_magic.report import html, text
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


@pytest.mark.parametrize("name", samples.ALL)
def test_html(name: str) -> None:
    _compare(f"{name}.html", html.render(samples.ALL[name]))
