"""Whatever the user calls it and wherever they keep it: what works for `h` and `F` works for any name of theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from .cells import Run, run_cells

START = """
import types
import torch
from torch import nn
torch.manual_seed(0)
cell, head = nn.GRUCell(3, 4), nn.Linear(4, 1)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
"""
LOOP = """
for step in range(3):
    {h} = cell(torch.randn(2, 3), {h})
    loss = head({h}).exp().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
STEP = """
def train_step(x):
    {declared}
    {h} = cell(x, {h})
    loss = head({h}).exp().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head, self.{h} = cell, head, torch.zeros(2, 4)
    def forward(self, x):
        self.{h} = self.cell(x, self.{h})
        return self.head(self.{h})
net = Net()
"""
TRAIN = """
for step in range(3):
    loss = net(torch.randn(2, 3)).exp().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TRAINER = """
import torch
from torch import nn

class Trainer:
    def __init__(self):
        self.cell, self.head, self._h = nn.GRUCell(3, 4), nn.Linear(4, 1), torch.zeros(2, 4)
    def step(self, x):
        self._h = self.cell(x, self._h)
        loss = self.head(self._h).exp().mean()
        loss.backward()
"""


def is_cut(run: Run) -> None:
    """The first fix cuts the graph between iterations and nothing else, and accepting it lets the cell run."""
    assert run.diagnosis is not None and run.diagnosis.family == "second_backward"
    assert run.diagnosis.fixes, run.output
    fix = run.diagnosis.fixes[0]
    assert fix.verified and fix.gradients == "truncated" and "detach()" in fix.diff
    assert run.cell("%autograd_fix --run").error is None


@pytest.mark.parametrize("name", ["h", "_h", "_hidden_state"])
def test_a_state_by_any_name(name: str) -> None:
    is_cut(run_cells(START + f"{name} = torch.zeros(2, 4)", LOOP.format(h=name)))


@pytest.mark.parametrize("name", ["hidden", "_hidden"])
def test_a_state_kept_by_a_model(name: str) -> None:
    is_cut(run_cells(START, MODEL.format(h=name), TRAIN))


@pytest.mark.parametrize(
    ("made", "name", "declared"),
    [
        pytest.param("_h = torch.zeros(2, 4)", "_h", "global _h", id="a global"),
        pytest.param("args = types.SimpleNamespace(h=torch.zeros(2, 4))", "args.h", "pass", id="a plain namespace"),
    ],
)
def test_a_state_that_a_function_finds(made: str, name: str, declared: str) -> None:
    step = STEP.format(h=name, declared=declared)
    is_cut(run_cells(START + made, step, "for _ in range(3):\n    train_step(torch.randn(2, 3))"))


def test_a_class_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_names_trainer.py").write_text(TRAINER)
    cells = (
        "import torch\nfrom own_names_trainer import Trainer",
        "t = Trainer()",
        "for _ in range(3):\n    t.step(torch.randn(2, 3))",
    )
    try:
        run = run_cells(*cells)
        assert run.diagnosis is not None and run.diagnosis.fixes
        fix = run.diagnosis.fixes[0]
        assert fix.gradients == "truncated" and list(fix.files) == [str(tmp_path / "own_names_trainer.py")]
    finally:
        sys.modules.pop("own_names_trainer", None)


@pytest.mark.parametrize(
    ("alias", "module", "call"),
    [
        pytest.param("import torch as t", "t", "t.relu_(y)", id="torch as t"),
        pytest.param("import torch.nn.functional as tf", "tf", "tf.relu_(y)", id="functional as tf"),
        pytest.param("from torch import nn as n", "n", "n.functional.relu_(y)", id="by way of nn"),
    ],
)
def test_a_modules_own_name_is_never_bound_anew(alias: str, module: str, call: str) -> None:
    run = run_cells(
        f"import torch\n{alias}\nx = torch.randn(4, requires_grad=True)",
        f"y = x.sigmoid()\n{call}\ny.sum().backward()\n",
    )
    assert run.diagnosis is not None and run.diagnosis.fixes
    fix = run.diagnosis.fixes[0]
    assert fix.verified and fix.gradients == "same" and f"+y = {call.replace('relu_', 'relu')}" in fix.diff
    assert run.cell("%autograd_fix --run").error is None
    assert not isinstance(run.shell.user_ns[module], torch.Tensor)
