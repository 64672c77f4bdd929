"""Steps of optimizers in a large session: what they leave alone, what they count, and what still moves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from inplace_magic.record import light_steps
from inplace_magic.sandbox import process_memory
from tests.cells import run_cells
from tests.sandboxes import SANDBOXES

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "foreach": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
}


class ByHand(torch.optim.Optimizer):
    """Somebody's own."""

    def __init__(self, params: Iterator[nn.Parameter]) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.sub_(0.1 * parameter.grad)


@contextlib.contextmanager
def lightly() -> Iterator[light_steps.LightSteps]:
    steps = light_steps.LightSteps()
    with steps.counted(), steps.lightened():
        yield steps


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> nn.Linear:
    """Its bias moves, its weight is too much."""
    monkeypatch.setattr(light_steps, "_MOVED", 10)
    torch.manual_seed(0)
    net = nn.Linear(4, 5)
    net(torch.ones(3, 4)).pow(2).sum().backward()
    return net


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_leaves_a_large_parameter_and_its_gradient_and_keeps_nothing_for_it(net: nn.Linear, kind: str) -> None:
    optimizer = OPTIMIZERS[kind](net.parameters())
    weight, gradient = net.weight.detach().clone(), net.weight.grad
    assert gradient is not None
    value = gradient.clone()
    with lightly():
        optimizer.step()
    assert torch.equal(net.weight, weight)
    assert net.weight.grad is gradient and torch.equal(gradient, value)
    assert net.weight not in optimizer.state or not optimizer.state[net.weight]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_counts_as_a_write_once(net: nn.Linear, kind: str) -> None:
    optimizer = OPTIMIZERS[kind](net.parameters())
    before = net.weight._version
    with lightly():
        optimizer.step()
        assert net.weight._version == before + 1
    assert net.weight._version == before


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_small_parameters_move_as_ever(net: nn.Linear, kind: str) -> None:
    other = nn.Linear(4, 5)
    other.load_state_dict(net.state_dict())
    other.weight.grad, other.bias.grad = net.weight.grad, net.bias.grad
    OPTIMIZERS[kind](other.parameters()).step()
    optimizer = OPTIMIZERS[kind](net.parameters())
    with lightly():
        optimizer.step()
    assert torch.equal(net.bias, other.bias)


@pytest.mark.parametrize("kind", ["by hand", "closure", "with a hook"])
def test_code_of_the_users_runs_as_it_is(net: nn.Linear, kind: str) -> None:
    optimizer = ByHand(net.parameters()) if kind == "by hand" else torch.optim.SGD(net.parameters(), lr=0.1)
    if kind == "with a hook":
        optimizer.register_step_post_hook(lambda *_: None)
    before = net.weight.detach().clone()
    with lightly():
        optimizer.step(*[lambda: 0.0] if kind == "closure" else [])
    assert not torch.equal(net.weight, before)


def test_a_step_that_raises_loses_no_gradient(net: nn.Linear) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = "much"
    other = torch.optim.SGD(net.parameters(), lr=0.1)
    gradient = net.weight.grad
    with lightly():
        with pytest.raises(TypeError):
            optimizer.step()
        other.step()
    assert net.weight.grad is gradient


def test_nothing_of_it_stays(net: nn.Linear) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = net.weight.detach().clone()
    with lightly() as steps:
        pass
    optimizer.step()
    assert not torch.equal(net.weight, before)
    assert not steps.stays(net.weight)


@pytest.mark.parametrize("room", SANDBOXES)
def test_the_session_is_as_the_cell_left_it(monkeypatch: pytest.MonkeyPatch, room: str) -> None:
    monkeypatch.setattr(light_steps, "_MOVED", 4)
    monkeypatch.setattr(process_memory, "own_bytes", lambda: 2**40)
    cells = [
        "import torch",
        "torch.manual_seed(0)\nnet = torch.nn.Linear(3, 4)\nopt = torch.optim.Adam(net.parameters(), lr=0.1)",
        "net(torch.ones(2, 3)).exp().sum().backward()\nopt.step()",
        "out = net(torch.ones(2, 3)) @ net.weight\nout.sum().backward(retain_graph=True)\n"
        "opt.step()\nout.pow(2).sum().backward()",
    ]

    def state(shell: Any) -> list[object]:
        net, opt = shell.user_ns["net"], shell.user_ns["opt"]
        kept = [value.tolist() for per in opt.state.values() for value in per.values()]
        return [kept, *((p._version, p.grad._version, p.tolist(), p.grad.tolist()) for p in net.parameters())]

    plain = run_cells("%config InplaceMagic.enabled = False", *cells)
    run = run_cells(f"%config InplaceMagic.sandbox = {room!r}", *cells)
    assert run.diagnosis is not None and run.diagnosis.fixes, run.output
    assert run.diagnosis.changed is not None and run.diagnosis.changed.text == "opt.step()"
    assert state(run.shell) == state(plain.shell)
