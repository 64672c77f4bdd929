"""Rules for an update between forward and backward: swapped, moved, computed later or again, cut."""

from __future__ import annotations

import pytest

from ..cells import run_cells
from .trying import fix_by, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    G = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
    D = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optG = torch.optim.SGD(G.parameters(), lr=0.1)
    optD = torch.optim.SGD(D.parameters(), lr=0.1)
    z, real = torch.randn(5, 2), torch.randn(5, 3)
    """
SHARED = """
    fake = G(z)
    loss_d = D(fake).exp().mean() - D(real).mean()
    optD.zero_grad()
    loss_d.backward()
    optD.step()
    loss_g = -D(fake).mean()
    optG.zero_grad()
    loss_g.backward()
    optG.step()
    """
PRECOMPUTED = """
    fake = G(z)
    loss_d = D(fake.detach()).exp().mean() - D(real).mean()
    # through D as it is now
    loss_g = -D(fake).mean()

    optD.zero_grad()
    loss_d.backward()
    optD.step()

    optG.zero_grad()
    loss_g.backward()
    optG.step()
    """
TWICE = """
    a, b = D(real), D(real * 2)
    optD.zero_grad()
    a.exp().mean().backward()
    optD.step()
    optD.zero_grad()
    b.exp().mean().backward()
    optD.step()
    """
OWN_UPDATE = """
    def code(z):
        g = G(z)
        if z.shape[0] > 2:
            g.exp().mean().backward()
            optG.step()
            optG.zero_grad()
        return g * 2
    """
CODED = """
    loss = D(code(z)).exp().mean()
    optD.zero_grad()
    loss.backward()
    optD.step()
    """
CLIPPED = """
    loss = D(real).mean()
    with torch.no_grad():   # keep it Lipschitz
        for p in D.parameters():
            p.clamp_(-0.1, 0.1)
    optD.zero_grad()
    loss.backward()
    optD.step()
    """
CLIP = "with torch.no_grad():\n    for p in D.parameters():\n        p.clamp_(-0.1, 0.1)\n"
CLIPPED_AFTER_THE_STEP = """
    score = D(G(z))
    loss_d = score.exp().mean() - D(real).mean()
    optD.zero_grad()
    loss_d.backward(retain_graph=True)
    optD.step()
    with torch.no_grad():
        for p in D.parameters():
            p.clamp_(-0.1, 0.1)
    loss_g = -score.mean()
    optG.zero_grad()
    loss_g.backward()
    optG.step()
    """
IN_METHODS = """
    class Gan:
        def forward(self):
            self.fake = G(z)
            self.pred = D(self.fake)

        def backward_d(self):
            self.pred.exp().mean().backward()

        def backward_g(self):
            (self.fake.pow(2) - self.pred).mean().backward()

        def optimize(self):
            self.forward()
            optD.zero_grad()
            self.backward_d()
            optD.step()
            optG.zero_grad()
            self.backward_g()
            optG.step()
    """
HEADS = """
    a, b = nn.Linear(3, 1), nn.Linear(3, 1)
    opt_a = torch.optim.SGD([*G.parameters(), *a.parameters()], lr=0.1)
    opt_b = torch.optim.SGD(G.parameters(), lr=0.1)
    """
TWO_HEADS = """
    h = torch.tanh(G(z))
    loss_a = a(h).pow(2).mean()
    opt_a.zero_grad()
    loss_a.backward(retain_graph=True)
    opt_a.step()
    loss_b = (b(h) - 1).pow(2).mean()
    opt_b.zero_grad()
    loss_b.backward()
    opt_b.step()
    """
OF_THREE = """
    a, b = nn.Linear(3, 1), nn.Linear(3, 1)
    opt_a = torch.optim.SGD([*G.parameters(), *a.parameters()], lr=0.1)
    opt_b, opt_g = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (b, G))
    """


@pytest.mark.parametrize(
    ("rule", "cells"),
    [
        pytest.param("detach", (PRECOMPUTED,), id="a loss that would train nothing is no fix"),
        pytest.param("retain", (SHARED,), id="a graph is not kept over a step by itself"),
        pytest.param("sum_losses", (SHARED,), id="losses with a step between them are not summed"),
    ],
)
def test_is_not_offered(rule: str, cells: tuple[str, ...]) -> None:
    assert rule not in rules(START, *cells)


@pytest.mark.parametrize(
    ("rule", "cells", "changes", "gradients"),
    [
        pytest.param(
            "move_step",
            (CLIPPED,),
            [
                (
                    "with torch.no_grad():   # keep it Lipschitz\n    for p in D.parameters():\n        p.clamp_(-0.1, 0.1)\n",
                    "",
                ),
                (
                    "loss.backward()\n",
                    "loss.backward()\nwith torch.no_grad():   # keep it Lipschitz\n"
                    "    for p in D.parameters():\n        p.clamp_(-0.1, 0.1)\n",
                ),
            ],
            "same",
            id="clipping of the weights, with its block",
        ),
        pytest.param(
            "move_step",
            (CLIPPED_AFTER_THE_STEP,),
            [
                ("optD.step()\n" + CLIP + "loss_g", "loss_g"),
                ("loss_g.backward()\n", "loss_g.backward(inputs=list(G.parameters()))\noptD.step()\n" + CLIP),
            ],
            "same",
            id="a step, with what is done to the same weights after it, in their order",
        ),
        pytest.param(
            "move_step",
            (HEADS, TWO_HEADS),
            [
                (
                    "opt_a.step()\nloss_b = (b(h) - 1).pow(2).mean()\nopt_b.zero_grad()\nloss_b.backward()\n",
                    "loss_b = (b(h) - 1).pow(2).mean()\nparams = list(G.parameters())\n"
                    "grads = torch.autograd.grad(loss_b, params, retain_graph=True, allow_unused=True)\n"
                    "opt_a.step()\nfor p, g in zip(params, grads):\n    p.grad = g\n",
                ),
            ],
            "truncated",
            id="gradients first where the optimizers share parameters",
        ),
        pytest.param(
            "move_step",
            (
                OF_THREE,
                TWO_HEADS.replace("opt_b.zero_grad()", "opt_b.zero_grad()\n    opt_g.zero_grad()") + "opt_g.step()\n",
            ),
            [
                (
                    "opt_a.step()\nloss_b = (b(h) - 1).pow(2).mean()\nopt_b.zero_grad()\nopt_g.zero_grad()\nloss_b.backward()\n",
                    "loss_b = (b(h) - 1).pow(2).mean()\n"
                    'params = [p for opt in (opt_b, opt_g) for group in opt.param_groups for p in group["params"]]\n'
                    "grads = torch.autograd.grad(loss_b, params, retain_graph=True, allow_unused=True)\n"
                    "opt_a.step()\nfor p, g in zip(params, grads):\n    p.grad = g\n",
                ),
            ],
            "same",
            id="gradients first for each optimizer that steps behind the later backward",
        ),
    ],
)
def test_is_proved(rule: str, cells: tuple[str, ...], changes: list[tuple[str, str]], gradients: str) -> None:
    fix = fix_by(rule, START, *cells)
    assert fix.cells == {len(cells) + 1: rewritten(cells[-1], *changes)}
    assert fix.gradients == gradients


def test_a_function_with_an_update_of_its_own_hands_on_the_values() -> None:
    fix = fix_by("detach", START, OWN_UPDATE, CODED)
    assert fix.cells == {3: rewritten(CODED, ("D(code(z))", "D(code(z).detach())"))}
    assert fix.gradients == "truncated"
    assert fix.changes == ("G[0].weight.grad is None afterwards, and 3 more",)


def test_an_optimizer_that_steps_after_both_anyway_steps_once() -> None:
    run = run_cells(START, TWICE)
    assert run.diagnosis is not None
    (fix,) = [f for f in run.diagnosis.fixes if f.title == "one optD.step() for both"]
    assert fix.cells == {2: rewritten(TWICE, ("optD.step()\noptD.zero_grad()\nb", "b"))}
    assert (fix.gradients, [f for f in run.diagnosis.fixes if "after b.exp" in f.title]) == ("different", [])


def test_values_that_a_forward_keeps_in_attributes_are_made_again() -> None:
    fix = fix_by("recompute", START, IN_METHODS, "Gan().optimize()")
    assert fix.cells == {
        2: rewritten(
            IN_METHODS,
            ("D(self.fake)", "D(self.fake.detach())"),
            (
                "            (self.fake.pow".removeprefix("    "),
                "        self.pred = D(self.fake)\n        (self.fake.pow",
            ),
        )
    }


def test_gradients_that_are_part_of_a_graph_are_let_go() -> None:
    cell = """
        w = torch.ones(3, requires_grad=True)
        (w ** 3).sum().backward(create_graph=True)
        penalty = (w.grad ** 2).sum()
        w.grad.zero_()
        penalty.backward()
        """
    fix = fix_by("drop_gradient", START, cell)
    assert fix.cells == {2: rewritten(cell, ("w.grad.zero_()", "w.grad = None"))}
    assert fix.gradients == "same"
