"""Weights that are trained by hand, from a loss that was made once: what a loop goes back from again and again."""

from __future__ import annotations

import textwrap

import pytest

from .trying import fixes, rewritten

START = """
    import torch
    torch.manual_seed(0)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    w1, w2 = torch.randn(3, 4, requires_grad=True), torch.randn(4, 1, requires_grad=True)
    def model(x):
        return (x @ w1).relu() @ w2
    """


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            """
            h = x @ w1
            out = torch.exp(h)
            out.add_(1)
            rows = [torch.autograd.grad(out[0, i], w1, retain_graph=True)[0] for i in range(4)]
            """,
            id="for one value after the other",
        ),
        pytest.param(
            """
            for i in range(2):
                out = torch.exp(x @ w1)
                out.add_(1)
                out.sum().backward(retain_graph=True)
            """,
            id="in each iteration anew, with the same value",
        ),
    ],
)
def test_a_graph_keeps_its_copy(cell: str) -> None:
    found = fixes(START, cell)
    assert any(".clone()" in fix.cells[2] for fix in found)
    assert all(fix.gradients == "same" for fix in found)


def test_losses_of_a_list_are_added_up() -> None:
    cell = "out = model(x)\nlosses = [out.mean(), out.pow(2).mean()]\nfor loss in losses:\n    loss.backward()\n"
    assert any("sum(losses).backward()" in fix.cells[2] for fix in fixes(START, cell))


@pytest.mark.parametrize("retain", ["", "retain_graph=True"])
@pytest.mark.parametrize(
    "update",
    [
        pytest.param(
            "with torch.no_grad():\n        w1 -= 0.01 * w1.grad\n        w2 -= 0.01 * w2.grad", id="in place"
        ),
        pytest.param(
            "with torch.no_grad():\n        for w in [w1, w2]:\n            w.sub_(0.01 * w.grad)", id="in a loop"
        ),
    ],
)
def test_the_loss_is_made_in_each_iteration(update: str, retain: str) -> None:
    cell = f"""loss = (model(x) - y).pow(2).mean()
for i in range(5):
    loss.backward({retain})
    {update}
    w1.grad = w2.grad = None
"""
    first, *others = fixes(START, cell)
    assert first.cells[2].splitlines()[:3] == [
        "for i in range(5):",
        "    loss = (model(x) - y).pow(2).mean()",
        "    loss.backward()",
    ]
    assert not any("sum(" in fix.cells[2] or ".clone()" in str(fix.cells) for fix in others)


def test_the_loss_is_made_in_each_iteration_where_data_hides_the_error() -> None:
    cell = """%%autograd_check
out = model(x)
for i in range(3):
    loss = (out - y).abs().mean()
    loss.backward(retain_graph=True)
    for w in (w1, w2):
        w.data -= 0.1 * w.grad
        w.grad = None
"""
    first, *others = fixes(START, cell)
    assert "for i in range(3):\n    out = model(x)\n" in first.cells[2]
    assert not others


def test_with_all_that_comes_from_the_weights() -> None:
    cell = """
        h = torch.tanh(x @ w1)
        out = h @ w2
        for i in range(3):
            loss = (out - y).pow(2).mean()
            loss.backward(retain_graph=True)
            with torch.no_grad():
                w1 -= 0.1 * w1.grad
                w2 -= 0.1 * w2.grad
        """
    first = fixes(START, cell)[0]
    assert "    h = torch.tanh(x @ w1)\n    out = h @ w2\n    loss = " in first.cells[2]


LOOP = """for i in range(3):
    loss = (out - y).pow(2).mean()
    loss.backward(retain_graph=True)
    for w in (w1, w2):
        w.data.sub_(0.1 * w.grad)
"""


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(["out = h @ w2", LOOP], id="one after the other"),
        pytest.param([f"out = h @ w2\n{LOOP}"], id="and the loop's own"),
        pytest.param(
            [f"def fit():\n{textwrap.indent(f'out = h @ w2{chr(10)}{LOOP}', '    ')}fit()"], id="and a function"
        ),
    ],
)
def test_with_what_earlier_cells_made_of_the_weights(cells: list[str]) -> None:
    *others, last = cells
    last = last.replace("w.data.sub_(", "with torch.no_grad(): w.sub_(")
    first = fixes(START, "z = 2 * x", "h = torch.tanh(z @ w1)\nprint(h.shape)", *others, last)[0]
    ((changed, text),) = first.cells.items()
    assert changed == 3 + len(cells) and text.count("out = h @ w2") == 1
    assert "h = torch.tanh(z @ w1)\nout = h @ w2\nloss = " in "\n".join(line.strip() for line in text.splitlines())


def test_a_penalty_is_made_in_each_iteration() -> None:
    cell = """
        penalty = w1.pow(2).sum() + (w2 ** 2).sum()
        for i in range(3):
            loss = (model(x) - y).pow(2).mean() + penalty
            loss.backward(retain_graph=True)
            with torch.no_grad():
                w1 -= 0.1 * w1.grad
                w2 -= 0.1 * w2.grad
        """
    first = fixes(START, cell)[0]
    assert first.cells[2].startswith("for i in range(3):\n    penalty = w1.pow(2).sum()")


@pytest.mark.parametrize("clear", ["w1.grad = w2.grad = None", "for w in (w1, w2): w.grad.zero_()"])
def test_no_update_goes_behind_what_clears_its_gradients(clear: str) -> None:
    cell = f"""for i in range(3):
    out = model(x)
    near, far = (out - y).pow(2).mean(), (out - y).abs().mean()
    near.backward(retain_graph=True)
    with torch.no_grad():
        w1 -= 0.1 * w1.grad
        w2 -= 0.1 * w2.grad
    {clear}
    far.backward()
    with torch.no_grad():
        w1 -= 0.02 * w1.grad
        w2 -= 0.02 * w2.grad
"""
    found = fixes(START, cell)
    assert found and "move_step" not in {fix.rule for fix in found}


def test_each_step_of_a_split_loop_has_its_gradients() -> None:
    define = START.rstrip() + "\n    opts = [torch.optim.SGD([w1, w2], lr=0.1), torch.optim.Adam([w1, w2])]\n"
    cell = """for epoch in range(3):
    out = model(x)
    for loss, opt in zip([(out - y).pow(2).mean(), out.abs().mean()], opts):
        loss.backward(retain_graph=True)
        opt.step()
        opt.zero_grad()
"""
    split = [fix.cells[2] for fix in fixes(define, cell) if fix.rule == "split_loop"]
    assert split and all(text.index("zero_grad") < text.index("backward") < text.index("step()") for text in split)


def test_a_leaf_that_a_loop_goes_through_keeps_its_update() -> None:
    cell = """
        for i in range(3):
            pred = model(x)
            mse, mae = (pred - y).pow(2).mean(), (pred - y).abs().mean()
            mse.backward(retain_graph=True)
            with torch.no_grad():
                for w in (w1, w2):
                    w -= 0.05 * w.grad
                    w.grad = None
            mae.backward()
            with torch.no_grad():
                for w in (w1, w2):
                    w -= 0.01 * w.grad
                    w.grad = None
        """
    found = fixes(START, cell)
    assert found and not any("w = w - 0.05" in fix.diff for fix in found)


def test_a_penalty_that_a_function_is_handed_is_made_in_each_of_its_iterations() -> None:
    fit = """def fit(given):
    for i in range(3):
        loss = (model(x) - y).pow(2).mean() + given["penalty"]
        loss.backward()
        with torch.no_grad():
            for w in (w1, w2):
                w -= 0.1 * w.grad
                w.grad.zero_()
"""
    found = fixes(START, fit, "given = {}\ngiven['penalty'] = w1.pow(2).sum()", "fit(given)")
    made = "        given['penalty'] = w1.pow(2).sum()\n        loss = "
    assert made in found[0].cells[2]
    assert not any(".clone()" in str(fix.cells) for fix in found)


def test_what_a_step_by_hand_does_not_update_counts_as_given() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)
        def descend(net, loss):
            net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in net.parameters(): p -= 0.1 * p.grad
        """
    cell = """
        gains = []
        for s in torch.randn(3, 3):
            advantage = 1 - critic(s)
            gains.append((actor(s).log_softmax(-1)[0] * advantage).sum())
            descend(critic, advantage.square().sum())
        descend(actor, -torch.stack(gains).mean())
        """
    first = fixes(start, cell)[0]
    assert first.cells == {2: rewritten(cell, ("[0] * advantage)", "[0] * advantage.detach())"))}
    assert first.gradients == "truncated"
