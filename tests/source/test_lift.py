"""A new name is given to nothing that has it already; statements are taken out of their lines."""

from __future__ import annotations

import pytest

from inplace_magic.source.document import CellSource
from inplace_magic.source.editor import Code
from inplace_magic.source.lift import lift, unused


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


ON_ONE_LINE = "opt.zero_grad(); loss = f(x)  # one\nloss.backward(); opt.step(); log(loss)\nprint(1)\n"


@pytest.mark.parametrize(
    ("taken", "rest"),
    [
        pytest.param(
            [0], "loss = f(x)  # one\nloss.backward(); opt.step(); log(loss)\nprint(1)\n", id="the first of a line"
        ),
        pytest.param([1], "opt.zero_grad()  # one\nloss.backward(); opt.step(); log(loss)\nprint(1)\n", id="the last"),
        pytest.param(
            [3], "opt.zero_grad(); loss = f(x)  # one\nloss.backward(); log(loss)\nprint(1)\n", id="the middle"
        ),
        pytest.param([3, 4], "opt.zero_grad(); loss = f(x)  # one\nloss.backward()\nprint(1)\n", id="the last two"),
        pytest.param([0, 1, 2], "opt.step(); log(loss)\nprint(1)\n", id="a line and a part of the next"),
        pytest.param([5], "opt.zero_grad(); loss = f(x)  # one\nloss.backward(); opt.step(); log(loss)\n", id="a line"),
    ],
)
def test_statements_are_taken_out_of_lines_that_they_share(taken: list[int], rest: str) -> None:
    code = Code(CellSource(1, ON_ONE_LINE))
    lifted = lift(code, [code.tree.body[i] for i in taken])
    assert lifted is not None
    assert code.apply(*lifted.edits) == rest
    given = [part for line in lifted.lines for part in line.partition("  #")[0].split("; ")]
    assert given == [code.text(code.tree.body[i]) for i in taken]


def test_the_blank_line_above_stays_with_what_stays() -> None:
    code = Code(CellSource(1, "x = 1\n\na(); b()\n"))
    lifted = lift(code, code.tree.body[1:2])
    assert lifted is not None
    assert code.apply(*lifted.edits) == "x = 1\n\nb()\n"


def test_what_follows_a_statement_on_several_lines_goes_in_as_far_as_that() -> None:
    code = Code(CellSource(1, "def g():\n    a()\n    b = f(\n            x); c()\n    d()\n"))
    body = code.tree.body[0].body  # type: ignore[attr-defined]
    lifted = lift(code, [body[0], body[2]])
    assert lifted is not None
    assert lifted.lines == ["a()", "c()"]


def test_what_stands_on_the_head_of_a_block_is_not_taken_out() -> None:
    code = Code(CellSource(1, "for x in xs: f(x); g(x)\n"))
    loop = code.tree.body[0]
    assert lift(code, [loop.body[1]]) is None  # type: ignore[attr-defined]
