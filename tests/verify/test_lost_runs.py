"""What the machine does to a run has no part in the report."""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

import pytest

from inplace_magic.sandbox import fork

from ..cells import run_cells

NETWORKS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    x = torch.randn(5, 3)
    gen, disc = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))

    def train(g, d, rounds=2):
        opt_g, opt_d = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (g, d))
        for _ in range(rounds):
            fake = g(x)
            loss_d, loss_g = d(fake.detach()).exp().mean(), -d(fake).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
    """


def reported() -> Any:
    run = run_cells(NETWORKS, "train(gen, disc)")
    assert run.diagnosis is not None
    return [(fix.title, fix.gradients, fix.changes, fix.run) for fix in run.diagnosis.fixes], run.diagnosis.notes


def test_a_copy_that_is_killed_from_outside_is_made_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, numbers = fork._fork, itertools.count(1)
    killed: set[int] = set()

    def forked(*arguments: Any) -> Any:
        pid, pipe = plain(*arguments)
        if next(numbers) in killed:
            os.kill(pid, signal.SIGKILL)
        return pid, pipe

    monkeypatch.setattr(fork, "_fork", forked)
    expected = reported()
    copies = next(numbers) - 1
    assert copies > 4 and expected[0]
    for lost in range(1, copies + 1):
        numbers, killed = itertools.count(1), {lost}
        assert reported() == expected
