"""Reports as they are seen. INPLACE_MAGIC_WRITE_GOLDEN=1 writes them anew; read the difference before it is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inplace_magic.report import html, text
from tests.report import samples

GOLDEN = Path(__file__).parent / "golden"


def _compare(name: str, drawn: str) -> None:
    path = GOLDEN / name
    if os.environ.get("INPLACE_MAGIC_WRITE_GOLDEN"):
        path.write_bytes(f"{drawn}\n".encode())
    assert f"{drawn}\n" == path.read_bytes().decode()


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", samples.ALL)
def test_text(name: str, width: int) -> None:
    _compare(f"{name}.{width}.txt", text.render(samples.ALL[name], width=width, color=False))


@pytest.mark.parametrize("name", samples.ALL)
def test_html(name: str) -> None:
    _compare(f"{name}.html", html.render(samples.ALL[name]))
