from __future__ import annotations

import pytest

from ..trying import fix_by, rewritten, rules

RULE = "limit_backward"
START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(3)]
    opts = [torch.optim.Adam(net.parameters(), 1e-2) for net in nets]
    x = torch.randn(3, 4, 3)
    """
ONE_BUFFER = """
    values = torch.zeros(3, 4)
    for i, net in enumerate(nets):
        for t in range(4):
            values[i, t] = net(x[i, t]).squeeze()
    for i in range(3):
        opts[i].zero_grad()
        (values[i] - 1).pow(2).mean().backward()
        opts[i].step()
    """
CARRIED = """
    h = torch.zeros(1)
    for x_t in x[0]:
        h = nets[0](x_t + h)
        opts[0].zero_grad()
        h.pow(2).sum().backward()
        opts[0].step()
    """
OWN = 'inputs=[p for group in opts[i].param_groups for p in group["params"]], retain_graph=True'
KEPT = ONE_BUFFER.replace("backward()", "backward(retain_graph=True)")


def test_a_state_that_one_optimizer_steps_on_is_no_matter_of_other_parameters() -> None:
    assert RULE not in rules(START, CARRIED)


@pytest.mark.parametrize(
    ("cell", "old", "new"),
    [
        pytest.param(ONE_BUFFER, "backward()", f"backward({OWN})", id="the graph is used up"),
        pytest.param(
            KEPT,
            "backward(retain_graph=True)",
            "backward(retain_graph=True, " + OWN.removesuffix(", retain_graph=True") + ")",
            id="the graph is kept, and its weights are stepped",
        ),
    ],
)
def test_graphs_that_one_buffer_joins_are_gone_through_one_by_one(cell: str, old: str, new: str) -> None:
    fix = fix_by(RULE, START, cell)
    assert fix.cells == {2: rewritten(cell, (old, new))}
    assert (fix.gradients, fix.changes) == ("same", ())
