"""Runs a job in a child process that has files of its own, by each means that this machine has."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from inplace_magic.sandbox import side_effects
from inplace_magic.sandbox.side_effects import landlock, namespace

MEANS = {"namespace": ("namespace",), "landlock": ("landlock",), "python": ()}


def privately(job: Callable[[], Any], means: str) -> tuple[Any, str | None]:
    """What job() gives in a child with files of its own, and the first effect that was refused there."""

    def contained() -> tuple[Any, str | None]:
        assert side_effects.make_private(scratch, MEANS[means]) is not None
        with side_effects.contained() as attempts:
            result = job()
        return result, attempts.first

    scratch = tempfile.mktemp(prefix="inplace_magic-test-")
    try:
        return in_a_child(contained)  # type: ignore[no-any-return]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def in_a_child(job: Callable[[], Any]) -> Any:
    """What job() gives in a forked child. Raises AssertionError with the child's traceback."""
    receive, send = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        answer: tuple[bool, Any] = (False, "the child came to no answer")
        try:
            answer = (True, job())
        except BaseException:
            answer = (False, traceback.format_exc())
        finally:
            send.send(answer)
            os._exit(0)
    send.close()
    try:
        assert receive.poll(120), "the child hangs"
        well, result = receive.recv()
    finally:
        receive.close()
        os.waitpid(pid, 0)
    assert well, result
    return result


def _allowed(enter: Callable[[], object]) -> bool:
    try:
        in_a_child(lambda: enter() and None)
    except (AssertionError, EOFError):
        return False
    return True


def means() -> list[Any]:
    """The means as parameters of a test, those that this machine has not being skipped."""
    has = {
        "namespace": _allowed(lambda: namespace.enter(2**20)),
        "landlock": _allowed(lambda: landlock.restrict(["/tmp"])),
        "python": True,
    }
    return [
        pytest.param(name, marks=[] if has[name] else [pytest.mark.skip(f"this machine has no {name}")])
        for name in MEANS
    ]
