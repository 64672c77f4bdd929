"""A real IPython under a pseudo-terminal: the report, then the next prompt holds the rewritten cell."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.breadth import broad
from tests.sandboxes import SANDBOXES

pexpect = pytest.importorskip("pexpect")

_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]|\x1b\][^\x07]*\x07")
SETUP = "import torch; w = torch.ones(3, requires_grad=True)"
FAILS = "x = w.exp(); x += 1; x.sum().backward()"


class Terminal:
    """Types into IPython, and reads the screen as text."""

    def __init__(self, home: Path, term: str = "xterm", *options: str) -> None:
        environment = {
            "TERM": term,
            "HOME": str(home),
            "IPYTHONDIR": str(home),
            "PATH": "/usr/bin:/bin",
            "NO_COLOR": "1",
        }
        self.child = pexpect.spawn(
            sys.executable, ["-m", "IPython", "--no-banner", "--HistoryManager.enabled=False", *options],
            env=environment, dimensions=(50, 110), timeout=300, encoding="utf-8",
        )  # fmt: skip
        self.prompt(1)

    def close(self) -> None:
        self.child.ptyproc.delayafterterminate = 10  # seconds that a busy machine may need to end it
        self.child.close(force=True)

    def prompt(self, number: int) -> str:
        """What came before the prompt In[number]."""
        self.child.expect(rf"In \[(\x1b\[[0-9;]*m)*{number}(\x1b\[[0-9;]*m)*\]: ?")
        return _CODES.sub("", self.child.before)

    def type(self, line: str, following: int) -> str:
        self.child.send(line + "\r")
        return self.prompt(following)

    def settle(self) -> str:
        """The screen once nothing more is drawn."""
        text, self.child.buffer = self.child.buffer, ""
        while True:
            try:
                text += self.child.read_nonblocking(4096, timeout=1.5)
            except pexpect.TIMEOUT:
                return _CODES.sub("", text)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Any]:
    one = Terminal(tmp_path)
    yield one
    one.close()


def fail(terminal: Terminal) -> str:
    terminal.type("%load_ext inplace_magic", 2)
    terminal.type(SETUP, 3)
    terminal.child.send(FAILS + "\r")
    report = terminal.prompt(4)
    assert "In-place change broke the backward pass" in report
    assert report.index("RuntimeError") < report.index("In-place change broke")
    return terminal.settle()


def test_enter_accepts_the_rewritten_cell(terminal: Terminal) -> None:
    shown = fail(terminal)
    assert "x = w.exp(); x = x + 1; x.sum().backward()" in shown
    terminal.child.send("\r")
    after = terminal.prompt(5)
    assert "Error" not in after
    terminal.settle()
    terminal.child.send("print('grad', w.grad.sum() > 8)\r")
    assert "grad tensor(True)" in terminal.prompt(6) + terminal.settle()


def test_what_the_prompt_holds_is_announced_and_typing_replaces_it(terminal: Terminal) -> None:
    terminal.type("%load_ext inplace_magic", 2)
    terminal.type(SETUP, 3)
    terminal.child.send(FAILS + "\r")
    report = terminal.prompt(4)
    assert "The next prompt holds the fixed cell: Enter runs it, Ctrl-C clears it, typing replaces it." in report
    terminal.settle()
    terminal.child.send("%autograd_fix --run\r")  # the command that the report names
    after = terminal.prompt(5)
    assert "Fixed In[3] and ran it: no error." in after and "SyntaxError" not in after
    assert "x = x + 1" not in terminal.settle(), "the prompt after a run is empty"


def test_ctrl_c_discards_it(terminal: Terminal) -> None:
    fail(terminal)
    terminal.child.send("\x03")
    terminal.prompt(4)
    terminal.settle()
    terminal.child.send("print('grad', w.grad)\r")
    assert "grad None" in terminal.prompt(5) + terminal.settle()


def test_it_can_be_switched_off(terminal: Terminal) -> None:
    terminal.type("%load_ext inplace_magic", 2)
    terminal.type("%config InplaceMagic.prefill = False", 3)
    terminal.type(SETUP, 4)
    terminal.child.send(FAILS + "\r")
    terminal.prompt(5)
    assert "x = w.exp()" not in terminal.settle()


@pytest.mark.parametrize("room", broad(SANDBOXES, 2))
def test_ctrl_c_ends_a_rerun_and_the_prompt_answers(terminal: Terminal, room: str) -> None:
    terminal.type("%load_ext inplace_magic", 2)
    terminal.type(f"%config InplaceMagic.sandbox = '{room}'", 3)
    terminal.type(SETUP + "; import time; tries = []", 4)
    terminal.child.send("tries.append(1); time.sleep(3); " + FAILS + "\r")
    terminal.child.expect("RuntimeError")
    terminal.child.expect("running it again to find the line")
    terminal.child.send("\x03")
    assert "The cell was not run again: you stopped it." in " ".join(terminal.prompt(5).split())
    terminal.settle()
    terminal.child.send("print('tries', tries)\r")
    assert "tries [1]" in terminal.prompt(6) + terminal.settle()


@pytest.mark.parametrize(
    "options", [pytest.param((), id="that shows no prefill"), pytest.param(("--simple-prompt",), id="by lines")]
)
def test_a_dumb_terminal_holds_nothing_that_cannot_be_seen(options: tuple[str, ...], tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "dumb", *options)
    try:
        assert fail(terminal).strip() == ""
        assert terminal.type("", 4).strip() == ""
        assert "Fixed In[3]; %autograd_fix --run runs it." in terminal.type("%autograd_fix", 5)
        assert "Fixed In[3] and ran it: no error." in terminal.type("%autograd_fix --run", 6)
    finally:
        terminal.close()
