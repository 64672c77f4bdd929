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
    pytest.param(
        (HELPER.replace("loss, lr=0.1", "*losses, lr=0.1").replace("grad(loss,", "grad(losses[-1],"), SEVERAL),
        (
            HANDED.replace("loss, lr=0.1, *, fast", "*losses, lr=0.1, fast").replace("grad(loss,", "grad(losses[-1],"),
            ("    for _", "    fast = dict(net.named_parameters())\n    for _"),
            ("mse(net(x), y)", f"mse({CALLED.format('x')}, y)"),
            ("inner_step(net, losses[-1])", "fast = inner_step(net, losses[-1], fast=fast)"),
            ("net(y)", CALLED.format("y")),
        ),
        id="behind any number of arguments",
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


ADAPT = """
    def adapt(x, y):
        BEGIN
        for _ in range(2):
            loss = mse(net(x), y)
            grads = torch.autograd.grad(loss, net.parameters(), create_graph=True)
            with torch.no_grad():
                for p, g in zip(net.parameters(), grads):
                    p.sub_(g, alpha=0.1)
            KEEP
        GIVE
    def outer(x, y):
        CALL
        return mse(net(y), x) + TOTAL
    for x, y in torch.randn(2, 2, 5, 1):
        loss = outer(x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("begin", "keep", "give", "given", "call", "called", "total"),
    [
        pytest.param("losses = []", "losses.append(loss)", "return losses", "return losses, fast", "losses = adapt(x, y)",
                     "losses, fast = adapt(x, y)", "sum(losses)", id="beside what it gives"),
        pytest.param("global first", "first = loss", "print(first.item())", "print(first.item())\n    return fast", "adapt(x, y=y)",
                     "fast = adapt(x, y=y)", "first", id="where it gives nothing"),
        pytest.param("first = []", "first.append(loss)", "return first[0], len(first)", "return (first[0], len(first)), fast",
                     "first, steps = adapt(x, y)", "(first, steps), fast = adapt(x, y)", "first / steps", id="beside several"),
    ],
)  # fmt: skip
def test_a_function_that_makes_several_steps_gives_the_stepped_weights_as_well(
    begin: str, keep: str, give: str, given: str, call: str, called: str, total: str
) -> None:
    cell = ADAPT
    for placeholder, text in {"BEGIN": begin, "KEEP": keep, "GIVE": give, "CALL": call, "TOTAL": total}.items():
        cell = cell.replace(placeholder, text)
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    stepped = "fast = {name: p.sub(g, alpha=0.1) for (name, p), g in zip(fast.items(), grads)}"
    assert first.cells[2].rstrip() == rewritten(
        cell,
        ("    for _ in", "    fast = dict(net.named_parameters())\n    for _ in"),
        ("net(x)", CALLED.format("x")),
        ("grad(loss, net.parameters()", "grad(loss, fast.values()"),
        (
            "with torch.no_grad():\n            for p, g in zip(net.parameters(), grads):\n                p.sub_(g, alpha=0.1)",
            stepped,
        ),
        (give, given),
        (call, called),
        ("net(y)", CALLED.format("y")),
    )


def test_a_helper_that_a_function_calls_step_by_step_is_handed_the_weights() -> None:
    define = """
        class Learner:
            def __init__(self, net):
                self.net = net

            @torch.no_grad()
            def step(self, grads):
                for p, g in zip(self.net.parameters(), grads):
                    p -= 0.1 * g

            def adapt(self, x, y):
                losses = []
                for _ in range(2):
                    losses.append(mse(self.net(x), y))
                    self.step(torch.autograd.grad(losses[-1], self.net.parameters(), create_graph=True))
                return losses

            def loss(self, x, y):
                losses = self.adapt(x, y)
                return sum(losses) + mse(self.net(y), x)
        learner = Learner(net)
        """
    train = "for x, y in torch.randn(2, 2, 5, 1):\n    loss = learner.loss(x, y)\n    opt.zero_grad()\n    loss.backward()\n    opt.step()"
    run = run_cells(START, define, train)
    assert run.diagnosis is not None
    call = "torch.func.functional_call(self.net, fast, ({},))"
    assert run.diagnosis.fixes[0].cells[2].rstrip() == rewritten(
        define,
        ("    @torch.no_grad()\n    def step(self, grads):", "    def step(self, grads, *, fast):"),
        (
            "for p, g in zip(self.net.parameters(), grads):\n            p -= 0.1 * g",
            "return {name: p - 0.1 * g for (name, p), g in zip(fast.items(), grads)}",
        ),
        ("        for _ in", "        fast = dict(self.net.named_parameters())\n        for _ in"),
        ("self.net(x)", call.format("x")),
        ("self.step(", "fast = self.step("),
        ("self.net.parameters(), create_graph=True)", "fast.values(), create_graph=True), fast=fast"),
        ("return losses", "return losses, fast"),
        ("losses = self.adapt", "losses, fast = self.adapt"),
        ("self.net(y)", call.format("y")),
    )


def test_a_helper_that_stands_far_down_in_a_cell_of_its_own() -> None:
    helper = "\n".join(["# a long cell"] * 40) + "\n" + rewritten(HELPER)
    run = run_cells(START, helper, ONE_STEP)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule == RULE


def test_nothing_that_a_callers_caller_would_not_see() -> None:
    cells = """
        def learn(x, y):
            loss = mse(net(x), y)
            inner_step(net, loss)
            return loss + mse(net(x), y)
        for x, y in torch.randn(2, 2, 5, 1):
            total = learn(x, y) + mse(net(y), x)
            opt.zero_grad()
            total.backward()
            opt.step()
        """
    assert RULE not in rules(START, HELPER, cells)
