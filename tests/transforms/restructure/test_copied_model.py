from __future__ import annotations

import pytest

from ..trying import fix_by, fixes, rewritten

START = """
    import copy
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)); f = nn.MSELoss()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    tasks = [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(2)]
    """
ADAPT = """
    def adapt(model, x, y, steps=2, lr=0.1):
        fast = copy.deepcopy(model)
        for _ in range(steps):
            grads = torch.autograd.grad(f(fast(x), y), fast.parameters(), create_graph=True)
            for p, g in zip(fast.parameters(), grads):
                p.data -= lr * g
        return fast
    """
LOOP = """
    %%autograd_check
    for _ in range(2):
        opt.zero_grad()
        loss = sum(f(adapt(net, x, y)(x), y) for x, y in tasks)
        loss.backward()
        opt.step()
    """
MENDED = """
    def adapt(model, x, y, steps=2, lr=0.1):
        weights = dict(model.named_parameters())
        for _ in range(steps):
            grads = torch.autograd.grad(f(torch.func.functional_call(model, weights, (x,)), y), weights.values(), create_graph=True)
            weights = {name: STEPPED for (name, p), g in zip(weights.items(), grads)}
        return lambda *args, **kwargs: torch.func.functional_call(model, weights, args, kwargs)
    """


@pytest.mark.parametrize(
    ("step", "stepped"),
    [
        pytest.param("p.data -= lr * g", "p - lr * g", id="augmented"),
        pytest.param("p.data = p.data - lr * g", "p - lr * g", id="assigned"),
        pytest.param("p.data.sub_(g, alpha=lr)", "p.sub(g, alpha=lr)", id="called"),
    ],
)
def test_an_inner_step_on_a_copy_is_made_on_weights_of_its_own(step: str, stepped: str) -> None:
    fix = fix_by("fast_weights", START, rewritten(ADAPT, ("p.data -= lr * g", step)), LOOP)
    assert fix.cells == {2: rewritten(MENDED, ("STEPPED", stepped))}


@pytest.mark.parametrize(
    ("head", "stepped"),
    [
        pytest.param(
            "for g, p in zip(grads, fast.parameters()):",
            "{name: p - lr * g for g, (name, p) in zip(grads, weights.items())}",
            id="gradients first",
        ),
        pytest.param(
            "for i, (p, g) in enumerate(zip(fast.parameters(), grads)):",
            "{name: p - lr * g for i, ((name, p), g) in enumerate(zip(weights.items(), grads))}",
            id="counted",
        ),
        pytest.param(
            "for p, g, w in zip(fast.parameters(), grads, model.parameters()):",
            "{name: p - lr * g for (name, p), g, w in zip(weights.items(), grads, model.parameters())}",
            id="beside others",
        ),
    ],
)
def test_the_weights_are_known_by_their_own_names(head: str, stepped: str) -> None:
    define = rewritten(ADAPT, ("for p, g in zip(fast.parameters(), grads):", head))
    whole = "{name: STEPPED for (name, p), g in zip(weights.items(), grads)}"
    assert fix_by("fast_weights", START, define, LOOP).cells == {2: rewritten(MENDED, (whole, stepped))}


def test_what_the_step_reads_of_others_past_the_graph_stays_so() -> None:
    step = "p.data -= lr * step.data"
    define = rewritten(ADAPT, ("for p, g in", "for p, step in"), ("p.data -= lr * g", step))
    expected = rewritten(MENDED, ("STEPPED for (name, p), g in", "p - lr * step.data for (name, p), step in"))
    assert fix_by("fast_weights", START, define, LOOP).cells == {2: expected}


def test_a_name_that_the_step_reads_is_not_taken_for_those_of_the_weights() -> None:
    define = rewritten(ADAPT, ("lr=0.1", "name=0.1"), ("lr * g", "name * g"))
    whole = "{name: STEPPED for (name, p), g in"
    expected = rewritten(MENDED, ("lr=0.1", "name=0.1"), (whole, "{name_2: p - name * g for (name_2, p), g in"))
    assert fix_by("fast_weights", START, define, LOOP).cells == {2: expected}


def test_by_names_under_no_grad_within_the_loop_over_tasks() -> None:
    cell = """
        %%autograd_check
        for _ in range(2):
            loss = 0
            for x, y in tasks:
                own = copy.deepcopy(net)
                grads = torch.autograd.grad(f(own(x), y), own.parameters(), create_graph=True)
                with torch.no_grad():
                    for (n, p), g in zip(own.named_parameters(), grads):
                        p -= 0.1 * g
                loss = loss + f(own(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    expected = """
        %%autograd_check
        for _ in range(2):
            loss = 0
            for x, y in tasks:
                weights = dict(net.named_parameters())
                grads = torch.autograd.grad(f(torch.func.functional_call(net, weights, (x,)), y), weights.values(), create_graph=True)
                weights = {n: p - 0.1 * g for (n, p), g in zip(weights.items(), grads)}
                loss = loss + f(torch.func.functional_call(net, weights, (x,)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fix_by("fast_weights", START, cell)
    assert fix.cells == {2: rewritten(expected)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    return fast\n", "    return fast.eval()\n", id="that is asked for more than a call"),
        pytest.param("    for _ in range(steps):\n", "    params = list(fast.parameters())\n    for _ in range(steps):\n", id="of which a list is kept ahead of the steps"),
        pytest.param("    p.data -= lr * g\n", "    p.data -= lr * g; p.data.clamp_(-1, 1)\n", id="whose step is two"),
        pytest.param("    return fast\n", "    fast = nn.Sequential(fast)\n    return fast\n", id="whose name is another's"),
        pytest.param("grads = torch.autograd.grad(f(fast(x), y), fast.parameters(), create_graph=True)",
                     "f(fast(x), y).backward(); grads = [p.grad for p in fast.parameters()]", id="that takes its gradients from a backward"),
    ],
)  # fmt: skip
def test_a_copy_stays(old: str, new: str) -> None:
    found = fixes(START, rewritten(ADAPT, (old, new)), LOOP)
    assert not [fix.cells for fix in found if "functional_call" in str(fix.cells)]
