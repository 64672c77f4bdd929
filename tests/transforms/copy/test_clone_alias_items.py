"""A list or dict is filled with another look at the weights, past their graph, and its items are written."""

from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fixes, rewritten

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), torch.randn(4, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
TRAIN = """
    for _ in range(3):
        loss = net(x).pow(2).mean()
        {update}
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
IN_CLASS = """
    class Ema:
        def __init__(self, net):
            self.net, self.shadow = net, {}
            for name, p in net.named_parameters():
                self.shadow[name] = p.data

        def update(self):
            for name, p in self.net.named_parameters():
                self.shadow[name].mul_(0.9).add_(p.data, alpha=0.1)
    ema = Ema(net)
    """


@pytest.mark.parametrize(
    ("filled", "update", "copied"),
    [
        pytest.param(
            "average = {name: p.detach() for name, p in net.named_parameters()}",
            "for name, p in net.named_parameters(): average[name].mul_(0.9).add_(p.detach(), alpha=0.1)",
            ("p.detach()", "p.detach().clone()"),
            id="a comprehension over names",
        ),
        pytest.param(
            "average = [p.data for p in net.parameters()]",
            "for a, p in zip(average, net.parameters()): a.mul_(0.9).add_(p.data, alpha=0.1)",
            ("p.data", "p.data.clone()"),
            id="a list, item by item",
        ),
        pytest.param(
            "average = []\nfor p in net.parameters():\n    average.append(p.detach())",
            "for i, p in enumerate(net.parameters()): average[i].mul_(0.9).add_(p.detach(), alpha=0.1)",
            ("p.detach()", "p.detach().clone()"),
            id="a list that is appended to",
        ),
        pytest.param(
            "average = net.state_dict()",
            "for key, value in net.state_dict().items(): average[key].mul_(0.9).add_(value, alpha=0.1)",
            ("net.state_dict()", "{key: value.clone() for key, value in net.state_dict().items()}"),
            id="a state dict",
        ),
        pytest.param(
            IN_CLASS,
            "ema.update()",
            ("= p.data\n", "= p.data.clone()\n"),
            id="what an object keeps",
        ),
    ],
)
def test_an_average_of_the_weights_is_one_of_copies(filled: str, update: str, copied: tuple[str, str]) -> None:
    past_versions = ".data" in filled  # so that nothing fails
    run = run_cells(START, filled, ("%%autograd_check\n" if past_versions else "") + clean(TRAIN.format(update=update)))
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.cells == {2: rewritten(filled, copied)}
    assert first.changes  # the weights are no longer pulled to themselves
    assert all("not what was meant" in "".join(fix.changes) for fix in run.diagnosis.fixes if fix.gradients == "same")


def test_an_update_of_the_weights_through_another_look_stays_one() -> None:
    filled = "held = [p.detach() for p in net.parameters()]"
    update = "for h, p in zip(held, net.parameters()): h.sub_(0.0 if p.grad is None else 0.1 * p.grad)"
    first = fixes(START, filled, TRAIN.format(update=update))[0]
    assert first.cells.get(2, clean(filled)) == clean(filled)


def test_an_array_that_a_list_keeps_is_copied_where_it_is_put_there() -> None:
    cell = """
        seen = []
        out = torch.sigmoid(net(x))
        loss = out.pow(2).mean()
        seen.append(out.detach().squeeze(1).numpy())
        seen[-1] *= 100
        loss.backward()
        """
    run = run_cells(START, "%%autograd_check\n" + clean(cell))
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.changes == ("out has other values afterwards",)
    assert "seen.append(out.detach().squeeze(1).numpy().copy())" in first.cells[2]


def test_no_fix_takes_an_update_by_another_look_from_the_weights() -> None:
    filled = "flat = {name: p.detach() for name, p in net.named_parameters()}"
    cell = """
        for _ in range(2):
            out = net(x)
            loss, size = out.exp().mean(), out.pow(2).mean()
            for one in (loss, size):
                grads = torch.autograd.grad(one, list(net.parameters()), retain_graph=True)
                for (name, w), g in zip(flat.items(), grads):
                    flat[name].sub_(g, alpha=0.1)
        """
    run = run_cells(START, filled, cell)
    assert run.diagnosis is not None
    assert {fix.rule for fix in run.diagnosis.fixes} & {"out_of_place", "clone_before_write", "clone_alias"} == set()
