"""A long cell is gone on with from where it failed, and what is said then stands on the same failure."""

from __future__ import annotations

import gc
import textwrap

import pytest
import torch

from inplace_magic.reproduce import Reproduction
from tests.cells import Run, new_shell, run_in

SETUP = """
import contextlib, torch, torch.nn as nn
torch.manual_seed(0)
a, b = nn.Linear(4, 4), nn.Linear(4, 4)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
data = [torch.randn(3, 4) for _ in range(4)]
class Gate(nn.Module):
    on = False
    def forward(self, x):
        h = a(x)
        if self.on:
            m = torch.sigmoid(b(h))
            h *= m
        return h
gate, starts, history = Gate(), [], []
"""
STEP = """
            opt.zero_grad()
            loss = gate(x).pow(2).sum()
            loss.backward()
            opt.step()
"""
AT_THE_TOP = f"""
    starts.append(1)
    for epoch in range(3):
        gate.on = epoch == 2
        for x in data:{STEP}
        history.append(loss.item())
"""
CELLS = {
    "at the top": [AT_THE_TOP],
    "in a function": [
        f"""
        def train(data, epochs=3):
            for epoch in range(epochs):
                gate.on = epoch == 2
                for x in data:{STEP.replace(chr(10), chr(10) + " " * 8)}
        """,
        "starts.append(1)\ntrain(data)",
    ],
    "in a method, with a closure and super": [
        f"""
        class Base:
            def name(self): return "base"
        class Trainer(Base):
            def fit(self, data):
                assert starts
                for epoch in range(3):
                    gate.on = epoch == 2
                    for x in data:
                        assert super().name() == "base" and (lambda: x)() is x{STEP.replace(chr(10), chr(10) + " " * 12)}
        """,
        "starts.append(1)\nTrainer().fit(data)",
    ],
    "in a generator": [
        f"""
        def train(data):
            for x in data:
                gate.on = True{STEP.replace(chr(10), chr(10) + " " * 4)}
                yield loss.item()
        """,
        "starts.append(1)\nfor value in train(data): history.append(value)",
    ],
    "in a while loop": [
        f"""
        starts.append(1); step = 0
        while step < 9:
            gate.on, x = step > 2, data[0]{STEP}
            step += 1
        """
    ],
    "a target that the body binds again": [
        f"""
        starts.append(1)
        for step, x in enumerate(torch.stack(data).flatten(1)):
            x = x.reshape(3, 4)
            gate.on = True{STEP}
        """
    ],
    "in a context that the failure has left": [
        f"""
        starts.append(1)
        with contextlib.ExitStack() as kept, torch.enable_grad():
            for x in data:
                gate.on = True
                kept.callback(print){STEP.replace(chr(10), chr(10) + " " * 4)}
        """
    ],
    "with await at the top": [
        f"""
        import asyncio
        starts.append(1)
        for x in data:
            await asyncio.sleep(0)
            gate.on = True{STEP}
        """
    ],
    "a hidden state that is carried": [
        """
        starts.append(1)
        h = torch.zeros(3, 4)
        for x in data:
            h = torch.tanh(a(x) + b(h))
            opt.zero_grad()
            h.sum().backward()
        """
    ],
    "a hidden state that a function carries": [
        """
        def train(h):
            for x in data:
                h = torch.tanh(a(x) + b(h))
                opt.zero_grad()
                h.sum().backward()
        """,
        "starts.append(1)\ntrain(torch.zeros(3, 4))",
    ],
    "a parameter written in place": [
        """
        starts.append(1)
        for x in data:
            loss = a(x).pow(2).sum()
            loss.backward()
            a.weight -= 0.1 * a.weight.grad
        """
    ],
}


@pytest.fixture(autouse=True)
def a_long_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reproduction, "long", True)


def cells(name: str) -> list[str]:
    return [SETUP.strip(), *(textwrap.dedent(cell).strip("\n") for cell in CELLS[name])]


def failed(name: str) -> Run:
    done = run_in(new_shell(), cells(name))
    assert isinstance(done.error, RuntimeError), (done.error, done.output)
    return done


@pytest.mark.parametrize("name", CELLS)
def test_the_last_iteration_tells_the_line_and_verifies_a_fix(name: str) -> None:
    done = failed(name)
    found = done.diagnosis
    assert found is not None and found.fixes, done.output
    assert "Only the last iterations of the loop at In[" in " ".join(found.notes)
    assert found.changed is not None and found.changed.text, done.output
    fixed = done.cell("%autograd_fix --run")
    assert fixed.error is None, fixed.output


def test_the_names_of_the_session_and_of_the_frames_are_as_the_failure_left_them() -> None:
    done = failed("at the top")
    space = done.shell.user_ns
    assert (space["starts"], len(space["history"]), space["epoch"]) == ([1], 2, 2)
    assert not [name for name in space if name.startswith("_inplace_magic")]
    done = failed("in a function")
    assert not [n for n in done.shell.user_ns if n.startswith("_inplace_magic") or n in ("x", "epoch", "around")]


def test_another_failure_of_the_body_alone_is_not_taken_for_the_one_that_was_met() -> None:
    # A view of what an earlier iteration made: the body alone meets something else first, or nothing.
    text = """
    made = False
    for x in data:
        w = x.clone().requires_grad_()
        if not made:
            made = True
            h = torch.sigmoid(a(x)); h += 1; h.sum().backward()
    """
    done = run_in(new_shell(), [SETUP.strip(), textwrap.dedent(text).strip()])
    assert isinstance(done.error, RuntimeError) and done.diagnosis is not None
    assert "Only the last iterations" not in " ".join(done.diagnosis.notes)
    assert done.diagnosis.changed is not None and "h += 1" in done.diagnosis.changed.text, done.output


def test_frames_that_were_cleared_tell_nothing_and_the_cell_runs_from_its_start() -> None:
    import traceback

    shell = new_shell()
    before = shell.showtraceback

    def cleared(*args: object, **options: object) -> None:
        before(*args, **options)
        import sys

        if sys.exc_info()[2] is not None:
            traceback.clear_frames(sys.exc_info()[2])

    shell.showtraceback = cleared
    done = run_in(shell, cells("in a function"))
    assert done.diagnosis is not None and done.diagnosis.fixes, done.output


def test_nothing_is_kept_of_the_frames() -> None:
    class Mark:
        alive = 0

        def __init__(self) -> None:
            Mark.alive += 1

        def __del__(self) -> None:
            Mark.alive -= 1

    shell = new_shell()
    shell.user_ns["Mark"] = Mark
    setup, cell, run = cells("in a function")
    run_in(shell, [setup, cell.replace("for epoch in", "mark = Mark()\n    for epoch in"), run])
    run_in(shell, ["1/0"])  # the traceback that the shell keeps is another one now
    gc.collect()
    assert Mark.alive == 0
    assert torch.is_grad_enabled()
