"""A new name is given to nothing that has it already."""

from __future__ import annotations

import pytest

from inplace_magic.source.document import CellSource
from inplace_magic.source.editor import Code
from inplace_magic.source.lift import unused


def test_a_free_name_is_taken() -> None:
    assert unused("i", Code(CellSource(1, "rows = items.i"))) == "i"


@pytest.mark.parametrize("text", [
    pytest.param("print(i)", id="a read"),
    pytest.param("def f(*, i): pass", id="an argument"),
    pytest.param("def i(): pass", id="a function"),
    pytest.param("class i: pass", id="a class"),
    pytest.param("import i.j", id="a module"),
    pytest.param("from j import k as i", id="an imported name"),
    pytest.param("try:\n    f()\nexcept E as i:\n    pass", id="an error"),
    pytest.param("match x:\n    case [*i]: pass", id="the rest of a pattern"),
    pytest.param("match x:\n    case {**i}: pass", id="the rest of a mapping"),
    pytest.param("match x:\n    case i: pass", id="a pattern"),
    pytest.param("def f():\n    del i", id="what is deleted"),
])  # fmt: skip
def test_a_name_that_is_bound_or_read_is_not_taken(text: str) -> None:
    assert unused("i", Code(CellSource(1, text))) == "i_2"
