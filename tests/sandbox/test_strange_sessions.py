"""Sessions that hold strange objects, in strange surroundings: untouched, and explained all the same."""

from __future__ import annotations

import os
import resource
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cells import new_shell, run_in
from tests.sandboxes import SANDBOXES

PROXIES = """
    import torch
    asked = []
    class Lazy:
        @property
        def __class__(self):
            asked.append("class")
            return float
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)
    class Touchy:
        @property
        def __class__(self): raise RuntimeError("do not touch")
    class Closed:
        def __getattribute__(self, name): raise RuntimeError("do not touch " + name)
        def __eq__(self, other): raise RuntimeError("eq")
        def __hash__(self): raise RuntimeError("hash")
        def __bool__(self): raise RuntimeError("bool")
        def __len__(self): raise RuntimeError("len")
        def __repr__(self): raise RuntimeError("repr")
    lazy, touchy, closed = Lazy(), Touchy(), Closed()
    asked.clear()
    w = torch.ones(3, requires_grad=True)
"""
PLAIN = "import torch\nw, big = torch.ones(3, requires_grad=True), torch.ones(2**18)"
FAILS = "y = w.exp()\ny += 1\ny.sum().backward()"


def session(room: str, *cells: str) -> Any:
    shell = new_shell()
    settings = [f"%config InplaceMagic.sandbox = '{room}'", "%config InplaceMagic.fixes = 1"]
    done = run_in(shell, [*settings, *(textwrap.dedent(cell).strip() for cell in cells)])
    assert done.error is None, done.output
    return shell


@pytest.mark.parametrize("room", SANDBOXES)
def test_a_proxy_is_not_asked_what_it_is(room: str) -> None:
    shell = session(room, PROXIES)
    done = run_in(shell, [f"held = lazy, touchy, closed\n{FAILS}"])
    assert done.diagnosis is not None and done.diagnosis.fixes and done.diagnosis.notes == (), done.output
    assert shell.user_ns["asked"] == []


@pytest.mark.parametrize("room", SANDBOXES)
def test_a_deleted_folder_and_a_disk_without_room(room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = session(room, PLAIN)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**12, limits[1]))
    try:
        done = run_in(shell, [FAILS.replace("w.exp()", "(w * big[:3]).exp()")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        os.chdir(tmp_path)
    assert done.diagnosis is not None and done.diagnosis.fixes and done.diagnosis.notes == (), done.output


@pytest.mark.parametrize("room", SANDBOXES)
def test_a_mock_is_called_once_and_named_where_it_cannot_be_taken_along(room: str) -> None:
    shell = session(
        room,
        "import torch\nfrom unittest.mock import MagicMock\nm = MagicMock()\nw = torch.ones(3, requires_grad=True)",
    )
    done = run_in(shell, ["m.step(2)\ny = w.exp()\ny += 1\ny.sum().backward()"])
    assert done.diagnosis is not None and done.diagnosis.changed is not None
    assert bool(done.diagnosis.fixes) == (room == "fork")
    assert ("`m` (RecursionError" in " ".join(done.diagnosis.notes)) == (room == "replica")
    assert str(shell.user_ns["m"].mock_calls) == "[call.step(2)]"
