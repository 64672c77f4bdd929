"""What a report by a replica holds at its peak: an interpreter with torch, and the session once more."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandboxes import needs_replica

pytestmark = [
    needs_replica,
    pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux's account of shared pages"),
]
LAYERS = 24  # of 1024 x 1024: with gradients and Adam's state 16 bytes for each parameter
SESSION = LAYERS * 1024 * 1025 * 16
INTERPRETER = 350 * 2**20  # with torch, and what the replay allocates beside the session
SCRIPT = """
    import sys
    sys.path[:0] = {path!r}
    import torch
    torch.set_num_threads(1)
    from tests.cells import new_shell, run_in
    shell = new_shell()
    run_in(shell, ["%config InplaceMagic.sandbox = 'replica'", "%config InplaceMagic.fixes = 1", '''
    import torch, torch.nn as nn
    net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range({layers})])
    opt, x = torch.optim.Adam(net.parameters()), torch.randn(16, 1024)
    def step(bad):
        opt.zero_grad()
        h = x
        for layer in net: h = torch.tanh(layer(h))
        if bad: h += 1
        h.pow(2).mean().backward()
        opt.step()
    step(False)
    '''])
    for bad in (False, True):
        print("begin", flush=True)
        done = run_in(shell, [f"for i in range(2): step({{bad}} and i == 1)"])
        print("fixes", len(done.diagnosis.fixes) if done.diagnosis else 0, flush=True)
        sys.stdin.readline()
"""


def processes(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        below = [c for t in threads for c in Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    except OSError:
        return
    for child in below:
        yield from processes(int(child))


def held(pid: int) -> int:
    """Bytes of a process: its part of what it shares, all of the rest; 0 where it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def peak_until_answer(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The most that was held until the session's next line, and that line."""
    assert process.stdout is not None and process.stdin is not None
    over, peak = threading.Event(), [0]

    def look() -> None:
        while not over.wait(0.03):
            peak[0] = max(peak[0], sum(map(held, processes(process.pid))))

    assert process.stdout.readline() == "begin\n"
    thread = threading.Thread(target=look)
    thread.start()
    line = process.stdout.readline()
    over.set()
    thread.join()
    process.stdin.write("\n")
    process.stdin.flush()
    return peak[0], line


def test_a_report_by_a_replica_holds_the_session_once_more() -> None:
    script = textwrap.dedent(SCRIPT).format(path=sys.path, layers=LAYERS)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        healthy, _ = peak_until_answer(process)
        reported, line = peak_until_answer(process)
    assert line == "fixes 1\n"
    assert reported - healthy < 1.25 * SESSION + INTERPRETER
