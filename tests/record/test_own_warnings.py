"""Warnings of a watched program have the line, the category and the "once" behaviour that they have without a watch."""

from __future__ import annotations

import contextlib
import linecache
import warnings
from typing import Any

import pytest
import torch

import inplace_magic

from ..cells import run_cells

PROGRAM = """
import warnings
import torch
import torch.nn.functional as F
for _ in range(3):
    F.softmax(torch.zeros(2))
    F.softmax(torch.zeros(2))
F.mse_loss(torch.zeros(2), torch.zeros(2, 1))
def own(t):
    warnings.warn("mine", DeprecationWarning, stacklevel=2)
for _ in range(2):
    own(torch.zeros(1))
torch.zeros(2, 3).T.T
torch.ones(3).T
"""
PATH = "/home/somebody/warns.py"


def shown(action: str, watched: bool) -> list[tuple[str, str, str, int]]:
    linecache.cache[PATH] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), PATH)
    names: dict[str, Any] = {"__name__": "program"}
    for module in (torch.nn.functional, warnings):
        vars(module).pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)  # type: ignore[arg-type]
        with inplace_magic.check() if watched else contextlib.nullcontext():
            exec(compile(PROGRAM, PATH, "exec"), names)
    return [(str(w.message)[:60], w.category.__name__, w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize("action", ["default", "always", "once", "module", "ignore"])
def test_a_watched_program_shows_the_warnings_that_it_shows_unwatched(action: str) -> None:
    shown(action, False)  # torch itself says some things once for a process
    plain = shown(action, False)
    assert shown(action, True) == plain
    assert (action == "ignore") == (not plain)


def test_an_error_made_of_a_warning_is_raised_at_its_line() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="softmax"), inplace_magic.check():
            torch.nn.functional.softmax(torch.zeros(2))


CAUGHT = """import torch, warnings
w = torch.ones(2, 3, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    p = torch.nn.functional.softmax(w * 2)
print([one.lineno for one in caught])
p += 1
p.sum().backward()
"""


def test_a_rerun_keeps_the_line_of_a_warning_as_well() -> None:
    run = run_cells(CAUGHT)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.gradients, first.changes) == ("same", ()), "what is printed of a warning is no difference"
