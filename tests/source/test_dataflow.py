"""What a statement binds, and what runs behind it."""

from __future__ import annotations

import ast

import pytest

from inplace_magic.source.bindings import defaults, given, later
from inplace_magic.source.dataflow import binds, live_in, reads, rebinds, summed_up
from inplace_magic.source.document import CellSource
from inplace_magic.source.editor import Code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("h[0] = 1", set(), id="an item: the rest keeps its value"),
        pytest.param("h += 1", set(), id="what is added to"),
        pytest.param("h: int", set(), id="an annotation alone"),
        pytest.param("if x: h = 1", set(), id="one branch"),
        pytest.param("try: h = f()\nexcept E: pass", set(), id="what may not run to its end"),
        pytest.param("h: int = 1", {"h"}, id="an annotated assignment"),
        pytest.param("with f() as h: pass", {"h"}, id="the name of a context"),
        pytest.param("for h in x: pass", {"h"}, id="the name of a loop"),
        pytest.param("try: pass\nfinally: h = 1", {"h"}, id="what runs in any case"),
        pytest.param("def h(): pass", {"h"}, id="a function"),
        pytest.param("self.h, k = f()", {"self.h", "k"}, id="an attribute and a name"),
    ],
)
def test_names_whose_old_value_is_gone(text: str, expected: set[str]) -> None:
    statement = ast.parse(text).body[0]
    assert rebinds(statement) == expected
    assert ("h" in live_in([statement, *ast.parse("print(h)").body])) is ("h" not in expected)


def test_several_statements_are_asked_at_once() -> None:
    statements = ast.parse("a = b + net.c\nfor d in e: kept.append(d)\ntotal += 1\ndef f(): g = h").body
    assert binds(*statements) == {"a", "d", "kept", "total", "f"}
    assert reads(*statements[:3]) == {"b", "net", "net.c", "e", "kept", "kept.append", "d", "total"}
    assert rebinds(*statements) == {"a", "d", "f"}
    assert binds() == reads() == rebinds() == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("[a.b + c for a in d]", {"c", "d"}, id="a comprehension's own item"),
        pytest.param("{k: v.exp() for k, v in net.items() if k in kept}", {"net", "net.items", "kept"}, id="a pair"),
        pytest.param("[a for a in a]", {"a"}, id="what it goes through has the name of its item"),
        pytest.param("[b for a in c for b in a]", {"c"}, id="an item of an item"),
        pytest.param("f(lambda x: x.y * z)", {"f", "z"}, id="a lambda's argument"),
        pytest.param("[a for a in b] + [a]", {"a", "b"}, id="the same name beside it"),
    ],
)
def test_what_a_comprehension_or_a_lambda_calls_its_own_is_read_by_nobody_else(text: str, expected: set[str]) -> None:
    assert reads(ast.parse(text)) == expected


def test_behind_a_statement_in_a_try_come_its_other_blocks() -> None:
    code = Code(CellSource(1, "try:\n    a()\n    b()\nexcept E:\n    c()\nelse:\n    d()\nfinally:\n    e()\nf()\n"))
    first = code.tree.body[0].body[0]  # type: ignore[attr-defined]
    calls = {ast.unparse(n) for top in later(code, first) for n in ast.walk(top) if isinstance(n, ast.Call)}
    assert calls == {"b()", "c()", "d()", "e()", "f()"}


def test_a_call_gives_each_parameter_its_value_and_the_first_one_of_a_method_its_object() -> None:
    code = Code(CellSource(1, "class Net:\n    def fit(self, x, scale=2, *, out=None): ...\nnets[0].fit(a, out=b)"))
    cls, line = code.tree.body
    assert isinstance(cls, ast.ClassDef) and isinstance(line, ast.Expr)
    function, call = cls.body[0], line.value
    assert isinstance(function, ast.FunctionDef) and isinstance(call, ast.Call)
    values = {name: ast.unparse(value) for name, value in given(code, function, call) if value is not None}
    assert values == {"self": "nets[0]", "x": "a", "out": "b"}
    assert {name: ast.unparse(value) for name, value in defaults(function).items()} == {"scale": "2", "out": "None"}


def test_sums_are_found_wherever_they_stand() -> None:
    tree = ast.parse("for x in xs:\n    total += x\n    log['loss'] = log['loss'] + x\n    n = x + 1")
    assert [ast.unparse(one) for one in summed_up(tree)] == ["total", "log['loss']"]
