from __future__ import annotations

import pytest

from .trying import clean, fix_by, titles

RULE = "fast_weights"


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param(
            "for p in net.parameters():\n    p -= lr * p.grad", "p -= lr * p.grad", id="an ordinary update by .grad"
        ),
        pytest.param(
            "gs = f()\nfor p, g in zip(net.parameters(), gs):\n    p.sub_(g)",
            "p.sub_(g)",
            id="nobody asks for gradients here",
        ),
        pytest.param(
            "gs = grad(l, ws)\nfor p, g in zip(ws, gs):\n    p.sub_(g)",
            "p.sub_(g)",
            id="a list of weights and no model",
        ),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    assert titles(RULE, "import torch", cell, write=write) == []


START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), torch.randn(4, 2)
    """


@pytest.mark.parametrize(
    ("update", "step"),
    [
        pytest.param("p -= lr * g", "p - lr * g", id="augmented"),
        pytest.param("p.sub_(g.clamp(-1, 1), alpha=lr)", "p.sub(g.clamp(-1, 1), alpha=lr)", id="with a factor"),
    ],
)
def test_is_proved(update: str, step: str) -> None:
    cell = f"""
        def adapt(model, x, lr=0.1, k=2):
            for _ in range(k):
                loss = model(x).pow(2).mean()
                grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
                with torch.no_grad():
                    for p, g in zip(model.parameters(), grads):
                        {update}
            return model(x).pow(2).mean() + 0.1 * loss
        """
    expected = f"""
        def adapt(model, x, lr=0.1, k=2):
            fast = dict(model.named_parameters())
            for _ in range(k):
                loss = torch.func.functional_call(model, fast, (x,)).pow(2).mean()
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {{name: {step} for (name, p), g in zip(fast.items(), grads)}}
            return torch.func.functional_call(model, fast, (x,)).pow(2).mean() + 0.1 * loss
        """
    fix = fix_by(RULE, START, cell, "adapt(model, x).backward()")
    assert fix.cells == {2: clean(expected).rstrip()}
