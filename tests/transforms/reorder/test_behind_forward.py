from __future__ import annotations

import pytest

from ..trying import fixes, rewritten

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.kept = torch.zeros(1)

        def forward(self, x):
            self.kept = self.layer(x).tanh()
            return self.kept.sum(1)

    net, xs = Net(), torch.randn(3, 4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
LOOP = """
    for x in xs:
        opt.zero_grad()
        {first}
        {second}
        {loss}.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("lines", "loss", "swapped"),
    [
        pytest.param(
            ("loss = net.kept.square().mean()", "loss = loss + (net(x) - 1).square().mean()"),
            "loss",
            ("loss = (net(x) - 1).square().mean()", "loss = loss + net.kept.square().mean()"),
            id="the terms of a sum change places",
        ),
        pytest.param(
            ("loss = net.kept.square().mean()", "loss += (net(x) - 1).square().mean()"),
            "loss",
            ("loss = (net(x) - 1).square().mean()", "loss += net.kept.square().mean()"),
            id="and where the second is added in place",
        ),
        pytest.param(
            ("penalty = net.kept.square().mean()", "fit = (net(x) - 1).square().mean()"),
            "(fit + penalty)",
            ("fit = (net(x) - 1).square().mean()", "penalty = net.kept.square().mean()"),
            id="a line of its own goes behind",
        ),
    ],
)
def test_a_penalty_comes_behind_the_forward_that_makes_what_it_reads(
    lines: tuple[str, str], loss: str, swapped: tuple[str, str]
) -> None:
    text = LOOP.format(first=lines[0], second=lines[1], loss=loss)
    found = [fix.cells for fix in fixes(START, text)]
    assert {2: rewritten(LOOP.format(first=swapped[0], second=swapped[1], loss=loss))} in found


def test_a_line_that_the_forward_needs_stays_ahead() -> None:
    text = LOOP.format(first="last = net.kept.mean()", second="loss = (net(x) - last).square().mean()", loss="loss")
    assert not any("last = net.kept.mean() after" in fix.title for fix in fixes(START, text))
