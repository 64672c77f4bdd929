"""Programs put together at random, each with a reference written by hand: what is said of a fix is so, over 20 steps."""

from __future__ import annotations

import contextlib
import io
import random
import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from ..cells import run_cells
from ..seeds import examples

SETUP = """import torch
from torch import nn
torch.manual_seed({seed})
lin, head = nn.Linear(4, 4), nn.Linear(4, 1)
squash = nn.Sequential(nn.Sigmoid(), nn.{module}(inplace=True))
{optimizers}
data = torch.randn(20, 5, 4)
log, total = [], 0.0"""
ACTIVATIONS = ("torch.exp({} / 4)", "torch.sigmoid({})", "torch.tanh({})", "torch.softmax({}, -1)")
OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop")
# What breaks a saved output, and the same without a write into it.
WRITES = (
    (["h += 1"], ["h = h + 1"]),
    (["h.mul_(2)"], ["h = h * 2"]),
    (["h *= h"], ["h = h * h"]),
    (["h[:, 0] = 0"], ["h = h.clone()", "h[:, 0] = 0"]),
    (["row = h.view(-1)", "row += 1"], ["h = h.clone()", "row = h.view(-1)", "row += 1"]),
    (["same = h", "same.clamp_(max=0.5)"], ["h = h.clone()", "same = h", "same.clamp_(max=0.5)"]),
    (["parts = [h]", "parts[0].add_(0.1)"], ["h = h.clone()", "parts = [h]", "parts[0].add_(0.1)"]),
    (["for _ in range(2):", "    h.add_(h.mean())"], ["for _ in range(2):", "    h = h + h.mean()"]),
    (["h = squash(h)"], ["h = squash[1](squash[0](h).clone())"]),
)
LOGS = (
    ["log.append(loss.item())"],
    ["log.append(loss.detach())"],
    ["total += loss.item()", "log.append(total)"],
    ["print(step, round(loss.item(), 3))"],
)
ORDERS = (
    ["optimizer.zero_grad()", "loss.backward()", "optimizer.step()"],
    ["loss.backward()", "optimizer.step()", "optimizer.zero_grad()"],
)
# Losses of one forward. The first one trains head, the second one lin; what trains lin needs head as it was.
SECOND_LOSSES = ("-out.mean()", "out.pow(2).mean()", "(out - h.sum(-1, keepdim=True)).abs().mean()")


@dataclass(frozen=True)
class Program:
    """A setup, a cell that fails, and what it means, as somebody writes it who knows autograd well."""

    setup: str
    broken: str
    meant: str


def program(seed: int) -> Program:
    draw = random.Random(seed)
    return draw.choice((one_optimizer, one_optimizer, two_optimizers))(draw, seed)


def one_optimizer(draw: random.Random, seed: int) -> Program:
    broken, meant = draw.choice(WRITES)
    first = [f"h = {draw.choice(ACTIVATIONS).format('lin(x)')}"]
    last = ["loss = (head(h) - 1).pow(2).mean()", *draw.choice(ORDERS), *draw.choice(LOGS)]
    optimizers = f"optimizer = torch.optim.{draw.choice(OPTIMIZERS)}([*lin.parameters(), *head.parameters()], lr=0.05)"
    return Program(setup_of(draw, seed, optimizers), loop(*first, *broken, *last), loop(*first, *meant, *last))


def two_optimizers(draw: random.Random, seed: int) -> Program:
    """One forward, two losses: the step after the first backward overwrites what the second one needs.

    Meant is that both gradients are those of the forward's weights, and that each step uses the gradients which its
    optimizer's parameters had where the step stands.
    """
    one, other = (draw.choice(OPTIMIZERS) for _ in range(2))
    optimizers = (
        f"of_head = torch.optim.{one}(head.parameters(), lr=0.05)\n"
        f"of_lin = torch.optim.{other}(lin.parameters(), lr=0.05)"
    )
    forward = [
        f"h = {draw.choice(ACTIVATIONS).format('lin(x)')}",
        "out = head(h)",
        "loss = (out - 1).pow(2).mean()",
        f"second = {draw.choice(SECOND_LOSSES)}",
    ]
    retained = draw.choice(("loss.backward(retain_graph=True)", "loss.backward()"))
    broken = [
        "of_head.zero_grad()",
        retained,
        "of_head.step()",
        "of_lin.zero_grad()",
        "second.backward()",
        "of_lin.step()",
    ]
    meant = [
        "of_head.zero_grad()",
        "loss.backward(retain_graph=True)",
        "used = [p.grad.clone() for p in head.parameters()]",
        "of_lin.zero_grad()",
        "second.backward()",
        "left = [p.grad for p in head.parameters()]",
        "for p, g in zip(head.parameters(), used):",
        "    p.grad = g",
        "of_head.step()",
        "for p, g in zip(head.parameters(), left):",
        "    p.grad = g",
        "of_lin.step()",
    ]
    log = draw.choice(LOGS)
    return Program(setup_of(draw, seed, optimizers), loop(*forward, *broken, *log), loop(*forward, *meant, *log))


def setup_of(draw: random.Random, seed: int, optimizers: str) -> str:
    return SETUP.format(seed=seed, module=draw.choice(("ReLU", "Hardtanh", "LeakyReLU")), optimizers=optimizers)


def loop(*lines: str) -> str:
    return "\n".join(["for step, x in enumerate(data):", *("    " + line for line in lines)])


def left_by(*cells: str) -> tuple[dict[str, Any], str]:
    """The names of a program and what it printed, run by itself."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for cell in cells:
            exec(compile(cell, "<program>", "exec"), names)
    return names, printed.getvalue()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float | torch.Tensor):
        return torch.allclose(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-3, atol=1e-5, equal_nan=True)
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    return bool(one == other)


def equal(one: Any, other: Any) -> bool:
    """To the last digit: what is said to be other may be so by little."""
    return bool(torch.equal(torch.as_tensor(one), torch.as_tensor(other)))


def weights(names: dict[str, Any]) -> list[torch.Tensor]:
    return [p.detach() for module in ("lin", "head") for p in names[module].parameters()]


@pytest.mark.random
@pytest.mark.parametrize("seed", range(examples(30)))
def test_what_is_said_of_a_fix_is_so(seed: int) -> None:
    print(f"seed {seed}")
    written = program(seed)
    run = run_cells(written.setup, written.broken)
    if run.error is None:  # the value that was written is not needed after all
        return
    assert run.diagnosis is not None, run.output
    expected, printed = left_by(written.setup, written.meant)
    for fix in run.diagnosis.fixes:
        if not fix.verified:
            continue
        found, said = left_by(fix.cells.get(1, written.setup), fix.cells.get(2, written.broken))
        about = f"{fix.title}: {fix.gradients} {fix.changes}\n{fix.cells.get(2)}"
        if fix.gradients == "same":
            assert fix.changes == (), about
            assert same(weights(found), weights(expected)), about
            assert said == printed and same(found["log"], expected["log"]), about
            assert same(found["h"], expected["h"]), about
        elif fix.gradients == "different" and not fix.changes:
            assert not same(weights(found), weights(expected)), about
        for clause in fix.changes:
            named = re.match(r"(\w+) (?:has other values|is \S+ instead of)", clause)
            if named:
                assert not equal(found[named[1]], expected[named[1]]), f"{clause}\n{about}"
            if clause.startswith("prints"):
                assert said != printed, about
