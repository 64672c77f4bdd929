from __future__ import annotations

from ...cells import run_cells
from ..trying import rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
        def forward(self, x):
            out = torch.tanh(self.lin(x))
            self.loss = out.square().mean()
            return out
        def send(self, keep=False):
            self.loss.backward(retain_graph=keep)
            return self.loss.item()
    net = nn.Sequential(Layer(), Layer(), Layer())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
LOOP = """
    for x in torch.randn(2, 4, 3):
        opt.zero_grad()
        net(x)
        score = 0
        for layer in net:
            score += layer.send()
        opt.step()
    """


def test_each_layers_own_loss_goes_back_through_a_graph_that_is_kept() -> None:
    run = run_cells(START, LOOP)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("retain", "same")
    assert "self.loss.backward(retain_graph=True)" in first.cells[1]


def test_one_loss_again_and_again_keeps_no_graph() -> None:
    again = rewritten(
        LOOP, ("for layer in net:\n        score += layer.send()", "for _ in range(3):\n        score += net[2].send()")
    )
    assert "retain" not in rules(START, again)


def test_a_graph_that_a_step_has_made_stale_is_not_kept_for_ever() -> None:
    assert "retain" not in rules(START, rewritten(LOOP, ("layer.send()", "layer.send(); opt.step()")))
