from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import rewritten, rules

RULE = "fast_weights"
START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    opt, mse = torch.optim.SGD(net.parameters(), lr=0.1), nn.MSELoss()
    """
HELPER = """
    def inner_step(model, loss, lr=0.1):
        grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p -= lr * g
    """
STEPPED = """
    def inner_step(model, loss, lr=0.1):
        grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
        return {name: p - lr * g for (name, p), g in zip(model.named_parameters(), grads)}
    """
HANDED = """
    def inner_step(model, loss, lr=0.1, *, fast):
        grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
        return {name: p - lr * g for (name, p), g in zip(fast.items(), grads)}
    """
ONE_STEP = """
    for _ in range(2):
        total = 0
        for x, y in torch.randn(2, 2, 5, 1):
            loss = mse(net(x), y)
            inner_step(net, loss)
            total = total + mse(net(y), x) + loss
        opt.zero_grad()
        total.backward()
        opt.step()
    """
SEVERAL = """
    for x, y in torch.randn(2, 2, 5, 1):
        losses = []
        for _ in range(2):
            losses.append(mse(net(x), y))
            inner_step(net, losses[-1])
        opt.zero_grad()
        (mse(net(y), x) + sum(losses)).backward()
        opt.step()
        print(net(x).sum())
    """
CALLED = "torch.func.functional_call(net, fast, ({},))"
FUNCTIONS = [
    pytest.param(
        (HELPER, ONE_STEP),
        (
            STEPPED,
            ("inner_step(net, loss)", "fast = inner_step(net, loss)"),
            ("net(y)", CALLED.format("y")),
        ),
        id="a step for each task",
    ),
    pytest.param(
        (HELPER, SEVERAL),
        (
            HANDED,
            ("    for _", "    fast = dict(net.named_parameters())\n    for _"),
            ("mse(net(x), y)", f"mse({CALLED.format('x')}, y)"),
            ("inner_step(net, losses[-1])", "fast = inner_step(net, losses[-1], fast=fast)"),
            ("net(y)", CALLED.format("y")),
        ),
        id="several steps, and what is read behind the optimizer's own",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "changes"), FUNCTIONS)
def test_the_stepped_weights_go_to_the_caller_and_back(
    cells: tuple[str, str], changes: tuple[str, tuple[str, str]]
) -> None:
    run = run_cells(START, *cells)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    helper, *calls = changes
    assert first.rule == RULE
    assert {number: text.rstrip() for number, text in first.cells.items()} == {
        2: rewritten(helper),
        3: rewritten(cells[1], *calls),
    }


LEARNER = """
    class Learner:
        def __init__(self, net):
            self.net = net

        @torch.no_grad()
        def step(self, grads):
            for (name, p), g in zip(self.net.named_parameters(), grads):
                p.sub_(g, alpha=0.1)

        def loss(self, x, y):
            first = 0
            for _ in range(2):
                first = first + mse(self.net(x), y)
                self.step(torch.autograd.grad(first, self.net.parameters(), create_graph=True))
            return first + mse(self.net(y), x)
    learner = Learner(net)
    """


@pytest.mark.parametrize(
    ("define", "lines"),
    [
        pytest.param(
            LEARNER,
            (
                "def step(self, grads, *, fast):",
                "return {name: p.sub(g, alpha=0.1) for (name, p), g in zip(fast.items(), grads)}",
                "fast = self.step(torch.autograd.grad(first, fast.values(), create_graph=True), fast=fast)",
            ),
            id="in several steps",
        ),
        pytest.param(
            LEARNER.replace("for _ in range(2):\n            ", "if True:\n            "),
            (
                "def step(self, grads):",
                "return {name: p.sub(g, alpha=0.1) for (name, p), g in zip(self.net.named_parameters(), grads)}",
                "fast = self.step(torch.autograd.grad(first, self.net.parameters(), create_graph=True))",
            ),
            id="in one",
        ),
    ],
)
def test_a_method_that_is_decorated_and_is_handed_the_gradients(define: str, lines: tuple[str, ...]) -> None:
    train = "for x, y in torch.randn(2, 2, 5, 1):\n    loss = learner.loss(x, y)\n    opt.zero_grad()\n    loss.backward()\n    opt.step()"
    run = run_cells(START, define, train)
    assert run.diagnosis is not None
    text = run.diagnosis.fixes[0].cells[2]
    assert "@torch.no_grad()" not in text
    assert [line for line in lines if line not in text] == []


def test_nothing_where_the_caller_does_not_read_on() -> None:
    elsewhere = ONE_STEP.replace("mse(net(y), x)", "query(y, x)")
    assert RULE not in rules(START, "def query(x, y):\n    return mse(net(x), y)", HELPER, elsewhere)


def test_nothing_where_others_call_the_helper_for_what_it_does_to_the_model() -> None:
    tuned = "def tune(x, y):\n    inner_step(net, mse(net(x), y))"
    assert RULE not in rules(START, HELPER, tuned, ONE_STEP)
