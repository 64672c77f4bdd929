"""Runs in which no gradient has any effect."""

from __future__ import annotations

import torch
from torch import nn

from inplace_magic.gradients.backward import GradientTrace
from inplace_magic.gradients.inert import IdleSteps
from inplace_magic.source.sources import Sources


def trace(inert: bool = True) -> GradientTrace:
    return GradientTrace(Sources({}, {}, None), inert=inert)


def test_weights_stay_and_gradients_are_there_but_zero() -> None:
    torch.manual_seed(0)
    net, x = nn.Linear(2, 1), torch.randn(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
    before = net.weight.detach().clone()
    with trace().listening() as heard, IdleSteps():
        for _ in range(3):
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()
            with torch.no_grad():
                net.bias -= 0.1 * net.bias.grad  # type: ignore[operator]
    assert torch.equal(net.weight, before)
    assert net.weight.grad is not None and not net.weight.grad.any()
    assert len(heard.passes(lambda t: None)) == 3
    assert any(any(g.digest or ()) for g in heard.passes(lambda t: None)[0].gradients), "they are looked at before"


def test_what_grad_gives_is_zero_unless_it_is_differentiated_again() -> None:
    x = torch.ones(2, requires_grad=True)
    with trace().listening(), IdleSteps():
        (plain,) = torch.autograd.grad((x**2).sum(), x)
        (tracked,) = torch.autograd.grad((x**2).sum(), x, create_graph=True)
    assert plain.tolist() == [0.0, 0.0] and tracked.tolist() == [2.0, 2.0]


def test_the_version_of_a_gradient_is_none_of_the_programs_business() -> None:
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    kept = x.grad
    assert kept is not None
    with trace().listening():
        (x * 2).sum().backward()
    assert x.grad is kept and kept._version == 1 and not kept.any()


def test_never_without_being_asked() -> None:
    x = torch.ones(2, requires_grad=True)
    with trace(inert=False).listening():
        (x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
