from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, proposals

RULE = "drawn_once"


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param("m = self.noise.expand(3, 4)\nm.normal_()", "m.normal_()", id="memory of somebody else"),
        pytest.param("m = torch.zeros(1, 4).expand(3, 4)\nm.mul_(2)", "m.mul_(2)", id="nothing is drawn"),
        pytest.param(
            "def f():\n    m = torch.zeros(1, 4).expand(3, 4)\n    return m.normal_()",
            "m.normal_()",
            id="given out at once",
        ),
        pytest.param("m = torch.zeros(1, 4).expand(3, 4)\nm[0].normal_()", "m[0].normal_()", id="one row"),
        pytest.param(
            "m = torch.zeros(1, 4).expand(3, 4)\nif training:\n    m.normal_()", "m.normal_()", id="not in each call"
        ),
        pytest.param(
            "m = torch.zeros(1, 4).expand(3, 4)\nn = len(m)\nm.normal_()", "m.normal_()", id="read in between"
        ),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    operation = write.rpartition(".")[2].partition("(")[0]
    assert proposals(RULE, cell, write=write, family="overlap", operation=operation) == []


def test_the_expansion_goes_behind_the_write() -> None:
    cell = "m = torch.zeros(1, 4).expand(-1, 4)\nm.normal_()"
    found = proposals(RULE, cell, write="m.normal_()", family="overlap", operation="normal_")
    assert [p.texts[1].rstrip() for p in found] == ["m = torch.zeros(1, 4)\nm.normal_()\nm = m.expand(-1, 4)"]


def test_a_mask_that_steps_in_time_share_is_drawn_before_it_is_expanded() -> None:
    start = """
        import torch
        torch.manual_seed(0)
        lin = torch.nn.Linear(4, 4)
        def locked(x, keep):
            mask = x.new_empty(1, 4).expand_as(x)
            mask.bernoulli_(keep).div_(keep)
            return x * mask
        """
    cell = "loss = locked(lin(torch.ones(3, 4)), 0.5).sum()\nloss.backward()"
    found = run_cells(clean(start), cell).diagnosis
    assert found is not None
    fix, *others = found.fixes
    assert fix.gradients == "same" and fix.cells == {
        1: clean(start)
        .replace(".expand_as(x)", "")
        .replace(".div_(keep)\n", ".div_(keep)\n    mask = mask.expand_as(x)\n")
        .rstrip("\n")
    }
    assert others and all(other.gradients != "same" for other in others)
