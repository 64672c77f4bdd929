from __future__ import annotations

import ast

import pytest

from inplace_magic.source.loop_names import passing_names


@pytest.mark.parametrize(
    ("cells", "passing"),
    [
        pytest.param(["for p in ws:\n    pass", "print(p)"], set(), id="a later cell reads it"),
        pytest.param(["p = 0\nfor p in ws:\n    p += 1"], set(), id="it had a value before"),
        pytest.param(["def f():\n    return p", "for p in ws:\n    f()"], set(), id="a function reads the global name"),
        pytest.param(["for p, g in zip(ws, gs):\n    p.sub_(g)"], {"p", "g"}, id="only the loop reads it"),
        pytest.param(["for p in ws:\n    p.sub_(1)", "sum(p for p in ws)"], {"p"}, id="a comprehension has its own"),
        pytest.param(["def f(p):\n    return p", "for p in ws:\n    f(p)"], {"p"}, id="a parameter is another name"),
        pytest.param(["for a in b:\n    for c in a:\n        print(a, c)"], {"a", "c"}, id="loops in loops"),
    ],
)
def test_names_that_nobody_misses(cells: list[str], passing: set[str]) -> None:
    assert passing_names(map(ast.parse, cells)) == passing
