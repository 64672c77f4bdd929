"""Optimizers that train by other means than ``.grad``: nothing is said of them."""

from __future__ import annotations

import pytest

from .programs import Program
from .running import watch

OWN = """class Own(torch.optim.Optimizer):
    def step(self, closure=None):
        {step}
net = nn.Linear(3, 1)
opt = Own(net.parameters(), {{}})
for turn in range(3):
    {turn}
"""
PARAMETERS = "self.param_groups[0]['params']"
LOSS = "net(v.detach()).square().sum()"


@pytest.mark.parametrize(
    ("step", "turn"),
    [
        pytest.param(
            f"for p, g in zip({PARAMETERS}, torch.autograd.grad(closure(), {PARAMETERS})): p.data.sub_(g)",
            f"opt.step(lambda: {LOSS})",
            id="it writes into .data by gradients that it asks for",
        ),
        pytest.param(
            f"for p in {PARAMETERS}: p.data = p.data - p.kept",
            f"for p in net.parameters(): p.kept = torch.ones_like(p)\n    ({LOSS}).backward()\n    opt.zero_grad()\n    opt.step()",
            id="it puts other .data in place by what hooks might have kept",
        ),
    ],
)
def test_nothing_is_said_of_a_step_that_changes_the_values(step: str, turn: str) -> None:
    text = OWN.format(step=step, turn=turn)
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    assert not seen.findings


def test_a_step_that_changes_nothing_is_told_of() -> None:
    text = OWN.format(step="pass", turn="v.square().sum().backward()\n    opt.step()")
    (found,) = watch(Program("by hand", text), text).findings
    assert found.changed is not None and found.changed.text == "opt.step()"
