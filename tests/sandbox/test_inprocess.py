"""The room within the process: its limit in time is kept, and leaves nothing on its way when the work is over."""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from inplace_magic.gradients.backward import GradientTrace
from inplace_magic.record.recorder import Recorder
from inplace_magic.sandbox import inprocess
from inplace_magic.source.document import Sources
from tests.seeds import SEED

_BACKWARD = (torch.autograd.backward, torch.Tensor.backward)


class Publisher:
    def publish(self, *args: object, **kwargs: object) -> None: ...


def shell() -> types.SimpleNamespace:
    return types.SimpleNamespace(user_ns={"__name__": "__main__"}, display_pub=Publisher())


def turning(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


def test_work_that_is_done_in_time_gives_its_value() -> None:
    outcome = inprocess.run(shell(), lambda: turning(0.01), 5.0)
    assert (outcome.value, outcome.failure) == ("done", None)


def test_work_without_end_is_ended() -> None:
    outcome = inprocess.run(shell(), lambda: turning(60), 0.2)
    assert outcome.timed_out and outcome.failure == "it took longer than 0.2 s"


@pytest.mark.filterwarnings("ignore")
def test_a_limit_that_is_reached_as_the_work_ends_reaches_nobody_else() -> None:
    chance = random.Random(SEED)
    for _ in range(100):
        outcome = inprocess.run(shell(), lambda: turning(0.004), chance.uniform(0.003, 0.005))
        assert outcome.timed_out or outcome.value == "done", SEED
        turning(0.0005)


def test_ctrl_c_that_the_cell_swallows_stops_us_all_the_same() -> None:
    def swallowing() -> str:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return "went on"

    with pytest.raises(KeyboardInterrupt):
        inprocess.run(shell(), swallowing, 5.0)


def test_ctrl_c_that_loses_a_mode_of_torchs_is_still_ctrl_c() -> None:
    def losing() -> None:
        torch._C._pop_torch_function_stack()
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        inprocess.run(shell(), losing, 5.0)
    assert torch._C._len_torch_function_stack() == 0


_SWITCHES = (torch.is_grad_enabled, torch._C._is_torch_function_enabled, torch._C._len_torch_function_stack)


@pytest.mark.parametrize("moment", ["as it is entered", "as it is left"])
def test_an_interrupted_context_manager_does_not_come_back_to_life_when_garbage_is_collected(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator that is never gone on with sets back what it once set, at whatever time it is thrown away."""
    manager: Any = contextlib._GeneratorContextManager
    enter, leave = manager.__enter__, manager.__exit__
    count, stop_at = 1, 0

    def counted(which: str) -> None:
        nonlocal count
        count += which == moment
        if which == moment and count == stop_at:
            signal.raise_signal(signal.SIGINT)

    def entered(self: Any) -> Any:
        value = enter(self)
        counted("as it is entered")
        return value

    def left(self: Any, *exception: Any) -> Any:
        counted("as it is left")
        return leave(self, *exception)

    x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)

    @contextlib.contextmanager
    def theirs() -> Iterator[None]:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield

    def work() -> None:
        with theirs(), theirs():
            x.add_(1)
        with GradientTrace(Sources({}, {}, None)).listening(), Recorder(Sources({}, {}, None)):
            (w.exp() * x).sum().backward()

    while count >= stop_at:
        count, stop_at = 0, stop_at + 1
        with contextlib.suppress(KeyboardInterrupt), monkeypatch.context() as patch:
            patch.setattr(manager, "__enter__", entered)
            patch.setattr(manager, "__exit__", left)
            inprocess.run(shell(), work, 60.0)
        gc.collect()
        assert [switch() for switch in _SWITCHES] == [True, True, 0], stop_at
        assert (torch.autograd.backward, torch.Tensor.backward) == _BACKWARD, stop_at
    assert stop_at > 10


def test_what_the_cell_left_half_way_is_thrown_away_within_the_room() -> None:
    @contextlib.contextmanager
    def theirs() -> Iterator[None]:
        with torch.no_grad():
            yield

    def work() -> None:
        loop: list[Any] = [theirs(), theirs()]
        loop.append(loop)
        for manager in loop[:2]:
            manager.__enter__()

    inprocess.run(shell(), work, 5.0)
    gc.collect()
    assert torch.is_grad_enabled()


_TRACED = """
import sys, types
from inplace_magic.sandbox import inprocess
shell = types.SimpleNamespace(user_ns={}, display_pub=types.SimpleNamespace(publish=None))
print(inprocess.run(shell, lambda: "done", LIMIT).value)
def called(): ...
lines = []
sys.settrace(lambda frame, event, argument: lines.append(event))
called()
sys.settrace(None)
print(lines)
"""


@pytest.mark.parametrize("limit", [5.0, 0.0])
def test_a_debugger_works_afterwards(limit: float) -> None:
    """In a process of its own: where it does not, a call has no end."""
    code = _TRACED.replace("LIMIT", str(limit))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split("\n")[1] == "['call']"
