"""Threads, pools and workers of the session, in a copy of the process that has none of them."""

from __future__ import annotations

import textwrap
import threading

import pytest

from tests.cells import Run, new_shell, run_in

SETUP = """
import queue, threading, torch, concurrent.futures, multiprocessing.pool
from torch.utils.data import DataLoader
w = torch.ones(3, requires_grad=True)
def double(x): return 2 * x
"""
FAILS = "x = (w * value).exp()\nx += 1\nx.sum().backward()"
POOLS = {
    "a pool of threads": (
        "pool = concurrent.futures.ThreadPoolExecutor(2); list(pool.map(double, range(4)))",
        "value = pool.submit(double, 3).result()",
        "pool.shutdown()",
    ),
    "a pool of processes": (
        "pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('fork'))\n"
        "pool.submit(abs, 1).result()",
        "value = pool.submit(abs, -3).result()",
        "pool.shutdown()",
    ),
    "multiprocessing's pool of threads": (
        "pool = multiprocessing.pool.ThreadPool(2); pool.map(double, range(4))",
        "value = pool.map(double, [3])[0]",
        "pool.terminate()",
    ),
    "a loader whose workers persist": (
        "loader = DataLoader(torch.ones(4), batch_size=2, num_workers=1, persistent_workers=True)\nlist(loader)",
        "value = [batch.sum().item() for batch in loader][0]",
        "del loader._iterator",
    ),
}


def note_of(done: Run) -> str:
    assert isinstance(done.error, RuntimeError) and done.diagnosis is not None, done.output
    return " ".join(done.diagnosis.notes)


@pytest.mark.parametrize("name", POOLS)
def test_what_runs_in_the_session_runs_in_a_copy_and_the_session_goes_on(name: str) -> None:
    before, used, after = POOLS[name]
    done = run_in(new_shell(), [SETUP, before, f"{used}\n{FAILS}"])
    assert note_of(done) == "" and done.diagnosis is not None and done.diagnosis.fixes, done.output
    done = run_in(done.shell, [f"{used}\nassert value\n{after}"])
    assert done.error is None, done.output


def test_a_queue_that_another_thread_fills_is_used_as_far_as_it_goes() -> None:
    feeder = """
    def feed():
        while not stop.is_set():
            try: items.put(1.0, timeout=0.05)
            except queue.Full: pass
    stop, items = threading.Event(), queue.Queue(3)
    thread = threading.Thread(target=feed, daemon=True); thread.start()
    while not items.full(): pass
    """
    done = run_in(
        new_shell(),
        [
            SETUP,
            textwrap.dedent(feeder),
            f"for step in range(9):\n    value = items.get()\n    {FAILS.replace(chr(10), chr(10) + '    ')}",
        ],
    )
    run_in(done.shell, ["stop.set(); thread.join()"])
    assert done.diagnosis is not None and done.diagnosis.fixes, done.output


def test_waiting_for_a_thread_that_a_copy_does_not_have_is_told_and_not_waited_for() -> None:
    asked, answer = threading.Event(), threading.Event()

    def serve() -> None:
        asked.wait()
        answer.set()

    threading.Thread(target=serve, daemon=True).start()
    shell = new_shell()
    shell.user_ns.update(asked=asked, answer=answer, value=1)  # not made by any cell
    done = run_in(shell, [SETUP, f"asked.set(); answer.wait(); answer.clear()\n{FAILS}"])
    assert "waits for another thread" in note_of(done), done.output
