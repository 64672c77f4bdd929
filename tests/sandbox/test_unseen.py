"""What a session could notice of a rerun's process: hooks around forks, SIGCHLD, processes and folders that are left."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from inplace_magic.sandbox import fork, lifetime
from tests.cells import new_shell, run_in
from tests.sandboxes import needs_replica

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
SEEN: list[str] = []


def test_no_hook_of_the_persons_is_called_and_all_are_called_afterwards() -> None:
    os.register_at_fork(before=lambda: SEEN.append("before"), after_in_parent=lambda: SEEN.append("after"))
    SEEN.clear()
    assert fork.run(lambda: 1, 60).value == 1
    assert SEEN == []
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert SEEN == ["before", "after"]


@pytest.fixture
def deaths() -> Iterator[list[int]]:
    found: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGCHLD, before)


def test_a_handler_hears_of_the_sessions_children_only(deaths: list[int]) -> None:
    handler = signal.getsignal(signal.SIGCHLD)
    assert fork.run(lambda: 1, 60).value == 1
    assert deaths == [] and signal.getsignal(signal.SIGCHLD) is handler
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert deaths == [signal.SIGCHLD]


@needs_replica
@pytest.mark.own_interpreter
def test_a_handler_does_not_hear_of_a_replica(deaths: list[int]) -> None:
    handler = signal.getsignal(signal.SIGCHLD)
    shell = new_shell()
    failing = "import torch\ny = torch.ones(3, requires_grad=True).exp()\ny += 1\ny.sum().backward()"
    done = run_in(shell, ["%config InplaceMagic.sandbox = 'replica'", "%config InplaceMagic.fixes = 1", failing])
    assert done.diagnosis is not None and done.diagnosis.fixes
    assert deaths == [] and signal.getsignal(signal.SIGCHLD) is handler


def test_a_child_of_the_session_that_ends_meanwhile_is_heard_of(deaths: list[int]) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])

    def on_wait(seconds: float) -> None:
        child.wait()

    def work() -> int:
        import time

        time.sleep(3)
        return 1

    assert fork.run(work, 60, on_wait).value == 1
    child.wait()
    assert deaths == [signal.SIGCHLD]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_rerun_and_its_children_end_with_the_session() -> None:
    """Killed, the session cannot end its rerun itself."""
    session = textwrap.dedent(
        """
        import os, time
        from inplace_magic.sandbox import fork
        def work():
            if os.fork() == 0:
                time.sleep(600)
            os.write(said, f"{os.getpid()}".encode())
            time.sleep(600)
        read, said = os.pipe()
        fork.kept_open.add(said)
        def on_wait(seconds):
            print(os.read(read, 20).decode(), flush=True)
            os.kill(os.getpid(), 9)
        fork.run(work, 600, on_wait)
        """
    )
    done = subprocess.run([sys.executable, "-c", session], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert _ends(int(done.stdout))


def _ends(pid: int) -> bool:
    import time

    for _ in range(600):
        if not os.path.exists(f"/proc/{pid}/stat") or _state(pid) == "Z":
            return True
        time.sleep(0.05)
    return False


def _state(pid: int) -> Any:
    try:
        with open(f"/proc/{pid}/stat") as text:
            return text.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_folder_that_was_left_by_a_process_of_the_same_number_is_not_taken_for_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = set()
    for _ in range(2):
        monkeypatch.setattr(lifetime, "_numbers", itertools.count(1))
        found.add(lifetime.scratch_folder())
    assert len(found) == 2
    assert all(lifetime._lives(os.path.basename(path)) for path in found)
