"""A forward that writes into a parameter gets a value of its own."""

from __future__ import annotations

import pytest

from ..trying import fix_by, proposals, rewritten, titles

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    """
HEAD = """
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.randn(3, 4))
        def forward(self, x):
            self.rows.div_(self.rows.norm(dim=1, keepdim=True))
            return x @ self.rows.t()
    """


@pytest.mark.parametrize(
    ("body", "write"),
    [
        pytest.param("self.rows *= 2", "self.rows *= 2", id="an update that nothing in its function reads"),
        pytest.param(
            "for _ in range(2):\n            self.rows *= 2\n        return self.rows",
            "self.rows *= 2",
            id="a write in a loop, which goes on from what it wrote",
        ),
        pytest.param(
            "self.rows *= 2\n        self.rows.requires_grad = False",
            "self.rows *= 2",
            id="what is said of the parameter itself afterwards",
        ),
        pytest.param("rows = self.rows\n        rows *= 2\n        return rows", "rows *= 2", id="a name of its own"),
    ],
)
def test_keeps_its_name(body: str, write: str) -> None:
    cell = f"class Head(nn.Module):\n    def forward(self, x):\n        {body}\n"
    assert [
        t for t in titles("out_of_place", cell, write=write, family="leaf") if t.startswith("rows = self.rows")
    ] == []


@pytest.mark.parametrize(
    ("lines", "write", "expected"),
    [
        (
            "self.rows /= 2 + x\nreturn self.rows @ x",
            "self.rows /= 2 + x",
            "rows = self.rows / (2 + x)\nreturn rows @ x",
        ),
        (
            "self.rows[0] = 0\nreturn self.rows @ x",
            "self.rows[0] = 0",
            "rows = self.rows.clone()\nrows[0] = 0\nreturn rows @ x",
        ),
        (
            "rows = x\nself.rows.mul_(2)\nreturn self.rows @ rows",
            "self.rows.mul_(2)",
            "rows = x\nrows_2 = self.rows.mul(2)\nreturn rows_2 @ rows",
        ),
    ],
    ids=["an operator", "a part of it, in a copy", "a name that is not taken yet"],
)
def test_the_function_works_on_a_value_of_its_own(lines: str, write: str, expected: str) -> None:
    head = "def forward(self, x):\n    "
    cell, wanted = (head + text.replace("\n", "\n    ") for text in (lines, expected))
    found = [p.texts[1] for p in proposals("out_of_place", cell, write=write, family="leaf")]
    assert wanted in found


def test_the_parameter_learns_through_it_and_keeps_its_value() -> None:
    fix = fix_by("out_of_place", START, HEAD, "net = Head()\nnet(torch.ones(2, 4)).pow(2).sum().backward()")
    assert fix.cells[2] == rewritten(HEAD, ("self.rows.div_(", "rows = self.rows.div("), ("x @ self.rows", "x @ rows"))
    assert fix.changes == ("net.rows has other values afterwards",)
