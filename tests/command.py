"""Runs ``python -m inplace_magic`` as a copy of this process, which has torch loaded already."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

LIMIT_S = 60


@dataclass(frozen=True)
class Ended:
    """What came of a command. ``status`` is negative for a signal."""

    status: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def command(*arguments: str | Path, folder: Path, stdin: str = "", encoding: str = "utf-8") -> Ended:
    """Runs the command in a folder, with an output, of an encoding, and an input of its own."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write(stdin.encode())
        given.seek(0)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            _child([str(a) for a in arguments], folder, (given.fileno(), out.fileno(), err.fileno()), encoding)
        status = _ended(pid)
        out.seek(0)
        err.seek(0)
        return Ended(status, out.read().decode(encoding, "replace"), err.read().decode(encoding, "replace"))


def _ended(pid: int) -> int:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError(f"the command took longer than {LIMIT_S} s")


def _child(arguments: list[str], folder: Path, streams: tuple[int, int, int], encoding: str) -> None:
    """Never returns."""
    status = 70
    try:
        torch.set_num_threads(1)
        os.chdir(folder)
        for here, there in enumerate(streams):
            os.dup2(there, here)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", encoding=encoding), open(2, "w")  # noqa: SIM115
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        sys.excepthook = sys.__excepthook__
        forget_cells()
        from inplace_magic.cli.main import main

        status = main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def forget_cells() -> None:
    """The shells of other tests are not there for a command."""
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
