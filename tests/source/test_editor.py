"""Edits of a text: what is left of it, byte by byte."""

from __future__ import annotations

import ast

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


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param("f()", "f(k=1)", id="without any"),
        pytest.param("f(a)", "f(a, k=1)", id="behind the last"),
        pytest.param("f((a))", "f((a), k=1)", id="behind its parentheses"),
        pytest.param("f(a,)", "f(a, k=1)", id="behind a comma"),
        pytest.param("f(\n    a,\n)", "f(\n    a, k=1,\n)", id="behind a comma that ends a line"),
        pytest.param("f(\n    a  # one, two\n)", "f(\n    a, k=1  # one, two\n)", id="ahead of a comment with a comma"),
    ],
)
def test_an_argument_more(call: str, expected: str) -> None:
    code = Code(CellSource(1, call))
    assert code.apply(code.add_argument(code.tree.body[0].value, "k=1")) == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param("f(k=1)", "f()", id="the only one"),
        pytest.param("f(k=1, a=2)", "f(a=2)", id="the first"),
        pytest.param("f(a, k=1)", "f(a)", id="the last"),
        pytest.param("f((a), k=1)", "f((a))", id="behind parentheses"),
        pytest.param("f(a,  # big,\n  k=1)", "f(a,  # big,\n  )", id="behind a comment that ends in a comma"),
    ],
)
def test_an_argument_less(call: str, expected: str) -> None:
    code = Code(CellSource(1, call))
    node = next(n for n in ast.walk(code.tree) if isinstance(n, ast.keyword) and n.arg == "k")
    assert code.apply(code.without_argument(node)) == expected


def test_what_stands_on_the_head_of_a_block_is_taken_out_of_it_alone() -> None:
    code = Code(CellSource(1, "a = 1; b = 2\nc = 3\nif a: u = 4\n"))
    assert code.apply(code.delete(code.tree.body[3].body[0])) == "a = 1; b = 2\nc = 3\nif a: pass\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "node", "expected"),
    [
        pytest.param("y = a + b", "a + b", "y = (a + b).f()", id="an operation gets parentheses"),
        pytest.param("y = -(a + b) * c", "a + b", "y = -(a + b).f() * c", id="it has some already"),
        pytest.param("y = g(a + b)", "a + b", "y = g((a + b).f())", id="those of a call are not its own"),
        pytest.param("y = g(h)(a + b)", "a + b", "y = g(h)((a + b).f())", id="nor those of what a call gives"),
        pytest.param("assert (a + b)", "a + b", "assert (a + b).f()", id="those behind a keyword are"),
        pytest.param("y = (a + b, c)", "a + b", "y = ((a + b).f(), c)", id="those of a tuple are not"),
    ],
)
def test_puts_a_call_behind_an_expression(text: str, node: str, expected: str) -> None:
    code = Code(CellSource(1, text))
    found = next(n for n in ast.walk(code.tree) if isinstance(n, ast.expr) and ast.unparse(n) == node)
    assert code.apply(code.behind(found, ".f()")) == expected


@pytest.mark.parametrize(
    ("at", "before", "gone", "expected"),
    [
        pytest.param(1, True, (), "    a()\n    for p in q:\n        p()\n    b(); c()  # why\n", id="ahead of one"),
        pytest.param(1, False, (), "    a(); b()\n    for p in q:\n        p()\n    c()  # why\n", id="behind one"),
        pytest.param(2, False, (), "    a(); b(); c()  # why\n    for p in q:\n        p()\n", id="behind the last"),
        pytest.param(1, True, (0, 1), "    for p in q:\n        p()\n    c()  # why\n", id="where all ahead goes"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_block_between_statements_of_one_line_parts_it(
    at: int, before: bool, gone: tuple[int, ...], expected: str, newline: str
) -> None:
    head, end = "for x in xs:\n", "    d()"
    code = Code(CellSource(1, f"{head}    a(); b(); c()  # why\n{end}".replace("\n", newline)))
    body = code.tree.body[0].body  # type: ignore[attr-defined]
    block = ("for p in q:", "    p()")
    new = code.insert_before(body[at], *block) if before else code.insert_after(body[at], *block)
    edits = [code.delete(body[one], *(body[other] for other in gone)) for one in gone]
    assert code.apply(new, *edits) == f"{head}{expected}{end}".replace("\n", newline)


def test_two_statements_part_a_line_and_one_does_not() -> None:
    code = Code(CellSource(1, "a(); b()"))
    _, second = code.tree.body
    assert code.apply(code.insert_before(second, "c()")) == "a(); c(); b()"
    assert code.apply(code.insert_before(second, "c()", "d()")) == "a()\nc()\nd()\nb()"


def test_the_line_of_a_head_is_not_parted() -> None:
    code = Code(CellSource(1, "if on: a(); b()"))
    second = code.tree.body[0].body[1]  # type: ignore[attr-defined]
    assert code.apply(code.insert_before(second, "c()", "d()")) == "if on: a(); c(); d(); b()"


def test_a_comment_takes_nothing_else_that_stands_on_the_line() -> None:
    code = Code(CellSource(1, "a(); b()\nif c: d()\n"))
    first, _, branch = code.tree.body
    assert code.apply(code.insert_after(first, "e()  # why")) == "a()\ne()  # why\nb()\nif c: d()\n"
    inner = branch.body[0]  # type: ignore[attr-defined]
    assert code.apply(code.insert_after(inner, "e()  # why")) == "a(); b()\nif c: d(); e()\n"
    long = 's = """x\n  # y"""'
    assert code.apply(code.insert_after(inner, f"{long}  # why")) == f"a(); b()\nif c: d(); {long}\n"
