from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import rewritten

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    class Poses(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift, self.net = nn.Parameter(torch.zeros(3, 2)), nn.Linear(2, 1)
            self.register_buffer("poses", torch.randn(3, 2))
        def forward(self, i):
            pose = self.poses[i]
            pose += self.shift[i].exp()
            return self.net(pose)
    model = Poses()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    """
LOOP = """
    for i in (1, 1, 2):
        loss = model(i).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def diffs(start: str) -> list[str]:
    run = run_cells(start, LOOP)
    return [fix.diff for fix in run.diagnosis.fixes] if run.diagnosis is not None else []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("pose +=", "pose = pose +"), id="where nothing is written"),
        pytest.param(("self.poses[i]", "self.poses[i].clone()"), id="where it is taken as a copy already"),
    ],
)
def test_no_further_copy_is_taken(change: tuple[str, str]) -> None:
    assert not [diff for diff in diffs(rewritten(START, change)) if "+        pose = self.poses[i].clone()" in diff]


def test_the_state_may_stay_as_it_is_behind_the_cut_that_lets_it_go_on() -> None:
    first, second, *_ = diffs(START)
    assert "+    model.poses = model.poses.detach()" in first
    assert "+        pose = self.poses[i].clone()" in second
