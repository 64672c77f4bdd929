"""The order of verified fixes."""

from __future__ import annotations

from ..cells import run_cells

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    features = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    content, image = torch.rand(5, 3), torch.rand(5, 3, requires_grad=True)
    """
TARGET = """
    opt = torch.optim.SGD([image], lr=0.1)
    target = features(content)
    for _ in range(3):
        opt.zero_grad()
        (features(image) - target).pow(2).mean().backward()
        opt.step()
    """


def test_a_cut_that_no_step_feels_comes_before_a_forward_that_runs_again() -> None:
    run = run_cells(START, TARGET)
    assert run.diagnosis is not None
    assert [(fix.rule, fix.gradients) for fix in run.diagnosis.fixes[:2]] == [
        ("detach", "truncated"),
        ("recompute", "same"),
    ]


TWO_LOSSES = """
    opt = torch.optim.SGD(features.parameters(), lr=0.1)
    judge = nn.Linear(2, 1).requires_grad_(False)
    for _ in range(2):
        opt.zero_grad()
        out, other = features(content), features(image.detach())
        out.pow(2).mean().backward()
        opt.step()
        judge(other).mean().backward()
    """


def test_what_gives_a_backward_a_use_that_it_did_not_have_comes_before_what_does_not() -> None:
    run = run_cells(START, TWO_LOSSES)
    assert run.diagnosis is not None
    assert [(fix.rule, fix.gradients) for fix in run.diagnosis.fixes] == [
        ("move_step", "different"),
        ("recompute", "different"),
    ]
