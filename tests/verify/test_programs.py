"""Programs put together at random, each with a reference written by hand: what is said of a fix is so, over 20 steps."""

from __future__ import annotations

import contextlib
import io
import random
import re
from typing import Any

import pytest
import torch

from ..cells import run_cells
from ..seeds import examples

SETUP = """import torch
from torch import nn
torch.manual_seed({seed})
lin, head = nn.Linear(4, 4), nn.Linear(4, 1)
optimizer = torch.optim.{optimizer}([*lin.parameters(), *head.parameters()], lr=0.05)
data = torch.randn(20, 5, 4)
log, total = [], 0.0"""
ACTIVATIONS = ("torch.exp({} / 4)", "torch.sigmoid({})", "torch.tanh({})", "torch.softmax({}, -1)")
# What breaks a saved output, and the same without a write into it.
WRITES = (
    (["h += 1"], ["h = h + 1"]),
    (["h.mul_(2)"], ["h = h * 2"]),
    (["h *= h"], ["h = h * h"]),
    (["h[:, 0] = 0"], ["h = h.clone()", "h[:, 0] = 0"]),
    (["row = h.view(-1)", "row += 1"], ["h = h.clone()", "row = h.view(-1)", "row += 1"]),
    (["same = h", "same.clamp_(max=0.5)"], ["h = h.clone()", "same = h", "same.clamp_(max=0.5)"]),
    (["parts = [h]", "parts[0].add_(0.1)"], ["h = h.clone()", "parts = [h]", "parts[0].add_(0.1)"]),
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


def program(seed: int) -> tuple[str, str, str]:
    """A setup, a cell that fails, and what it means."""
    draw = random.Random(seed)
    broken, meant = draw.choice(WRITES)
    first = [f"h = {draw.choice(ACTIVATIONS).format('lin(x)')}"]
    last = ["loss = (head(h) - 1).pow(2).mean()", *draw.choice(ORDERS), *draw.choice(LOGS)]

    def cell(write: list[str]) -> str:
        body = [*first, *write, *last]
        return "\n".join(["for step, x in enumerate(data):", *("    " + line for line in body)])

    setup = SETUP.format(seed=seed, optimizer=draw.choice(("SGD", "Adam")))
    return setup, cell(broken), cell(meant)


def left_by(*cells: str) -> tuple[dict[str, Any], str]:
    """The names of a program and what it printed, run by itself."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for cell in cells:
            exec(compile(cell, "<program>", "exec"), names)
    return names, printed.getvalue()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return torch.allclose(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-3, atol=1e-5)
    if isinstance(one, float):
        return abs(one - other) <= 1e-3 * abs(one) + 1e-5
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    return bool(one == other)


def weights(names: dict[str, Any]) -> list[torch.Tensor]:
    return [p.detach() for module in ("lin", "head") for p in names[module].parameters()]


@pytest.mark.random
@pytest.mark.parametrize("seed", range(examples(30)))
def test_what_is_said_of_a_fix_is_so(seed: int) -> None:
    print(f"seed {seed}")
    setup, broken, meant = program(seed)
    run = run_cells(setup, broken)
    if run.error is None:  # the value that was written is not needed after all
        return
    assert run.diagnosis is not None, run.output
    expected, printed = left_by(setup, meant)
    for fix in run.diagnosis.fixes:
        if not fix.verified:
            continue
        found, said = left_by(fix.cells.get(1, setup), fix.cells.get(2, broken))
        about = f"{fix.title}: {fix.gradients} {fix.changes}\n{fix.cells.get(2)}"
        if fix.gradients == "same":
            assert fix.changes == (), about
            assert same(weights(found), weights(expected)), about
            assert said == printed and same(found["log"], expected["log"]), about
            assert same(found["h"], expected["h"]), about
        for clause in fix.changes:
            named = re.match(r"(\w+) (?:has other values|is \S+ instead of)", clause)
            if named:
                assert not same(found[named[1]], expected[named[1]]), f"{clause}\n{about}"
            if clause.startswith("prints"):
                assert said != printed, about
