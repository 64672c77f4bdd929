"""Cells that take long, reach outside of the process or hold what cannot be put back: what is run again, and what is said."""

from __future__ import annotations

import contextlib
import io
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from inplace_magic.torch_private import SAVED_TENSORS_TELL
from tests.cells import Run, new_shell, run_in
from tests.sandboxes import SANDBOXES

SETUP = "import os, threading, time, torch\nw = torch.ones(3, requires_grad=True)"
FAILS = "x = w.exp()\nx += 1\nx.sum().backward()"


def session(room: str, *cells: str) -> Any:
    shell = new_shell()
    done = run_in(shell, [f"%config InplaceMagic.sandbox = '{room}'", SETUP, *cells])
    assert done.error is None, done.output
    return shell


def note_of(done: Run) -> str:
    assert isinstance(done.error, RuntimeError) and done.diagnosis is not None, done.output
    return " ".join(done.diagnosis.notes)


# ---- time ------------------------------------------------------------------------------------------------------------


def test_a_cell_that_ran_longer_than_the_limit_is_run_again_from_its_start() -> None:
    done = run_in(session("auto", "%config InplaceMagic.time_limit = 2"), [f"time.sleep(2.2)\n{FAILS}"])
    assert note_of(done) == ""
    assert done.diagnosis is not None and done.diagnosis.fixes and done.diagnosis.changed is not None


@pytest.mark.parametrize("room", SANDBOXES)
def test_a_rerun_without_end_is_ended_at_the_limit(room: str) -> None:
    shell = session(room, "%config InplaceMagic.time_limit = 1", "tries = 0; time.sleep(0.8)")
    done = run_in(shell, [f"tries += 1\n{FAILS.splitlines()[0]}\nwhile tries > 1: pass\nx += 1\nx.sum().backward()"])
    told = re.search(r"it took longer than ([\d.]+) s \(%config InplaceMagic.time_limit = (\d+)\)", note_of(done))
    assert told is not None, note_of(done)
    assert 1 <= float(told[1]) < int(told[2]), "as long as the cell took, where that was more; and more is proposed"
    assert run_in(shell, ["assert tries == 1"]).error is None


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(written: str) -> str:
    """What a terminal shows in the end of what was written to it."""
    lines = []
    for line in written.split("\n"):
        left = ""
        for part in line.split("\r"):
            left = part + left[len(part) :]
        lines.append(left.rstrip())
    return "\n".join(lines)


def test_after_a_second_a_line_shows_what_goes_on_and_goes_away() -> None:
    shell = session("auto")
    screen = Screen()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(io.StringIO()):
        shell.run_cell(f"time.sleep(1.1)\n{FAILS}", store_history=True)
    assert "\rrunning it again to find the line, 1 s " in screen.getvalue().replace("\r", " \r")
    left = shown(screen.getvalue())
    assert "In-place change broke" in left and "%autograd_fix accepts it" in left
    assert not any(line in left for line in ("running it again", "looking for a fix", "trying a rewritten cell")), left


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    shell = session("auto")
    assert "\r" not in run_in(shell, [f"time.sleep(1.2)\n{FAILS}"]).output


# ---- effects outside of the process ----------------------------------------------------------------------------------

PLAYED = [
    pytest.param("with open('made.txt', 'a') as file: file.write('x')", id="a file"),
    pytest.param("torch.save(w, 'made.pt')", id="a checkpoint"),
    pytest.param("os.makedirs(f'made/{time.time()}')", id="a folder"),
]


@pytest.mark.parametrize("room", SANDBOXES)
@pytest.mark.parametrize("line", PLAYED)
def test_files_are_written_once_and_the_cell_is_fixed(
    room: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = session(room)
    made: dict[str, Any] = {}

    def look(result: Any) -> None:
        made.update({str(f): (f.stat().st_mtime_ns, f.is_file() and f.read_bytes()) for f in tmp_path.rglob("*")})

    shell.events.callbacks["post_run_cell"].insert(0, look)
    done = run_in(shell, [f"{line}\n{FAILS}"])
    assert done.diagnosis is not None and done.diagnosis.fixes and done.diagnosis.fixes[0].gradients == "same"
    now = {str(f): (f.stat().st_mtime_ns, f.is_file() and f.read_bytes()) for f in tmp_path.rglob("*")}
    assert made and made == now


OUTSIDE = [
    pytest.param("import subprocess; subprocess.run(['true'])", "it starts a process 'true'", id="a process"),
    pytest.param(
        "import socket\nwith socket.socket() as s: s.connect_ex(('127.0.0.1', 9))",
        "it opens a network connection", id="a connection",
    ),
    pytest.param("import builtins; ask = input; answer = ask('?')", "it asks for input", id="a question"),
]  # fmt: skip


@pytest.mark.parametrize("room", SANDBOXES)
@pytest.mark.parametrize(("line", "clause"), OUTSIDE)
def test_what_reaches_outside_is_done_once_and_told(
    room: str, line: str, clause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt="": asked.append(prompt) or "yes")  # type: ignore[func-returns-value]
    shell = session(room)
    made: dict[str, Any] = {}
    shell.events.register(
        "post_run_cell", lambda result: made.update({str(f): f.stat().st_mtime_ns for f in tmp_path.rglob("*")})
    )
    done = run_in(shell, [f"{line}\n{FAILS}"])
    note = note_of(done)
    assert clause in note and "Put %%autograd_check on the first line" in note
    assert "(to let a rerun do that as well: %config InplaceMagic.allow_side_effects = True)" in note
    assert done.diagnosis is not None
    assert (done.diagnosis.changed is not None) == SAVED_TENSORS_TELL, "the live graph tells the line where it can"
    assert made == {str(f): f.stat().st_mtime_ns for f in tmp_path.rglob("*")}
    assert len(asked) == ("input" in line)


def test_what_reaches_outside_is_done_again_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = session("auto", "%config InplaceMagic.allow_side_effects = True")
    done = run_in(shell, [f"with open('made.txt', 'a') as file: done = file.write('x')\n{FAILS}"])
    assert done.diagnosis is not None and done.diagnosis.fixes and done.diagnosis.fixes[0].gradients == "same"
    assert len((tmp_path / "made.txt").read_text()) > 1


def test_the_check_magic_goes_on_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shell = session("auto")
    done = run_in(shell, [f"%%autograd_check\nwith open('made.txt', 'a') as file: file.write('x')\n{FAILS}"])
    assert done.diagnosis is not None and done.diagnosis.changed is not None and done.diagnosis.saved is not None
    assert (tmp_path / "made.txt").read_text() == "x"


LOADER = """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.ones(4, 3)), batch_size=2, num_workers=2)
"""


@pytest.mark.parametrize("room", SANDBOXES)
def test_workers_of_a_loader_are_no_reason_to_decline(room: str) -> None:
    shell = session(room, LOADER)
    done = run_in(shell, ["for (batch,) in loader:\n    x = (batch * w).exp()\n    x += 1\n    x.sum().backward()"])
    assert done.diagnosis is not None and done.diagnosis.fixes and done.diagnosis.fixes[0].verified, (
        done.diagnosis.notes
    )


# ---- what cannot be taken into another process ---------------------------------------------------------------------------


@pytest.mark.parametrize("room", SANDBOXES)
def test_a_generator_from_an_earlier_cell(room: str) -> None:
    shell = session(room, "stream = (torch.ones(3) * k for k in range(9)); time.sleep(0.6)")
    done = run_in(shell, [f"batch = next(stream)\n{FAILS}"])
    assert run_in(shell, ["assert next(stream)[0] == 1"]).error is None
    assert done.diagnosis is not None and done.diagnosis.fixes


def test_a_generator_that_the_cell_cannot_get_at_is_no_reason_to_decline() -> None:
    shell = session("auto", "stream = (torch.ones(3) * k for k in range(9))")
    done = run_in(shell, [FAILS])
    assert done.diagnosis is not None and done.diagnosis.fixes
    assert run_in(shell, ["assert next(stream)[0] == 0"]).error is None


@pytest.mark.parametrize("room", SANDBOXES)
def test_a_thread_of_the_persons_goes_on(room: str) -> None:
    shell = session(
        room,
        "stop = threading.Event(); ticks = []\n"
        "def tick():\n    while not stop.wait(0.01): ticks.append(len(ticks))\n"
        "thread = threading.Thread(target=tick, name='ticking', daemon=True); thread.start()",
    )
    try:
        done = run_in(shell, [FAILS])
        assert done.diagnosis is not None and done.diagnosis.fixes
        went_on = "n = len(ticks); time.sleep(0.3); assert thread.is_alive() and len(ticks) > n"
        assert run_in(shell, [went_on, "assert ticks == [*range(len(ticks))]"]).error is None
    finally:
        run_in(shell, ["stop.set(); thread.join()"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_in_a_thread_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    shell = session("auto")
    cell = "def work():\n    x = w.exp(); x += 1; x.sum().backward()\nt = threading.Thread(target=work); t.start(); t.join()"
    done = run_in(shell, [cell])
    assert seen == [RuntimeError] and done.error is None and done.diagnosis is None
    assert "In-place" not in done.output
