from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import rewritten

START = """
    import contextlib
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    def computed(x, send):
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        if send:
            loss.backward()
        return loss
    """
LOOP = """
    for x in torch.randn(3, 4, 3):
        loss = computed(x, True)
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((("loss.backward()", "loss.mul(2).backward()"),), id="another loss on the same graph"),
        pytest.param((("loss.backward()", "opt.step()\n    loss.backward()"),), id="a step between them"),
        pytest.param((("= computed(x, True)", "= computed(x, False)"), ("for x", "for y"), ("loss =", "x = y; loss ="), ("opt.step", "for _ in range(2): loss.backward()\n    opt.step")), id="one line twice"),
    ],
)  # fmt: skip
def test_what_is_no_second_call_for_one_loss_stays(changes: tuple[tuple[str, str], ...]) -> None:
    run = run_cells(START, rewritten(LOOP, *changes))
    assert run.diagnosis is not None
    assert "one_backward" not in [fix.rule for fix in run.diagnosis.fixes[:1]]


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        pytest.param((), "    loss.backward()\n", id="a helper has called it"),
        pytest.param((("computed(x, True)", "computed(x, False)"), ("loss.b", "loss.backward(); print(1)\n    loss.b")), "    loss.backward()\n", id="beside one another"),
        pytest.param((("    loss.backward()", "    with contextlib.suppress(OSError):\n        loss.backward()"),), "    with contextlib.suppress(OSError):\n        loss.backward()\n", id="in a block of its own"),
    ],
)  # fmt: skip
def test_the_second_backward_of_a_loss_goes(changes: tuple[tuple[str, str], ...], gone: str) -> None:
    cell = rewritten(LOOP, *changes)
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("one_backward", "different")
    assert first.cells[2].rstrip() == cell.replace(gone, "", 1).rstrip()
    assert "retain" in [fix.rule for fix in run.diagnosis.fixes]


TERMS = """
    nets = nn.ModuleList(nn.Linear(3, 1) for _ in range(3))
    opt = torch.optim.SGD(nets.parameters(), lr=0.1)
    def sent(net, x):
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss
    """
TOTAL = """
    for x in torch.randn(2, 4, 3):
        opt.zero_grad()
        a, b, c = (sent(net, x) for net in nets)
        total = a + b + c
        total.backward()
        opt.step()
    """


def test_a_sum_whose_terms_have_all_been_sent_back_is_not_sent_again() -> None:
    run = run_cells(START, TERMS, TOTAL)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("one_backward", "different")
    assert "total.backward()" not in first.cells[3]


def test_a_sum_with_a_term_that_was_not_sent_back_is() -> None:
    run = run_cells(START, TERMS, rewritten(TOTAL, ("+ c", "+ c + nets[0].weight.square().sum()")))
    assert run.diagnosis is not None
    assert "one_backward" not in [fix.rule for fix in run.diagnosis.fixes]


RUNNING = """
    total = 0
    for x in torch.randn(2, 4, 3):
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss
    total.backward()
    print(float(total))
    """


def test_nor_is_one_whose_terms_have_each_been_stepped_for() -> None:
    run = run_cells(START, RUNNING)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("one_backward", "different")
    assert first.cells[2].rstrip() == rewritten(RUNNING, ("total.backward()\n", ""))


def test_a_sum_of_other_losses_is() -> None:
    run = run_cells(START, rewritten(RUNNING, ("total += loss", "total += 2 * loss")))
    assert run.diagnosis is not None
    assert "one_backward" not in [fix.rule for fix in run.diagnosis.fixes]
