"""The room within the process: its limit in time is kept, and leaves nothing on its way when the work is over."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
import types

import pytest
import torch

from inplace_magic.rerun import inprocess

SEED = random.SystemRandom().randrange(2**32)


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


_TRACED = """
import sys, types
from inplace_magic.rerun import inprocess
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
