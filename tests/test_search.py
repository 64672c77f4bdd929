"""The search for fixes: what one transformation costs, and what becomes of one that crashes."""

from __future__ import annotations

import pytest

from inplace_magic import search
from inplace_magic.transforms import registry
from inplace_magic.transforms.problem import Problem
from inplace_magic.transforms.proposal import Proposal

from .cells import run_cells
from .transforms.trying import titles

START = "import torch\nw = torch.ones(3, requires_grad=True)"
TWICE = "loss = w.exp().sum()\nloss.backward()\nloss.backward()"


def test_the_table_reads_from_the_cheapest_to_the_dearest() -> None:
    assert list(search.COSTS.values()) == sorted(search.COSTS.values())


def test_people_get_the_other_fixes_where_a_transformation_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    crashed: list[str] = []

    def crash(problem: Problem) -> list[Proposal]:
        raise ZeroDivisionError

    monkeypatch.setattr(registry, "passed_over", crashed.append)
    monkeypatch.setitem(registry.TRANSFORMS, crash, frozenset({"second_backward"}))
    run = run_cells(START, TWICE)
    assert "crash" in crashed
    assert run.diagnosis is not None
    assert run.diagnosis.fixes


def test_a_transformation_that_crashes_is_an_error_in_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(problem: Problem) -> list[Proposal]:
        raise ZeroDivisionError

    monkeypatch.setitem(registry.TRANSFORMS, crash, frozenset({"modified"}))
    with pytest.raises(AssertionError, match="crash"):
        titles("out_of_place", "x = w.exp()\nx += 1", write="x += 1")
