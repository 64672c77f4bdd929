"""Which loop a line stands in, the same one after a rewrite, and its body as it runs by itself."""

from __future__ import annotations

import ast
import itertools
import textwrap
from typing import Any

import pytest

from inplace_magic.source.loops import AGAIN, ANEW, body_alone, contexts_around, loops_around, way_to

NESTED = """
def other():
    for x in data:
        pass

for epoch in range(3):
    total = 0
    for x in data:
        seen.append(x)
    done.append(total)
"""


def tree(text: str) -> ast.Module:
    return ast.parse(textwrap.dedent(text).strip("\n"))


def run(before: str, now: str, line: int, anew: bool = False, **names: Any) -> dict[str, Any] | None:
    """The names after the body of the loop around a line of ``before`` has run by itself, as ``now`` has it."""
    loop = loops_around(tree(before), None, line)[0]
    old, new = way_to(tree(before), loop), way_to(tree(now), loop)
    assert old is not None
    body = body_alone(old, new, anew) if new is not None else None
    if body is None:
        return None
    names |= {AGAIN: lambda value: itertools.repeat(value, 2), ANEW: lambda values: itertools.islice(values, 2)}
    exec(compile(ast.fix_missing_locations(ast.Module(body, [])), "<text>", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("x = 1", 1, id="no loop"),
        pytest.param("for x in data:\n    pass\nx = 1", 3, id="behind a loop"),
        pytest.param("for x in f(data):\n    pass", 1, id="what a loop draws from"),
        pytest.param("for x in data:\n    pass\nelse:\n    x = 1", 4, id="the end of a loop"),
        pytest.param("for x in data:\n    def f():\n        return 1", 9, id="a line that is not there"),
        pytest.param("def f():\n    for x in data:\n        pass", 3, id="a function's loop, seen from the top"),
        pytest.param("y = [x for x in data]", 1, id="a comprehension"),
    ],
)
def test_there_is_no_loop_around(text: str, line: int) -> None:
    assert loops_around(tree(text), None, line) == []


def test_the_innermost_loop_comes_first() -> None:
    assert [loop.header for loop in loops_around(tree(NESTED), None, 8)] == ["x in data", "epoch in range(3)"]
    assert [loop.line for loop in loops_around(tree(NESTED), "other", 3)] == [2]


def test_the_body_runs_by_itself_with_the_values_that_its_targets_have() -> None:
    names = run(NESTED, NESTED, 8, data=[1, 2, 3], seen=[], done=[], x=7)
    assert names is not None and (names["seen"], names["done"]) == ([7, 7], [])


def test_or_with_the_first_ones_of_a_new_iterator() -> None:
    names = run(NESTED, NESTED, 8, anew=True, data=[1, 2, 3], seen=[], x=7)
    assert names is not None and names["seen"] == [1, 2]


def test_targets_within_targets_an_attribute_and_a_while_loop() -> None:
    text = "for i, (a, *b) in data:\n    seen.append((i, a, b))"
    names = run(text, text, 2, seen=[], i=1, a=2, b=[3])
    assert names is not None and names["seen"] == [(1, 2, [3])] * 2
    text = "while True:\n    seen.append(1)\n    if len(seen) > 9: break"
    names = run(text, text, 2, seen=[])
    assert names is not None and names["seen"] == [1, 1]


def test_what_a_rewrite_puts_ahead_of_the_loop_runs_once_and_before_it() -> None:
    now = NESTED.replace("    total = 0\n", "    total = 0\n    seen.append('new')\n")
    names = run(NESTED, now, 8, data=[], seen=[], x=7)
    assert names is not None and names["seen"] == ["new", 7, 7]


def test_the_rewritten_body_is_what_runs() -> None:
    names = run(NESTED, NESTED.replace("append(x)", "append(-x)"), 8, seen=[], x=7)
    assert names is not None and names["seen"] == [-7, -7]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("done.append(total)", "done.append(-total)", id="behind the loop"),
        pytest.param("    for x in data:\n        seen", "    for y in data:\n        seen", id="its header"),
        pytest.param("for epoch", "if 1:\n  pass\nfor step", id="an outer header does not matter"),
    ],
)
def test_a_rewrite_of_more_than_the_body_is_not_run(old: str, new: str) -> None:
    names = run(NESTED, NESTED.replace(old, new), 8, seen=[], x=7, data=[])
    assert (names is None) is (old != "for epoch")


def test_a_context_around_the_loop_is_entered_once_more() -> None:
    text = "with enter() as f:\n    for x in data:\n        seen.append(f)"

    class Enter:
        def __enter__(self) -> str:
            return "entered"

        def __exit__(self, *exception: object) -> None:
            pass

    names = run(text, text, 3, enter=Enter, seen=[], x=1, f="left")
    assert names is not None and names["seen"] == ["entered"] * 2


def test_contexts_around_a_line_the_outermost_first() -> None:
    text = tree("with a:\n    with b as c, d:\n        train()\n    with e:\n        pass")
    assert [ast.unparse(item) for item in contexts_around(text, None, 3)] == ["a", "b as c", "d"]
