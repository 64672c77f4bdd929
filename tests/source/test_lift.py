"""A new name is given to nothing that has it already; statements are taken out of their lines."""

from __future__ import annotations

import ast

import pytest

from inplace_magic.source.document import CellSource
from inplace_magic.source.editor import Code
from inplace_magic.source.lift import as_lines, lift, moved, wrapped
from inplace_magic.source.names import named, unused


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
    assert code.apply(*lifted.edits) == rest
    given = [part for line in lifted.lines for part in line.partition("  #")[0].split("; ")]
    assert given == [code.text(code.tree.body[i]) for i in taken]


def test_the_blank_line_above_stays_with_what_stays() -> None:
    code = Code(CellSource(1, "x = 1\n\na(); b()\n"))
    lifted = lift(code, code.tree.body[1:2])
    assert code.apply(*lifted.edits) == "x = 1\n\nb()\n"


def test_what_follows_a_statement_on_several_lines_goes_in_as_far_as_that() -> None:
    code = Code(CellSource(1, "def g():\n    a()\n    b = f(\n            x); c()\n    d()\n"))
    body = code.tree.body[0].body  # type: ignore[attr-defined]
    lifted = lift(code, [body[0], body[2]])
    assert lifted.lines == ["a()", "c()"]


def test_the_head_of_a_block_keeps_a_statement() -> None:
    code = Code(CellSource(1, "a = 1; b = 2\nfor x in xs: f(x); g(x)\nif x: f(x)\n"))
    loop, branch = code.tree.body[2:]
    assert code.apply(*lift(code, [loop.body[1]]).edits).splitlines()[1] == "for x in xs: f(x)"  # type: ignore[attr-defined]
    both = lift(code, loop.body)  # type: ignore[attr-defined]
    assert both.lines == ["f(x)", "g(x)"]
    assert code.apply(*both.edits) == "a = 1; b = 2\nfor x in xs: pass\nif x: f(x)\n"
    assert code.apply(*lift(code, branch.body).edits) == "a = 1; b = 2\nfor x in xs: f(x); g(x)\nif x: pass\n"  # type: ignore[attr-defined]


def test_a_block_keeps_a_statement() -> None:
    code = Code(CellSource(1, "if x:\n    # why\n    f(x)\n    g(x)\n"))
    body = code.tree.body[0].body  # type: ignore[attr-defined]
    assert code.apply(*lift(code, body).edits) == "if x:\n    pass\n"
    assert code.apply(*lift(code, body[1:]).edits) == "if x:\n    # why\n    f(x)\n"


@pytest.mark.parametrize("sign", ["\u2028", "\x0c", "\x1c"])
def test_only_what_ends_a_line_for_python_ends_one(sign: str) -> None:
    code = Code(CellSource(1, f"a = '{sign}'\nb = 1\nc = 2\n"))
    lifted = lift(code, code.tree.body[1:2])
    assert (lifted.lines, code.apply(*lifted.edits)) == (["b = 1"], f"a = '{sign}'\nc = 2\n")


TEXT = "if x:\n    s = f('''a\n    b\n\n  c''', [\n        1])\n"


def test_a_string_on_several_lines_stays_as_it_is_wherever_it_goes() -> None:
    code = Code(CellSource(1, TEXT))
    statement = code.tree.body[0].body[0]  # type: ignore[attr-defined]
    lines = ["s = f('''a\n    b\n\n  c''', [", "    1])"]
    assert as_lines(code, statement) == lift(code, [statement]).lines == lines
    outside = code.apply(code.insert_before(code.tree.body[0], *lines)).partition("if x:")[0]
    deeper = code.apply(wrapped(code, [statement], "with g():"))  # type: ignore[arg-type]
    values = [ast.unparse(ast.parse(text)) for text in (TEXT, outside, deeper)]
    assert all("'a\\n    b\\n\\n  c'" in value for value in values)


def test_blank_lines_within_a_block_stay_and_get_no_indent() -> None:
    code = Code(CellSource(1, "a = 1\n\nb = 2\n\nc = 3"))
    edit = wrapped(code, code.tree.body[:2], "with g():")
    assert edit is not None and code.apply(edit) == "with g():\n    a = 1\n\n    b = 2\n\nc = 3"


def test_a_name_is_another_one_where_something_else_is_called_so() -> None:
    text = "x = 1\nf = lambda x: x + 1\ndef g(a, x): return x\nh = [x for x in y if x]\nk = [x for z in y]\ndef m(): return x\n"
    code = Code(CellSource(1, text))
    assert [node.lineno for node in named(code, "x", code.tree.body)] == [1, 5, 6]


@pytest.mark.parametrize(("behind", "expected"), [(False, "b = 2\na = 1\nc = 3"), (True, "a = 1\nc = 3\nb = 2")])
def test_statements_change_their_place(behind: bool, expected: str) -> None:
    code = Code(CellSource(1, "a = 1\nb = 2\nc = 3"))
    first, second, third = code.tree.body
    assert code.apply(*moved(code, [second], third if behind else first, behind=behind)) == expected


def test_nothing_is_moved_without_a_trace() -> None:
    code = Code(CellSource(1, "a = 1"))
    assert moved(code, [], code.tree.body[0], behind=True) == []
