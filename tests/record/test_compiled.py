"""Compiled and transformed code: watched and rerun as it was written, and compiled again afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import inplace_magic
from inplace_magic.record.compiled import uncompiled
from tests.cells import run_cells

MODEL = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
    def forward(self, x):
        h = torch.sigmoid(self.norm(self.a(x)))
        {write}
        return self.b(h).pow(2).mean()
net = Net()
model = torch.compile(net, backend="eager")
opt = torch.optim.Adam(net.parameters(), 1e-3)
"""
EPOCH = "for n in (8, 8, 4):\n    loss = model(torch.randn(n, 4)); opt.zero_grad(); loss.backward(); opt.step()"


def test_a_healthy_compiled_cell_is_watched_without_a_word_and_compiles_again() -> None:
    done = run_cells(MODEL.format(write="h = h + 1"), EPOCH, "%%autograd_check\n" + EPOCH, EPOCH)
    assert done.error is None and done.diagnosis is None, done.output
    assert "nothing found" in done.output and "compiled code ran uncompiled meanwhile" in done.output


def test_a_cell_that_compiles_while_it_is_watched_does_not_raise() -> None:
    program = f"""
import inplace_magic, torch
with inplace_magic.check() as seen:
{chr(10).join("    " + line for line in (MODEL.format(write="h = h + 1") + EPOCH).strip().splitlines())}
print(len(seen.findings), seen.backwards, torch._dynamo.utils.counters["frames"]["total"])
{EPOCH}
print(torch._dynamo.utils.counters["frames"]["total"])
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    before, after = done.stdout.splitlines()
    assert before == "0 3 0" and int(after) > 0, done.stderr


def test_a_mistake_in_compiled_code_is_found_and_a_fix_is_verified() -> None:
    done = run_cells(MODEL.format(write="h += 1"), EPOCH)
    assert isinstance(done.error, RuntimeError) and done.diagnosis is not None
    assert done.diagnosis.changed is not None and done.diagnosis.changed.text == "h += 1", done.output
    assert done.diagnosis.fixes and "ran uncompiled" in " ".join(done.diagnosis.notes)
    assert done.cell("%autograd_fix --run").error is None


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "per = vmap(grad(lambda w, x: (w * x).sum().sin()), in_dims=(None, 0))(w.detach(), X)\n"
            "(w * per.mean(0)).sum().backward()",
            id="per-sample gradients",
        ),
        pytest.param("(jacrev(torch.sin)(w).diagonal() * w).sum().backward()", id="a jacobian"),
        pytest.param(
            "with torch.autocast('cpu', dtype=torch.bfloat16):\n    loss = lin(X).square().mean()\nloss.backward()",
            id="autocast",
        ),
        pytest.param(
            "h = checkpoint(lambda x: lin(x).relu_(), X, use_reentrant=False)\nh.sum().backward()",
            id="a checkpoint without reentry",
        ),
        pytest.param(
            "h = checkpoint(lambda x: lin(x).relu_(), X.requires_grad_(), use_reentrant=True)\nh.sum().backward()",
            id="a checkpoint with reentry",
        ),
        pytest.param(
            "with torch.autograd.set_detect_anomaly(True):\n    lin(X).sum().backward()", id="anomaly mode on"
        ),
        pytest.param(
            "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):\n    lin(X).sum().backward()",
            id="the profiler",
        ),
        pytest.param(
            "one = lin.register_forward_hook(lambda m, i, o: o * 2)\n"
            "two = w.register_hook(lambda g: g * 2)\n(lin(X) * w).sum().backward()\none.remove(); two.remove()",
            id="hooks",
        ),
    ],
)
def test_transformed_code_is_watched_without_a_word(code: str) -> None:
    setup = (
        "import torch\nfrom torch.func import grad, vmap, jacrev\nfrom torch.utils.checkpoint import checkpoint\n"
        "w, X, lin = torch.randn(3, requires_grad=True), torch.randn(5, 3), torch.nn.Linear(3, 3)"
    )
    done = run_cells(setup, "%%autograd_check\n" + code)
    assert done.error is None and done.diagnosis is None, done.output
    assert "nothing found" in done.output


def test_top_level_await_is_watched_and_rerun() -> None:
    done = run_cells(
        "import asyncio, torch\nw = torch.ones(3, requires_grad=True)",
        "%%autograd_check\nawait asyncio.sleep(0)\nx = w.exp()\nx = x + 1\nx.sum().backward()",
    )
    assert done.error is None and "nothing found" in done.output, done.output
    done = done.cell("await asyncio.sleep(0)\nx = w.exp()\nx += 1\nx.sum().backward()")
    assert done.diagnosis is not None and done.diagnosis.fixes, done.output
    assert done.cell("%autograd_fix --run").error is None, done.output


def test_compile_is_put_back() -> None:
    plain = torch.compile
    with uncompiled():
        pass
    assert torch.compile is plain
    with inplace_magic.check():
        assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
    assert torch.compile is plain
