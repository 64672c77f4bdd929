from __future__ import annotations

import pytest

from ..trying import clean, fix_by, rewritten, rules

RULE = "context_each_time"
START = """
    import torch
    from torch import nn
    from torch.nn.utils import parametrize
    torch.manual_seed(0)
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Parameter(torch.ones(1))
        def forward(self, w):
            return torch.tanh(w) * self.g
    net = nn.Linear(3, 2)
    parametrize.register_parametrization(net, "weight", Scaled())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
CACHED = """
    losses = []
    with parametrize.cached():  # computed once
        for x in torch.randn(3, 4, 3):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
    """


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            CACHED.replace("    for x", "    print(len(losses))\n        for x"), id="the block does something else beside"
        ),
        pytest.param("h = net(torch.ones(4, 3))\nwith torch.enable_grad():\n    for _ in range(2):\n        h.sum().backward()", id="a name holds it"),
    ],
)  # fmt: skip
def test_proposes_nothing(cell: str) -> None:
    assert RULE not in rules(START, cell)


NESTED = """
    losses = []
    with parametrize.cached():
        for epoch in range(2):
            total = 0.0
            for x in torch.randn(2, 4, 3):
                loss = net(x).square().mean()  # through the weight
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            losses.append(total)
    """
EACH_BATCH = """
    losses = []
    for epoch in range(2):
        total = 0.0
        for x in torch.randn(2, 4, 3):
            with parametrize.cached():
                loss = net(x).square().mean()  # through the weight
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
        losses.append(total)
    """


def test_a_cache_around_several_loops_is_entered_in_each_iteration_of_the_innermost() -> None:
    fix = fix_by(RULE, START, NESTED)
    assert fix.cells == {2: clean(EACH_BATCH).rstrip()}
    assert fix.title == "for x in torch.randn(2, 4, 3): with parametrize.cached():"


@pytest.mark.parametrize(
    "header",
    ["with parametrize.cached(): # once", "with (parametrize.cached(),  # once\n          torch.enable_grad()):"],
)
def test_a_header_goes_as_it_stands(header: str) -> None:
    cell = CACHED.replace("with parametrize.cached():  # computed once", header)
    fix = fix_by(RULE, START, cell)
    assert fix.cells[2].count("# once") == 1 and fix.cells[2].count("cached()") == 1
    assert fix.cells[2].index("for x in") < fix.cells[2].index("cached()")


def test_a_cache_is_entered_in_each_iteration() -> None:
    fix = fix_by(RULE, START, CACHED)
    block, loop = "with parametrize.cached():  # computed once", "for x in torch.randn(3, 4, 3):"
    assert fix.cells == {2: rewritten(CACHED, (f"{block}\n    {loop}", f"{loop}\n    {block}"))}
    assert fix.title == "for x in torch.randn(3, 4, 3): with parametrize.cached():"
    assert (fix.gradients, fix.changes, fix.untrained) == ("different", (), ())
