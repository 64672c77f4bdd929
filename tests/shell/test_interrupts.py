"""Ctrl-C at any moment of what follows a failing cell: nothing lost, one line, the shell answers.

tests/seeds.py: how many there are for each room, and the seed.
"""

from __future__ import annotations

import collections
import logging
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cells import new_shell, run_in
from tests.fingerprints import Fingerprint
from tests.sandboxes import SANDBOXES
from tests.seeds import SEED, examples

TIMES = examples(10)
SETUP = """
import random, torch
from torch import nn
w = torch.ones(3, requires_grad=True)
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True))
adam = torch.optim.Adam(net.parameters())
items, table, tries = [1, [2]], {"a": w}, 0
"""
FAIL = """
tries += 1
for _ in range(3):
    items.append(random.random())
    net(torch.randn(4, 3)).sum().backward(); adam.step(); adam.zero_grad()
table["x"] = x = w.exp()
x += 1
x.sum().backward()
"""


@pytest.fixture(autouse=True)
def no_logging() -> Iterator[None]:
    """An interrupt between a log handler's acquire() and the ``try`` behind it leaves the handler's lock taken for good, and
    every other thread that logs would wait for it.
    """
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def children() -> set[str]:
    """The processes whose parent this one is, zombies too; those of other tests among them."""
    return {pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}


@pytest.mark.random
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
@pytest.mark.usefixtures("no_gc_callbacks")
@pytest.mark.parametrize("room", SANDBOXES)
def test_at_random_moments(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell = new_shell()
    run_in(shell, [f"%config InplaceMagic.sandbox = '{room}'", "%config InplaceMagic.fixes = 1", SETUP, FAIL])
    looks: list[Fingerprint] = []
    chance = random.Random(SEED)
    span = 0.1

    def before(result: Any) -> None:
        looks.append(Fingerprint(shell.user_ns, shell=shell))
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0002, span))

    def after(result: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        looks.append(Fingerprint(shell.user_ns, shell=shell))

    callbacks = shell.events.callbacks["post_run_cell"]
    tally: collections.Counter[str] = collections.Counter()
    handler = signal.signal(signal.SIGALRM, lambda *args: signal.raise_signal(signal.SIGINT))
    sigint = signal.getsignal(signal.SIGINT)
    strangers = children()
    try:
        start = time.monotonic()
        run_in(shell, [FAIL])
        span = 1.1 * (time.monotonic() - start)
        callbacks.insert(0, before)
        callbacks.append(after)
        for _ in range(TIMES):
            looks.clear()
            done = run_in(shell, [FAIL])
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert isinstance(done.error, RuntimeError)
            stopped = done.output.count("inplace_magic: stopped; nothing of yours was changed.")
            shown = done.output.count("In-place change broke")
            tally["stopped" if stopped else "in time" if shown else "neither"] += 1
            if len(looks) == 2:  # else it came between our handler and the last look
                assert list(looks[0].differences(looks[1])) == []
            assert stopped + shown >= 1 or len(looks) < 2, done.output
            assert stopped <= 1 and "Traceback" not in done.output.split("In-place change")[0].replace(
                "Traceback (most recent call last)", "", 1
            )
            assert signal.getsignal(signal.SIGINT) is sigint
            assert children() <= strangers, "no copy of the process is left behind"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        for callback in (before, after):
            if callback in callbacks:
                callbacks.remove(callback)
        with capsys.disabled():
            print(f"\n{room}: seed {SEED}, {dict(tally)}", file=sys.stderr)
    assert run_in(shell, [f"assert tries == {TIMES} + 2"]).error is None
    last = run_in(shell, [FAIL])
    assert last.diagnosis is not None and last.diagnosis.fixes


# ---- a real kernel ---------------------------------------------------------------------------------------------------


@pytest.mark.random
@pytest.mark.own_interpreter
@pytest.mark.parametrize("room", SANDBOXES)
def test_a_kernel_is_interrupted_and_answers(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    manager_module = pytest.importorskip("jupyter_client.manager")
    manager, client = manager_module.start_new_kernel(kernel_name="python3")
    chance = random.Random(SEED)
    tally: collections.Counter[str] = collections.Counter()

    def execute(code: str, interrupt_after: float | None = None) -> list[Any]:
        """The outputs of a cell. An interrupt is sent that long after its error was shown."""
        message = client.execute(code)
        outputs = []
        while True:
            got = client.get_iopub_msg(timeout=60)
            if got["parent_header"].get("msg_id") != message:
                continue
            if got["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
                return outputs
            if got["msg_type"] in ("error", "stream", "display_data", "execute_result"):
                outputs.append(got)
            if got["msg_type"] == "error" and interrupt_after is not None:
                time.sleep(interrupt_after)
                manager.interrupt_kernel()
                interrupt_after = None

    try:
        execute(
            f"%load_ext inplace_magic\n%config InplaceMagic.sandbox = '{room}'\n%config InplaceMagic.fixes = 1\n{SETUP}"
        )
        slow = "import time; time.sleep(0.2)\n" + FAIL
        for number in range(1, max(4, TIMES // 4) + 1):
            outputs = execute(slow, chance.uniform(0, 0.6))
            raised = [o["content"]["ename"] for o in outputs if o["msg_type"] == "error"]
            assert raised[:1] == ["RuntimeError"], outputs
            text = "".join(o["content"].get("text", "") for o in outputs)
            tally["stopped" if "nothing of yours was changed" in text else "in time"] += 1
            check = f"assert (tries, len(items)) == ({number}, 2 + 3 * {number}), (tries, len(items))\nprint('fine')"
            (answer,) = execute(check)
            assert answer["content"].get("text") == "fine\n", answer["content"]
        outputs = execute(FAIL)
        assert any(o["msg_type"] == "display_data" for o in outputs)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        with capsys.disabled():
            print(f"\n{room}, a kernel: seed {SEED}, {dict(tally)}", file=sys.stderr)
