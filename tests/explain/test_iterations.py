"""Which iteration saved, changed and needed a value, and the name that carries the graph."""

from __future__ import annotations

import pytest

from inplace_magic.diagnosis import Conflict
from tests.cells import run_cells

START = """
    import torch
    torch.manual_seed(0)
    w = torch.ones(3, requires_grad=True)
    h = torch.zeros(3)
    opt = torch.optim.SGD([w], lr=0.1)
    """


def first_of(*cells: str) -> Conflict:
    found = run_cells(START, *cells).diagnosis
    assert found is not None
    return found.conflicts[0]


def labels_of(found: Conflict) -> list[str]:
    return [found.saved_note, found.changed_note, found.needed_note]


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("x = w.exp()\nx += 1\nx.sum().backward()", id="without a loop"),
        pytest.param(
            "for i in range(2):\n    x = w.exp()\n    x += 1\n    x.sum().backward()", id="all in one iteration"
        ),
        pytest.param(
            "for i in range(2):\n    (w * 2).sum().backward()\n    x = w.exp()\n    x.sum().backward()\n    x.sum().backward()",
            id="several backwards in one iteration",
        ),
        pytest.param(
            "def first():\n    x.sum().backward()\ndef second():\n    (x * 2).sum().backward()\n"
            "def both():\n    first()\n    second()\n"
            "for i in range(2):\n    x = w.exp()\n    both()",
            id="several backwards in what one line of the loop calls",
        ),
        pytest.param(
            "for i in range(4):\n    h = torch.tanh(h * w)\n    if i % 2:\n        h.sum().backward()\n        opt.step()",
            id="a backward under a condition counts nothing",
        ),
    ],
)
def test_where_there_is_nothing_to_count_nothing_is_said(cell: str) -> None:
    found = first_of(cell)
    assert not any("iteration" in label for label in labels_of(found)) and "iteration" not in found.carries


def test_the_graph_of_an_earlier_iteration_and_the_name_that_carries_it() -> None:
    found = first_of("for i in range(4):\n    h = torch.tanh(h * w)\n    h.sum().backward()")
    assert labels_of(found) == [
        "this part of the graph is created here (iteration 1)",
        "`h` still carries the graph of iteration 1",
        "frees the graph (iteration 1), needs the freed graph again (iteration 2)",
    ]


def test_a_sum_that_goes_on_carries_its_graph() -> None:
    found = first_of("total = 0\nfor i in range(3):\n    total += (w * i).exp().sum()\n    total.backward()")
    assert found.changed_note == "`total` still carries the graph of iteration 1"


def test_a_name_that_an_inner_loop_binds_before_it_reads_it_carries_nothing() -> None:
    found = first_of(
        "state = {}\nfor i in range(3):\n    total = 0\n    for j in range(2):\n"
        "        out = state['s'] = torch.tanh(state.get('s', h) * w)\n        total = total + out.sum()\n"
        "    total.backward()"
    )
    assert "`out`" not in found.carries + found.changed_note


def test_a_step_below_the_backward_belongs_to_its_iteration() -> None:
    found = first_of(
        "for i in range(4):\n    h = torch.tanh(h * w)\n    h.sum().backward(retain_graph=True)\n    opt.step()"
    )
    assert found.changed_note == "overwrites `w` (iteration 2)"
    assert found.needed_note == "needs the kept value (iteration 3)"
    assert found.carries == "`h` still carries the graph of iteration 2.", "the first h has no graph, and needs no w"


def test_in_loops_within_loops_iterations_have_no_numbers() -> None:
    found = first_of(
        "for epoch in range(2):\n    for i in range(2):\n        h = torch.tanh(h * w)\n        h.sum().backward()"
    )
    assert found.needed_note.startswith("frees the graph (an earlier iteration), ")
    assert found.changed_note == "`h` still carries the graph of an earlier iteration"


def test_a_loop_in_a_function() -> None:
    found = first_of(
        "def train():\n    h = torch.zeros(3)\n    for i in range(3):\n        h = torch.tanh(h * w)\n        h.sum().backward()\ntrain()"
    )
    assert found.changed_note == "`h` still carries the graph of iteration 1"


def test_a_step_that_stands_below_the_backward_in_a_function_is_of_the_same_iteration() -> None:
    found = first_of(
        "opt = torch.optim.SGD([w], lr=0.1)\nstate = [w.exp()]\n"
        "def train():\n    state[0] = state[0] * w\n    state[0].sum().backward(retain_graph=True)\n    opt.step()\n"
        "for i in range(3):\n    train()"
    )
    assert [label for label in labels_of(found) if "overwrites" in label] == ["overwrites `w` (iteration 1)"]
