"""Edits of a text: what is left of it, byte by byte."""

from __future__ import annotations

import pytest

from inplace_magic.source.document import CellSource
from inplace_magic.source.editor import Code


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", [False, True])
def test_a_text_ends_as_it_did_when_its_last_line_goes_elsewhere(newline: str, end: bool) -> None:
    raw = newline.join(["a = 1", "b = 2", "c = 3"]) + newline * end
    code = Code(CellSource(1, raw))
    first, _, last = code.tree.body
    moved = code.apply(code.insert_before(first, "c = 3"), code.delete(last))
    assert moved == newline.join(["c = 3", "a = 1", "b = 2"]) + newline * end
