"""A gradient that is nobody else's may be written, also where what follows from it is summed up later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import inplace_magic

Branches = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def found(branches: Branches, hook: Callable[[torch.Tensor], object]) -> list[str]:
    x = torch.rand(4, requires_grad=True)
    with inplace_magic.check() as seen:
        base = x * 1
        high = torch.tanh(base)
        high.register_hook(hook)
        branches(base, high).square().sum().backward()
    assert seen.problem is None
    return [str(finding.sentence) for finding in seen.findings]


@pytest.mark.parametrize("hook", [lambda g: g.mul_(0.3), lambda g: g.zero_()], ids=["scaled", "zeroed"])
@pytest.mark.parametrize(
    "branches",
    [
        lambda base, high: base * 2 + high * 3,
        lambda base, high: torch.where(torch.zeros(4, dtype=torch.bool), base, high) + base.detach(),
        lambda base, high: torch.add(base, high, alpha=0.5),
        lambda base, high: torch.cat([base, high]),
    ],
    ids=["products of their own", "a branch of which nothing is taken", "a part of a sum", "pieces of one memory"],
)
def test_a_gradient_of_its_own_may_be_written(branches: Branches, hook: Callable[[torch.Tensor], object]) -> None:
    assert found(branches, hook) == []


@pytest.mark.parametrize("hook", [lambda g: g.mul_(0.3), lambda g: g.zero_()], ids=["scaled", "zeroed"])
def test_one_that_a_sum_has_handed_to_both_may_not(hook: Callable[[torch.Tensor], object]) -> None:
    assert len(found(lambda base, high: base + high, hook)) == 1


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].mul_(0.5)


def test_what_is_looked_at_is_put_into_grad_as_it_is_and_not_copied() -> None:
    """autograd copies a gradient that somebody else holds, and the copy has been written once."""
    first, linear, x = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.rand(2, 3)
    with inplace_magic.check() as seen:
        x = first(x)
        (x + Halved.apply(linear(x))).square().sum().backward()
    assert linear.bias.grad is not None and linear.bias.grad._version == 0
    assert seen.findings
