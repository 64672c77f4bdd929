"""What takes a freed graph into a later backward: the lines that read it, with the names that they read it by."""

from __future__ import annotations

import pytest

from inplace_magic.diagnosis import Conflict

from ..cells import run_cells

START = "import torch\ntorch.manual_seed(0)\nw = torch.ones(3, requires_grad=True)"


def first_of(cell: str) -> Conflict:
    diagnosis = run_cells(START, cell).diagnosis
    assert diagnosis is not None
    return diagnosis.conflicts[0]


def marked(found: Conflict) -> tuple[str, str]:
    """The label of the line to blame, and what its carets stand under."""
    assert found.changed is not None and found.changed.columns is not None
    start, end = found.changed.columns
    return found.changed_note, found.changed.text[start:end]


def test_where_the_root_itself_is_gone_through_again_nothing_is_said() -> None:
    found = first_of("loss = w.exp().sum()\nloss.backward()\nloss.backward()")
    assert (found.changed_note, found.carries) == ("frees the graph", "")


def test_where_another_backward_freed_the_graph_its_line_is_the_one_to_blame() -> None:
    found = first_of("fake = w.exp()\n(fake * 2).sum().backward()\ng = (fake * w).sum()\ng.backward()")
    assert found.changed is not None and found.changed.line == 2
    assert found.carries == "`fake`, read in In[2]:3, is still part of the freed graph."


def test_of_two_backwards_on_one_line_the_one_that_freed_the_graph_is_marked() -> None:
    found = first_of("for _ in range(2): u = w.exp(); d = torch.autograd.grad(u.sum(), w)[0]; (d + u).sum().backward()")
    assert marked(found) == ("frees the graph", "torch.autograd.grad(u.sum(), w)")
    assert found.needed_note == "needs the freed graph again"


@pytest.mark.parametrize(
    ("cell", "line", "note", "carets"),
    [
        pytest.param(
            "old = w.exp()\nfor _ in range(2):\n    ratio = w / old\n    loss = ratio.sum()\n    loss.backward()",
            *(3, "`old` is still part of the freed graph", "old"),
            id="made ahead of the loop",
        ),
        pytest.param(
            "a, b = w.exp(), w.sin()\nfor _ in range(2):\n    loss = (a * b * w).sum()\n    loss.backward()",
            *(3, "`a` and `b` are still part of the freed graph", "a * b"),
            id="two names in one expression",
        ),
        pytest.param(
            "rnn, state = torch.nn.LSTM(3, 3), None\nfor _ in range(3):\n"
            "    out, state = rnn(torch.ones(1, 1, 3), state)\n    out.sum().backward()",
            *(3, "`state` still carries the graph of iteration 1", "state"),
            id="a tuple of states",
        ),
        pytest.param(
            "seen = []\nfor i in range(3):\n    seen.append((w * i).exp())\n    loss = torch.stack(seen).sum()\n"
            "    loss.backward()",
            *(4, "`seen` is still part of the freed graph", "seen"),
            id="a list that is gathered",
        ),
        pytest.param(
            "class Cell:\n    state = torch.zeros(3)\n    def step(self):\n"
            "        self.state = torch.tanh(self.state * w)\n        return self.state\n"
            "cell = Cell()\nfor _ in range(3):\n    out = cell.step().sum()\n    out.backward()",
            *(4, "`self.state` is still part of the freed graph", "self.state"),
            id="an attribute, as the method writes it",
        ),
        pytest.param(
            "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.rnn = torch.nn.LSTM(3, 3)\n    def forward(self, x, state):\n"
            "        out, state = self.rnn(x, state)\n        return out, state\n"
            "net, hidden = Net(), None\nfor _ in range(3):\n    out, hidden = net(torch.ones(1, 1, 3), hidden)\n"
            "    loss = out.sum()\n    loss.backward()",
            *(10, "`hidden` still carries the graph of iteration 1", "hidden"),
            id="a call that is given a state, not the layer inside of it",
        ),
        pytest.param(
            "def step(old):\n    return (w / old).sum()\ndef train(before):\n    for _ in range(2):\n"
            "        loss = step(before)\n        loss.backward()\nbefore = w.exp()\ntrain(before)",
            *(5, "`before` is still part of the freed graph", "before"),
            id="a call in the loop, not the call that has the loop in it",
        ),
    ],
)
def test_in_a_loop_the_line_that_takes_it_over_is_the_one_to_blame(
    cell: str, line: int, note: str, carets: str
) -> None:
    found = first_of(cell)
    assert found.changed is not None and found.changed.line == line
    assert marked(found) == (note, carets)
    assert found.needed_note.startswith("frees the graph (iteration 1), needs the freed graph again")


def test_further_lines_that_take_it_over_are_named() -> None:
    found = first_of(
        "a, b = w.exp(), w.sin()\nfor _ in range(2):\n    x = a * w\n    loss = (x + b).sum()\n    loss.backward()"
    )
    assert marked(found) == ("`a` is still part of the freed graph", "a")
    assert found.carries == "`b` (In[2]:4) is part of it, too."


def test_a_name_that_further_lines_read_again_is_named_once() -> None:
    found = first_of(
        "a = w.exp()\nfor _ in range(2):\n    x = a * w\n    loss = (x + a * a).sum()\n    loss.backward()"
    )
    assert (marked(found), found.carries) == (("`a` is still part of the freed graph", "a"), "")


def test_what_else_is_lost_at_a_line_that_is_marked_is_not_counted() -> None:
    report = run_cells(
        START,
        "old = w.exp().sin().exp()\nfor _ in range(2):\n    ratio = w / old\n    loss = ratio.sum()\n    loss.backward()",
    ).output
    assert "`old` is still part of the freed graph" in report and "more found" not in report
