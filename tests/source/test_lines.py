"""Lines as Python counts them, whatever else a text holds that breaks a line elsewhere."""

from __future__ import annotations

import ast

import pytest

from inplace_magic.source.lines import lines_of
from tests.cells import run_cells


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\r\nb\rc\n", "a\n\n", "\f\na = 1", "# \u2028 \x85 \x1c\na = 1\n"])
def test_there_are_as_many_lines_as_the_parser_sees(text: str) -> None:
    assert "".join(lines_of(text, keepends=True)) == text
    last = ast.parse(text + ("" if not text or text.endswith(("\n", "\r")) else "\n") + "z").body[-1].lineno
    assert len(lines_of(text)) == last - 1


@pytest.mark.parametrize("strange", ["\f", "# \u2028 \u2029", "s = 'a\x1cb\x85c'"])
def test_a_cell_with_strange_line_breaks_is_told_its_line_and_fixed(strange: str) -> None:
    done = run_cells(
        "import torch\nw = torch.ones(3, requires_grad=True)", f"1\n{strange}\nx = w.exp()\nx += 1\nx.sum().backward()"
    )
    assert done.diagnosis is not None and done.diagnosis.changed is not None and done.diagnosis.fixes, done.output
    assert (done.diagnosis.changed.line, done.diagnosis.changed.text) == (4, "x += 1")
    assert done.cell("%autograd_fix --run").error is None
