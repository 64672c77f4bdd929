"""Views of a leaf that an update has made stale: the update is to blame, and the views are made where they are read."""

from __future__ import annotations

from typing import Any

import pytest

from inplace_magic import reproduce
from inplace_magic.record.plan import ReplayPlan

from ...cells import run_cells
from ..trying import fix_by, rewritten

RULE = "kept_views"
START = """
    import torch
    torch.manual_seed(0)
    w = torch.randn(2, 3, requires_grad=True)
    x = torch.randn(4, 3)
    opt = torch.optim.SGD([w], lr=0.1)
    """
SPLIT = """
    a, b = w.unbind(0)
    for i in range(3):
        loss = (x @ a - torch.sigmoid(x @ b)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
BY_HAND = """
    rows = torch.chunk(w, 2)
    for i in range(3):
        loss = sum((x @ row.t()).pow(2).mean() for row in rows)
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    """
BY_AN_OPTIMIZER_OF_THEIR_OWN = """
    class Descent(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad, alpha=0.1)
    own = Descent([w])
    rows = list(w)
    for i in range(3):
        loss = sum(row.abs().sum() for row in rows)
        own.zero_grad()
        loss.backward()
        own.step()
    """
ONE_AFTER_ANOTHER = """
    rows = list(w)
    loss = rows[0].exp().sum()
    loss.backward()
    opt.step()
    loss = rows[1].exp().sum()
    loss.backward()
    """
IN_A_MODULE = """
    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.both = torch.nn.Parameter(torch.ones(4, 3))
            self.one, self.other = self.both.chunk(2)
        def forward(self, x):
            return (x @ self.one.T) * (x @ self.other.T)
    net = Pair()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(3):
        opt.zero_grad()
        net(x).mean().backward()
        opt.step()
    """
VALUES = """
    rows = w.split(1)
    norms = []
    for i in range(3):
        opt.zero_grad()
        (x @ w.T).pow(2).mean().backward()
        opt.step()
        norms.append([row.norm().item() for row in rows])
    """


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        pytest.param(SPLIT, 6, id="an optimizer's step"),
        pytest.param(BY_HAND, 6, id="an update by hand"),
        pytest.param(BY_AN_OPTIMIZER_OF_THEIR_OWN, 8, id="an optimizer that they wrote"),
        pytest.param(ONE_AFTER_ANOTHER, 4, id="without a loop"),
    ],
)
def test_the_update_is_to_blame_and_not_the_line_that_reads(cell: str, line: int) -> None:
    found = run_cells(START, cell).diagnosis
    assert found is not None and found.changed is not None and found.needed is not None
    assert (found.changed.line, len(found.conflicts)) == (line, 1)
    assert found.needed.line != line


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            SPLIT,
            [("a, b = w.unbind(0)\n", ""), ("    loss = (x", "    a, b = w.unbind(0)\n    loss = (x")],
            id="names are bound in the loop that reads them",
        ),
        pytest.param(
            BY_HAND,
            [("rows = torch.chunk(w, 2)\n", ""), ("    loss = sum", "    rows = torch.chunk(w, 2)\n    loss = sum")],
            id="so is a tuple",
        ),
        pytest.param(
            ONE_AFTER_ANOTHER, [("loss = rows[1]", "rows = list(w)\nloss = rows[1]")], id="only behind the update"
        ),
        pytest.param(
            IN_A_MODULE,
            [("        return", "        self.one, self.other = self.both.chunk(2)\n        return")],
            id="a module makes them in its forward",
        ),
        pytest.param(
            VALUES,
            [("rows = w.split(1)\n", ""), ("    norms.app", "    rows = w.split(1)\n    norms.app")],
            id="where they are only looked at",
        ),
    ],
)
def test_the_views_are_made_anew_where_they_are_read(cell: str, changes: list[tuple[str, str]]) -> None:
    fix = fix_by(RULE, START, cell)
    assert fix.cells[2] == rewritten(cell, *changes)
    assert (fix.verified, fix.gradients, fix.changes) == (True, "same", ())


def test_where_the_session_has_stepped_already_the_views_are_made_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    from_start = reproduce._plans

    def alone_first(session: Any, sources: Any, cell: int, options: Any) -> list[ReplayPlan]:
        return [ReplayPlan((cell,)), *from_start(session, sources, cell, options)]  # as where the others take long

    monkeypatch.setattr(reproduce, "_plans", alone_first)
    made, loop = SPLIT.split("    for", 1)
    found = run_cells(START + made, "    for" + loop).diagnosis
    assert found is not None and found.changed is not None and found.changed.text == "opt.step()"
    assert [fix.rule for fix in found.fixes if fix.verified] == [RULE]
