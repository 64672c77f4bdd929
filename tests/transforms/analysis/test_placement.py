from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, rewritten

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    mode = "recurrent"
    rnn, lstm, cell, linear = nn.RNN(3, 3), nn.LSTM(3, 3), nn.GRUCell(3, 3), nn.Linear(3, 3)
    """
SURE = """
    def train():
        state = torch.zeros(1, 2, 3)
        for x in torch.randn(3, 5, 2, 3):
            if mode == "recurrent":
                out, state = rnn(x, state)
            else:
                out = linear(x)
            out.pow(2).mean().backward()

    train()
    """
IN_BRANCH = """
    def train():
        if mode == "recurrent":
            state = torch.zeros(1, 2, 3)
        for x in torch.randn(3, 5, 2, 3):
            if mode == "linear":
                out = linear(x)
            else:
                out, state = rnn(x, state)
            loss = out.pow(2).mean()
            loss.backward()

    train()
    """
TUPLE = """
    def train(state=None):
        for x in torch.randn(3, 5, 2, 3):
            if mode == "linear":
                out = linear(x)
            else:
                out, state = lstm(x, state)
            loss = out.pow(2).mean()
            loss.backward()

    train()
    """
STILL_READ = """
    def train():
        if mode == "recurrent":
            h = torch.zeros(2, 3)
        for x in torch.randn(3, 2, 3):
            if mode == "linear":
                out = linear(x)
            else:
                h = cell(x, h)
                out = linear(h)
            loss = out.pow(2).mean()
            loss.backward()

    train()
    """
NOW_AND_THEN = """
    def train():
        for step, x in enumerate(torch.randn(4, 5, 2, 3)):
            if step % 2 == 0 or mode == "linear":
                code = linear(x[0]).tanh()
            out, _ = rnn(x)
            loss = (out * code).pow(2).mean()
            loss.backward()

    train()
    """


@pytest.mark.parametrize(
    ("cell", "change"),
    [
        pytest.param(
            NOW_AND_THEN,
            ("loss.backward()", "loss.backward()\n        code = code.detach()"),
            id="a name that only a branch assigns is cut behind the backward where each iteration reads it",
        ),
        pytest.param(
            SURE,
            (".backward()", ".backward()\n        state = state.detach()"),
            id="a name that is assigned before the loop is cut behind the backward",
        ),
        pytest.param(
            IN_BRANCH,
            ("state = rnn(x, state)", "state = rnn(x, state)\n            state = state.detach()"),
            id="a name that only a branch assigns is cut in that branch",
        ),
        pytest.param(
            TUPLE,
            ("lstm(x, state)", "lstm(x, state)\n            state = tuple(h.detach() for h in state)"),
            id="a tuple that may be None still is cut in the branch",
        ),
        pytest.param(
            STILL_READ,
            ("cell(x, h)", "cell(x, h.detach())"),
            id="a state that the branch goes on to read is cut where it comes in",
        ),
    ],
)
def test_the_cut_stands_where_the_value_is_assigned(cell: str, change: tuple[str, str]) -> None:
    fix = fix_by("detach", START, cell)
    assert fix.cells == {2: rewritten(cell, change)}
    assert fix.gradients == "truncated"
    other = run_cells(START, 'mode = "linear"', fix.cells[2])
    assert other.error is None, "the fixed cell runs in its other mode as well"
    assert run_cells(START, 'mode = "linear"', clean(cell)).error is None
