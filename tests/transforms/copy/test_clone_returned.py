"""A buffer that a function fills and gives out."""

from __future__ import annotations

import pytest

from ..trying import clean, proposals

RULE = "clone_returned"


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param("stage.copy_(t)", "stage.copy_(t)", id="no function"),
        pytest.param(
            "def pack(t):\n    stage.copy_(t)\n    return t", "stage.copy_(t)", id="another value is returned"
        ),
        pytest.param("def pack(t):\n    stage.copy_(t)\n    return stage.sum()", "stage.copy_(t)", id="a new value"),
        pytest.param("def pack(t):\n    stage.copy_(t)", "stage.copy_(t)", id="nothing is returned"),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    assert proposals(RULE, cell, write=write, family="silent") == []


@pytest.mark.parametrize(
    ("cell", "write", "expected"),
    [
        pytest.param(
            "def pack(t):\n    stage.copy_(t)\n    return stage  # one for all\n", "stage.copy_(t)",
            ["def pack(t):\n    stage.copy_(t)\n    return stage.clone()  # one for all\n"], id="the buffer",
        ),
        pytest.param(
            "class Mask:\n    def make(self, n):\n        self.buffer[:n] = 1\n        return self.buffer[:n]\n",
            "self.buffer[:n] = 1",
            ["class Mask:\n    def make(self, n):\n        self.buffer[:n] = 1\n        return self.buffer[:n].clone()\n"],
            id="a part of it",
        ),
        pytest.param(
            "def forward(ctx, t):\n    rows[:] = t\n    ctx.rows = rows\n    return t * 2\n", "rows[:] = t",
            ["def forward(ctx, t):\n    rows[:] = t\n    ctx.rows = rows.clone()\n    return t * 2\n"], id="kept on ctx",
        ),
    ],
)  # fmt: skip
def test_gives_out_a_copy(cell: str, write: str, expected: list[str]) -> None:
    found = [p.texts[1] for p in proposals(RULE, cell, write=write, family="silent")]
    of_arrays = [text.replace(".clone()", ".copy()") for text in expected]
    assert found == list(map(clean, [*expected, *of_arrays]))
