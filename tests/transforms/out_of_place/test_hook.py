"""A hook that writes into what it was handed gives back a gradient of its own."""

from __future__ import annotations

import pytest

from ..trying import clean, proposals, titles

RULE = "hook"


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param("def hook(g):\n    g.mul_(2)\n    return g", "g.mul_(2)", id="something is given back already"),
        pytest.param("g = 1\ng.mul_(2)", "g.mul_(2)", id="no function"),
        pytest.param("def hook(g):\n    h = g\n    h.mul_(2)", "h.mul_(2)", id="another name"),
        pytest.param(
            "h.register_hook(lambda g: scale.mul_(2))", "scale.mul_(2)", id="a lambda that writes something else"
        ),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    assert proposals(RULE, cell, write=write, family="silent", handed=True) == []  # type: ignore[arg-type]


def test_proposes_nothing_for_other_writes() -> None:
    assert proposals(RULE, "def f(g):\n    g.mul_(2)", write="g.mul_(2)", family="silent") == []


@pytest.mark.parametrize(
    ("cell", "write", "expected"),
    [
        pytest.param(
            "def hook(g):\n    print(g)\n    g.mul_(2)  # twice\n", "g.mul_(2)",
            ["def hook(g):\n    print(g)\n    return g.mul(2)  # twice\n",
             "def hook(g):\n    print(g)\n    g = g.clone()\n    g.mul_(2)  # twice\n    return g\n"],
            id="the last line",
        ),
        pytest.param(
            "def hook(g):\n    g *= 2\n    print(g)\n", "g *= 2",
            ["def hook(g):\n    g = g.clone()\n    g *= 2\n    print(g)\n    return g\n"], id="a line before others",
        ),
        pytest.param(
            "class Hook:\n    def __call__(self, g):\n        if self.on:\n            g[0] = 0\n", "g[0]",
            ["class Hook:\n    def __call__(self, g):\n        g = g.clone()\n        if self.on:\n            g[0] = 0\n        return g\n"],
            id="a condition",
        ),
        pytest.param(
            "h.register_hook(lambda g: g.mul_(2))\n", "g.mul_(2)",
            ["h.register_hook(lambda g: g.mul(2))\n", "h.register_hook(lambda g: g.clone().mul_(2))\n"], id="a lambda",
        ),
        pytest.param(
            "def hook(module, gi, go):\n    gi[1].mul_(2)\n", "gi[1].mul_(2)",
            ["def hook(module, gi, go):\n    gi = (*gi[:1], gi[1].clone(), *gi[2:])\n    gi[1].mul_(2)\n    return gi\n",
             "def hook(module, gi, go):\n    gi = (*gi[:1], gi[1].clone(), *gi[2:])\n    gi[1].mul_(2)\n",
             "def hook(module, gi, go):\n    gi = gi.clone()\n    gi[1].mul_(2)\n    return gi\n"],
            id="an item of what was handed over",
        ),
    ],
)  # fmt: skip
def test_gives_back_a_gradient_of_its_own(cell: str, write: str, expected: list[str]) -> None:
    found = proposals(RULE, cell, write=write, family="silent", handed=True)  # type: ignore[arg-type]
    assert [p.texts[1] for p in found] == list(map(clean, expected))


def test_a_forward_hook_returns_the_new_tensor() -> None:
    cell = "def steer(module, inputs, output):\n    output += vec\nlayer.register_forward_hook(steer)"
    assert titles(RULE, cell, write="output += vec")[0] == "return output + vec"


def test_a_function_that_nobody_registers_is_no_hook() -> None:
    assert titles(RULE, "def steer(module, inputs, output):\n    output += vec", write="output += vec") == []
