"""A rerun that is ended before its end: what was recorded before stands, and is reported."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from inplace_magic.sandbox import Policy, Sandbox, fork
from inplace_magic.session.run_cell import Touched
from tests.cells import new_shell, run_in
from tests.sandboxes import SANDBOXES, needs_fork

SETUP = "import sys, torch\nw = torch.ones(3, requires_grad=True)\ntries, stream = 0, (k for k in range(9))"
FAILS = "tries += 1\nx = w.exp()\nx += 1\nx.sum().backward()"


def session(room: str, *cells: str) -> Any:
    shell = new_shell()
    done = run_in(shell, [f"%config InplaceMagic.sandbox = '{room}'", "%config InplaceMagic.fixes = 1", SETUP, *cells])
    assert done.error is None, done.output
    return shell


ENDS = [
    pytest.param("pass", id="nothing"),
    pytest.param("sys.exit(3)", id="sys.exit"),
    pytest.param("os._exit(3)", id="os._exit"),
    pytest.param("raise KeyboardInterrupt", id="an interrupt of its own"),
    pytest.param("torch.empty(2**45)", id="no memory"),
    pytest.param("next(stream)", id="what stayed in the session"),
    pytest.param("[1 for _ in iter(int, 1)]", id="the limit"),
]


@pytest.mark.parametrize("room", SANDBOXES)
@pytest.mark.parametrize("end", ENDS)
def test_what_was_recorded_before_an_end_stands(room: str, end: str) -> None:
    shell = session(room, "%config InplaceMagic.time_limit = 3", "import os")
    done = run_in(shell, [f"{FAILS}\n{end}"])
    assert isinstance(done.error, RuntimeError) and done.diagnosis is not None, done.output
    assert done.diagnosis.changed is not None and done.diagnosis.changed.text.strip() == "x += 1"
    assert done.diagnosis.fixes and done.diagnosis.fixes[0].verified and done.diagnosis.notes == ()


class Known:
    """Tells that it has begun, then works on without end; what it knows by the time it is told to end is its answer."""

    def __call__(self, shell: Any, tell: Any = None) -> str:
        tell("begun")
        try:
            while True:
                time.sleep(0.01)
        except fork.Ended:
            return "known"

    def touched(self, shell: Any) -> Touched:
        return Touched(gone=frozenset({"everything"}))


@contextlib.contextmanager
def interrupted(after_s: float) -> Iterator[None]:
    """Ctrl-C comes after so many seconds."""
    before = signal.signal(signal.SIGALRM, lambda *args: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
@pytest.mark.parametrize("room", SANDBOXES)
def test_work_tells_what_it_knows_when_it_is_interrupted(room: Any) -> None:
    with Sandbox(session(room), Policy(room)) as sandbox, sandbox.telling(Known(), 600) as outcome:
        assert outcome().value == "begun"
        with pytest.raises(KeyboardInterrupt), interrupted(0.1):
            outcome()
        assert outcome().value == "known"


@pytest.mark.parametrize("room", SANDBOXES)
def test_work_tells_what_it_knows_when_its_time_is_over(room: Any) -> None:
    with Sandbox(session(room), Policy(room)) as sandbox, sandbox.telling(Known(), 1) as outcome:
        assert outcome().value == "begun"
        last = outcome()
        assert (last.value, last.timed_out) == ("known", True)


@needs_fork
def test_ctrl_c_ends_the_search_and_leaves_the_lines() -> None:
    shell = session("fork", "import time")
    cell = f"{FAILS}\ntime.sleep(100)"
    for seconds in (2, 8, 32):  # until it is late enough for this machine
        run_in(shell, ["tries = 0"])
        with interrupted(seconds):
            done = run_in(shell, [cell])
        assert isinstance(done.error, RuntimeError)
        if done.diagnosis is not None and done.diagnosis.notes == ("Interrupted: further fixes were not tried.",):
            break
    else:
        raise AssertionError(done.output)
    assert done.diagnosis.changed is not None and done.diagnosis.changed.text.strip() == "x += 1"


@needs_fork
def test_ctrl_c_in_a_terminal_is_not_the_childs() -> None:
    """It goes to all processes of a group."""
    assert fork.run(lambda: os.getpgrp() == os.getpid(), 20).value is True
