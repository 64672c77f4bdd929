"""The name that takes a freed graph into a later backward, where no loop hands it on."""

from __future__ import annotations

from inplace_magic.diagnosis import Conflict

from ..cells import run_cells

START = "import torch\ntorch.manual_seed(0)\nw = torch.ones(3, requires_grad=True)"


def first_of(cell: str) -> Conflict:
    diagnosis = run_cells(START, cell).diagnosis
    assert diagnosis is not None
    return diagnosis.conflicts[0]


def test_where_the_root_itself_is_gone_through_again_nothing_is_said() -> None:
    assert first_of("loss = w.exp().sum()\nloss.backward()\nloss.backward()").carries == ""


def test_where_two_names_take_it_over_nothing_is_said() -> None:
    found = first_of("a, b = w.exp(), w.sin()\nfor _ in range(2):\n    loss = (a * b * w).sum()\n    loss.backward()")
    assert found.carries == ""


def test_what_was_made_ahead_of_the_loop_is_named_with_the_line_that_reads_it() -> None:
    found = first_of(
        "old = w.exp()\nfor _ in range(2):\n    ratio = w / old\n    loss = ratio.sum()\n    loss.backward()"
    )
    assert found.carries == "`old`, read in In[2]:3, is still part of the freed graph."
