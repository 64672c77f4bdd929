"""What the machine does to a run has no part in the report."""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

import pytest

from inplace_magic.sandbox import fork

from ..cells import run_cells
from ..transforms.reorder.test_updates_apart import IN_FUNCTION, NETWORKS


def reported() -> Any:
    run = run_cells(NETWORKS, IN_FUNCTION, "train(gen, disc)")
    assert run.diagnosis is not None
    return [(fix.title, fix.gradients, fix.changes, fix.run) for fix in run.diagnosis.fixes], run.diagnosis.notes


def test_a_copy_that_is_killed_from_outside_is_made_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, numbers = fork._fork, itertools.count(1)
    killed: set[int] = set()

    def forked(*arguments: Any) -> Any:
        pid, pipe = plain(*arguments)
        if next(numbers) in killed:
            os.kill(pid, signal.SIGKILL)
        return pid, pipe

    monkeypatch.setattr(fork, "_fork", forked)
    expected = reported()
    copies = next(numbers) - 1
    assert copies > 4 and expected[0]
    for lost in range(1, copies + 1):
        numbers, killed = itertools.count(1), {lost}
        assert reported() == expected
