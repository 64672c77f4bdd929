"""A projection of the weights goes behind the step that it is for."""

from __future__ import annotations

from ..trying import fixes, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    @torch.no_grad()
    def project():
        net[2].weight.clamp_(min=0)
    """
CELL = """
    losses = []
    for x in torch.randn(4, 5, 3):
        opt.zero_grad()
        loss = net(x).pow(2).mean()
        project()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    """


def test_it_stands_behind_the_backward_or_behind_the_step() -> None:
    gone = ("    project()\n", "")
    expected = [
        {2: rewritten(CELL, gone, ("loss.backward()\n", "loss.backward()\n    project()\n"))},
        {2: rewritten(CELL, gone, ("opt.step()\n", "opt.step()\n    project()\n"))},
    ]
    found = fixes(START, CELL)
    assert [fix.cells for fix in found if fix.rule == "move_step"] == expected
    assert (found[0].cells, found[0].gradients) == (expected[0], "same")


def test_what_uses_a_gradient_is_no_projection() -> None:
    update = "with torch.no_grad(): net[2].weight -= 0.1 * net[2].weight.grad"
    by_hand = CELL.replace("project()", update).replace("opt.zero_grad()", "pass")
    first = "net(torch.ones(1, 3)).sum().backward()"
    assert [fix.title for fix in fixes(START, first, by_hand) if "after opt.step()" in fix.title] == []
    assert rules(START, first, by_hand)
