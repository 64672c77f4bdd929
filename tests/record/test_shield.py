"""Whatever fails of ours while somebody's cell is watched ends the watch. The cell runs on as if nobody had watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import inplace_magic
from inplace_magic import storage
from inplace_magic.gradients import backward
from inplace_magic.record import operations, optimizer_steps, past_errors, recorder, retained_graphs, watcher
from inplace_magic.record.saved_tensors import SavedTensors
from inplace_magic.record.shield import Shield
from inplace_magic.record.silent import DETECTORS, python_nodes, stream
from inplace_magic.record.silent.events import EVENTS, Detector
from inplace_magic.record.watcher import Watcher
from inplace_magic.watch import Check

from ..cells import run_cells

PROGRAM = """
import numpy, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(x)
        ctx.mask = mask
        return x * mask
    @staticmethod
    def backward(ctx, g):
        return g * ctx.mask, None

net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True), nn.Linear(3, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
x, mask = torch.randn(5, 3, requires_grad=True), torch.rand(5, 3)
x.register_hook(lambda g: g.mul_(2))
data = numpy.ones((5, 3), dtype=numpy.float32)
counted = 0
for step in range(3):
    counted += 1
    optimizer.zero_grad()
    h = Scale.apply(x, mask) * torch.from_numpy(data)
    h.data.mul_(1.5)
    out = net(checkpoint(torch.tanh, h, use_reentrant=False))
    out += 1
    loss = out.pow(2).mean()
    loss.backward(retain_graph=True)
    (g,) = torch.autograd.grad(loss, [x])
    optimizer.step()
    data += 1
    with torch.no_grad():
        x.add_(g, alpha=-0.1)
result = [x.detach(), x.grad, *(p.detach() for p in net.parameters()), *(p.grad for p in net.parameters())]
"""
REFUSED = """
import torch
x = torch.ones(3, requires_grad=True)
y = x.exp()
(y * 2).sum().backward(retain_graph=True)
y.add_(1)
y.sum().backward()
"""


class Fault(Exception):
    pass


def run(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, "/home/somebody/train.py", "exec"), names)
    return names


def failing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int, after: bool = False) -> list[int]:
    """Makes the ``at``-th call of a function of ours raise; counts the calls."""
    plain: Callable[..., Any] = getattr(owner, name)
    calls: list[int] = []

    def fails(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        result = plain(*args, **kwargs) if after or len(calls) != at else None
        if len(calls) == at:
            raise Fault("of ours")
        return result

    monkeypatch.setattr(owner, name, fails)
    return calls


WAYS_IN = [
    (recorder, "storage_key"),
    (recorder, "user_stack"),
    (operations, "writer"),
    (recorder, "author_at"),
    (optimizer_steps, "by_itself"),
    (past_errors, "arguments"),
    (stream, "plain_name"),
    (stream, "user_stack"),
    (watcher, "version_of"),
    (backward, "user_stack"),
    (retained_graphs.KeptGraphs, "passed"),
    (Watcher, "tick"),
    (SavedTensors, "keep_all"),
    (Watcher, "note"),
    (SavedTensors, "remember"),
    (Watcher, "ask"),
    *((kind, event) for kind in DETECTORS for event in EVENTS if getattr(kind, event) is not getattr(Detector, event)),
]


def numbers(names: dict[str, Any]) -> list[Any]:
    return [t.tolist() for t in names["result"]]


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize(("owner", "name"), WAYS_IN, ids=lambda value: value if isinstance(value, str) else None)
def test_a_program_runs_on(owner: Any, name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(PROGRAM)
    calls = failing(monkeypatch, owner, name, at)
    with _perhaps():
        seen, names = watched(PROGRAM)
    assert numbers(names) == numbers(expected) and names["counted"] == 3
    if len(calls) >= at:
        assert seen.problem == "Fault: of ours"


def _perhaps() -> Any:
    import warnings

    return warnings.catch_warnings(action="ignore")


def watched(program: str) -> tuple[Check, dict[str, Any]]:
    with inplace_magic.check() as seen:
        names = run(program)
    return seen, names


def test_a_write_is_made_once_when_what_follows_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Watcher, "note", 1, after=True)
    with pytest.warns(RuntimeWarning, match="turned off"):
        _, names = watched(
            "import torch\nx = torch.ones(2)\nw = torch.ones(2, requires_grad=True)\n(w * x).sum(); y = w * x\nx += 1\n"
        )
    assert names["x"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("owner", "name"), [(recorder, "register_optimizer_step_post_hook"), (storage, "StorageWeakRef")]
)
def test_what_fails_half_way_on_or_off_leaves_nothing(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, owner, name, 1)
    with _perhaps():
        _, names = watched(PROGRAM)  # what is left behind is found by the fixture that looks after every test
    assert numbers(names) == numbers(run(PROGRAM))


@pytest.mark.parametrize(("owner", "name"), [(recorder, "user_stack"), (Watcher, "ask")])
def test_torchs_own_refusal_still_comes(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, owner, name, 1)
    with _perhaps(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        watched(REFUSED)


def test_errors_of_the_program_are_no_failure_of_ours() -> None:
    with inplace_magic.check() as seen, pytest.raises(RuntimeError, match="must match"):
        run("import torch\ntorch.ones(2) + torch.ones(3)")
    with pytest.raises(ZeroDivisionError):
        watched("import torch\ntorch.ones(2, requires_grad=True).register_hook(lambda g: 1 / 0).remove\n1 / 0")
    assert seen.problem is None


def test_a_cell_runs_on_and_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, python_nodes, "_reads", 1)
    run = run_cells(f"%%autograd_check\n{PROGRAM.strip()}\nprint('the end')")
    assert run.error is None
    assert [line for line in run.output.splitlines() if line] == [
        "the end",
        "autograd check: the watch itself failed and was turned off; the rest ran unwatched (Fault: of ours).",
    ]


def test_what_raised_is_not_called_again_when_ours_fails_on_the_way_out() -> None:
    calls = []

    def theirs() -> None:
        calls.append(1)
        raise KeyError("theirs")

    def ours(once: Callable[[], Any]) -> None:
        try:
            once()
        finally:
            raise ValueError("ours")

    shield = Shield()
    with pytest.raises(KeyError, match="theirs"):
        shield.around(theirs, ours)
    assert calls == [1]
    assert shield.failure == "ValueError: ours"
