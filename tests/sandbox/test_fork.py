"""The forked room: nothing of the parent changes, and whatever the child does, an answer comes back."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from inplace_magic.sandbox import fork

STATE = {"tensor": torch.zeros(3), "items": [1, 2]}


def test_nothing_of_the_parent_changes() -> None:
    def work() -> list[float]:
        STATE["tensor"].add_(1)  # type: ignore[attr-defined]
        STATE["items"].append(3)  # type: ignore[attr-defined]
        os.environ["INPLACE_MAGIC_TEST"] = "1"
        torch.manual_seed(1)
        return STATE["tensor"].tolist()  # type: ignore[attr-defined, no-any-return]

    rng, threads = torch.get_rng_state(), torch.get_num_threads()
    assert fork.run(work, 20).value == [1.0, 1.0, 1.0]
    assert STATE["tensor"].tolist() == [0.0, 0.0, 0.0] and STATE["items"] == [1, 2]  # type: ignore[attr-defined]
    assert STATE["tensor"]._version == 0 and "INPLACE_MAGIC_TEST" not in os.environ  # type: ignore[attr-defined]
    assert torch.equal(rng, torch.get_rng_state()) and torch.get_num_threads() == threads and gc.isenabled()


def test_shared_memory_and_open_files_of_the_parent_stay(tmp_path: Path) -> None:
    shared = torch.zeros(3).share_memory_()
    (tmp_path / "data.txt").write_text("first\nsecond\n")
    with open(tmp_path / "data.txt") as file:

        def work() -> list[float]:
            shared.add_(1)
            file.readline()
            return shared.tolist()

        outcome = fork.run(work, 20)
        assert file.readline() == "first\n"
    assert shared.tolist() == [0.0, 0.0, 0.0]
    assert outcome.value == [1.0, 1.0, 1.0]


def test_what_the_child_prints_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        print("from python")
        os.write(1, b"from a library")
        os.system("echo from a process")
        return 1

    assert fork.run(work, 20).value == 1
    assert capfd.readouterr().out == ""


def test_what_stands_in_a_buffer_is_written_once(tmp_path: Path) -> None:
    code = "import sys; from inplace_magic.sandbox import fork; sys.stdout.write('once'); fork.run(int, 20)"
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "once"


@pytest.mark.parametrize(
    ("work", "says"),
    [
        pytest.param(lambda: 1 / 0, "ZeroDivisionError", id="an exception"),
        pytest.param(lambda: os.kill(os.getpid(), signal.SIGSEGV), "crashed", id="a crash"),
        pytest.param(lambda: os._exit(0), "crashed", id="an exit"),
        pytest.param(lambda: sys.exit(3), "SystemExit", id="sys.exit"),
        pytest.param(lambda: lambda: 1, "", id="an answer that cannot be pickled"),
    ],
)
def test_a_failure_comes_back_as_one_clause(work: object, says: str) -> None:
    outcome = fork.run(work, 20)  # type: ignore[arg-type, var-annotated]
    assert outcome.value is None and outcome.failure is not None and says in outcome.failure


def test_a_child_that_hangs_is_killed_at_the_limit() -> None:
    start = time.monotonic()
    outcome = fork.run(lambda: time.sleep(60), 0.5)
    assert outcome.timed_out and outcome.failure is not None and "longer than 0.5 s" in outcome.failure
    assert time.monotonic() - start < 50


def _children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_ctrl_c_ends_the_wait_and_leaves_no_child() -> None:
    children: list[float] = []
    others = _children()  # of tests before this one

    def interrupt(seconds: float) -> None:
        children.append(seconds)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fork.run(lambda: time.sleep(60), 60, interrupt)
    assert children and _children() <= others


def test_an_answer_larger_than_a_pipe() -> None:
    assert fork.run(lambda: "x" * 3_000_000, 30).value == "x" * 3_000_000


def test_no_warning_about_threads_reaches_the_person() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fork.run(int, 20)
    assert not seen


def test_backward_after_the_parent_used_several_threads() -> None:
    torch.set_num_threads(2)
    weight = torch.randn(8, 3, 3, 3, requires_grad=True)
    torch.nn.functional.conv2d(torch.randn(4, 3, 32, 32), weight).sum().backward()

    def work() -> bool:
        weight.grad = None
        torch.nn.functional.conv2d(torch.randn(4, 3, 32, 32), weight).sum().backward()
        return weight.grad is not None

    assert fork.run(work, 30).value is True


def test_random_states_are_those_of_the_parent() -> None:
    state = random.getstate()
    drawn = random.random()
    random.setstate(state)
    assert fork.run(random.random, 20).value == drawn
    assert random.getstate() == state


def test_a_process_that_cannot_be_forked_is_a_failure_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    outcome = fork.run(int, 20)
    assert outcome.failure == "the process could not be copied (Resource temporarily unavailable)"


@pytest.mark.usefixtures("no_gc_callbacks")
def test_ctrl_c_at_any_moment_leaves_no_child_and_no_pipe() -> None:
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    handler = signal.signal(signal.SIGALRM, lambda *a: signal.raise_signal(signal.SIGINT))
    chance, seen = random.Random(3), 0
    try:
        for _ in range(40):
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.05))
            try:
                fork.run(lambda: time.sleep(0.03), 20)
            except KeyboardInterrupt:
                seen += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            with pytest.raises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert seen > 10
    if descriptors is not None:
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_ctrl_c_while_work_begun_ahead_is_ended_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fork.deaths, "forget", lambda pid: signal.raise_signal(signal.SIGINT)
    )  # killed, not yet waited for
    with pytest.raises(KeyboardInterrupt), fork.ahead(lambda tell: time.sleep(60), 90):
        pass
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="children are listed in /proc")
def test_work_that_is_begun_ahead_runs_beside_its_parent_and_ends_with_it_if_nobody_asks() -> None:
    with fork.ahead(lambda tell: 6 * 7, 10) as outcome:
        assert outcome().value == 42
    with fork.ahead(lambda tell: time.sleep(60), 90):
        children = set(_children())
        assert children
    assert not children & set(_children())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="children are listed in /proc")
def test_work_may_tell_something_before_it_is_over() -> None:
    def work(tell: Callable[[str], None]) -> str:
        tell("a line")
        tell("x" * 3_000_000)
        return "all"

    with fork.ahead(work, 30) as outcome:
        answers = [outcome() for _ in range(3)]
        assert [(a.value and a.value[:6], a.more) for a in answers] == [
            ("a line", True),
            ("xxxxxx", True),
            ("all", False),
        ]
    assert not _children()


def test_work_that_crashes_after_it_told_something_is_a_failure_in_words() -> None:
    def work(tell: Callable[[int], None]) -> int:
        tell(1)
        os.abort()

    with fork.ahead(work, 30) as outcome:
        assert outcome().value == 1
        assert outcome().failure == "the copy of the process crashed"


def test_the_time_limit_counts_from_the_beginning_of_the_work() -> None:
    def work(tell: Callable[[int], None]) -> int:
        time.sleep(2)
        tell(1)
        time.sleep(60)
        return 2

    with fork.ahead(work, 4) as outcome:
        assert outcome().value == 1
        start = time.monotonic()
        assert outcome().timed_out
        assert time.monotonic() - start < 4


def test_an_answer_that_came_in_time_may_be_asked_for_late() -> None:
    def work(tell: Callable[[int], None]) -> int:
        tell(1)
        return 2

    with fork.ahead(work, 0.5) as outcome:
        time.sleep(0.7)
        assert [outcome().value, outcome().value] == [1, 2]


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(number) for number in file.read().split()]
