"""Replays: how far a recorded run goes."""

from __future__ import annotations

import pytest

from inplace_magic.record import replay
from inplace_magic.record.evidence import Evidence
from inplace_magic.record.plan import RecordOptions, ReplayPlan, StopRule
from inplace_magic.record.replay import record
from inplace_magic.source.document import CellSource
from inplace_magic.source.sources import Sources

from ..cells import new_shell

STEPS = """
import torch
w = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(10):
    optimizer.zero_grad()
    first, second = (w * w).sum(), (w**3).sum()
    first.backward()
    optimizer.step()
    second.backward()
"""


CARRIED = """
import torch
w, h = torch.ones(3, requires_grad=True), torch.ones(3)
for step in range(10):
    h = (h * w).tanh()
    h.sum().backward()
"""


def recorded(reach: StopRule, inert: bool = False, text: str = STEPS, keep_graphs: bool = False) -> Evidence:
    shell = new_shell()
    sources = Sources({1: CellSource(1, text.lstrip(), shell.transform_cell)}, {}, 1)
    look = RecordOptions(inert=inert, keep_graphs=keep_graphs)
    return record(shell, sources, ReplayPlan((1,), fresh=True), reach, look)


def test_a_short_cell_is_recorded_to_its_end() -> None:
    seen = recorded(StopRule())
    assert seen.finished and len(seen.passes) == 20 and seen.first == 1


@pytest.mark.parametrize("inert", [False, True], ids=["with its conflict", "no step, so no conflict"])
def test_a_run_to_be_compared_ends_where_the_other_one_did(inert: bool) -> None:
    seen = recorded(StopRule(4, exactly=True, conflict=1), inert)
    assert len(seen.passes) == 4 and not seen.finished


@pytest.mark.parametrize(
    ("text", "first", "passes"),
    [(STEPS, 1, 4), (CARRIED, 1, 3), (CARRIED.replace("range(10)", "range(2)"), 1, 2)],
    ids=["met in the first of two backwards' iterations", "met in the second iteration", "met in the last one"],
)
def test_a_long_cell_is_recorded_past_one_more_iteration(
    monkeypatch: pytest.MonkeyPatch, text: str, first: int, passes: int
) -> None:
    monkeypatch.setattr(replay, "SHORT_WORK", 0)
    seen = recorded(StopRule(), text=text, keep_graphs=text is not STEPS)
    assert (seen.first, len(seen.passes)) == (first, passes)


def told(
    text: str, short: int, early: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[int, Evidence]], Evidence]:
    """What a run told before it was over, each time with the step in which it did, and what it told in the end."""
    monkeypatch.setattr(replay, "SHORT_WORK", short)
    monkeypatch.setattr(replay, "EARLY_WORK", early)
    shell = new_shell()
    sources = Sources({1: CellSource(1, text.lstrip(), shell.transform_cell)}, {}, 1)
    said: list[tuple[int, Evidence]] = []
    plan, look = ReplayPlan((1,), fresh=True), RecordOptions(keep_graphs=text is CARRIED)
    last = record(shell, sources, plan, StopRule(), look, tell=lambda seen: said.append((shell.user_ns["step"], seen)))
    return said, last


@pytest.mark.parametrize(
    ("short", "early", "expected"),
    [(0, 0, [(1, 2, True), (2, 2, False)]), (30_000, 0, [(1, 2, True)]), (30_000, 5_000, [])],
    ids=["a long cell", "a shorter one, which is run to its end", "one that is over in a moment"],
)
def test_the_conflict_is_told_when_it_is_met_and_again_when_the_next_backward_begins(
    short: int, early: int, expected: list[tuple[int, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said, last = told(CARRIED, short, early, monkeypatch)
    assert [(step, len(seen.passes), seen.early) for step, seen in said] == expected
    assert all(seen.first == 1 and seen.clashes[0].need == last.clashes[0].need for _, seen in said)
    assert not last.early


@pytest.mark.parametrize(
    "between", ["", "    w.exp().sum()\n"], ids=["", "not by a graph that is created ahead of the update"]
)
def test_behind_an_update_it_is_told_as_soon_as_another_graph_is_created(
    between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, _ = told(f"{STEPS}{between}    optimizer.step()\n", 0, 0, monkeypatch)
    assert [(step, len(seen.passes), seen.early) for step, seen in said] == [(0, 2, True), (1, 2, False)]
    assert len(said[-1][1].passes[1].steps) == 1
