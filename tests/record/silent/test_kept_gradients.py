"""Gradients in a list: which of them are one, and what may be kept."""

from __future__ import annotations

import pytest

from .programs import Program
from .running import watch

SHARED = "one tensor stands for two gradients"


def found(text: str) -> list[str]:
    """The lines by which that is so; that some of the programs never call zero_grad is another finding."""
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    shared = [finding.changed for finding in seen.findings if finding.changed_note == SHARED]
    return [changed.text for changed in shared if changed is not None]


TRAINING = """optimizer = torch.optim.SGD([w], 0.1)
kept = []
for step in range(4):
    {before}
    (v @ w).sum().backward()
    {after}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("optimizer.zero_grad()", "kept.append(w.grad)", id="each is let go before the next"),
        pytest.param("pass", "kept.append(w.grad.clone())", id="copies"),
        pytest.param("pass", "kept = [p.grad for p in (w, w)]", id="a list made anew each time"),
        pytest.param("pass", "kept = kept or [w.grad]", id="a list that is read each time"),
        pytest.param(
            "pass", "kept[:] = [w.grad] if step < 2 else [step, w.grad, w.grad]", id="a list that is filled anew"
        ),
        pytest.param("optimizer.zero_grad(set_to_none=False)", "kept.append(w.grad.norm())", id="numbers"),
    ],
)
def test_gradients_may_be_kept(before: str, after: str) -> None:
    assert found(TRAINING.format(before=before, after=after)) == []


def test_rows_may_be_copied_from_a_seed_that_is_handed_on() -> None:
    text = """y = x + 1
seed, rows = torch.zeros(6), torch.empty(6, 6)
for i in range(6):
    seed.zero_()
    seed[i] = 1
    (row,) = torch.autograd.grad(y, x, seed, retain_graph=True)
    rows[i] = row
"""
    assert found(text) == []


def test_a_list_that_was_to_hold_several_holds_one() -> None:
    assert found(TRAINING.format(before="pass", after="kept.append(w.grad)")) == ["(v @ w).sum().backward()"]
