"""Graphs kept for nothing: first the many ways in which they are needed, about which nothing may be said."""

from __future__ import annotations

import textwrap

import pytest

from tests.cells import run_cells

SETUP = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
x = torch.randn(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""

QUIET = [
    pytest.param("for _ in range(4):\n    net(x).mean().backward()", id="nothing is retained"),
    pytest.param("out = net(x)\nout.mean().backward(retain_graph=True)\nout.sum().backward()", id="two losses on one graph"),
    pytest.param("for _ in range(4):\n    out = net(x)\n    for k in range(3): (out * k).mean().backward(retain_graph=True)",
                 id="several losses of each round"),
    pytest.param("loss = net(x).mean()\nloss.backward(retain_graph=True)", id="a later cell may need it"),
    pytest.param("for _ in range(4):\n    h = net(x)\n    h.mean().backward(retain_graph=True)\n    h.sum().backward()",
                 id="gone through again by another line"),
    pytest.param("y = (x.requires_grad_() ** 3).sum()\nfor _ in range(3):\n    g, = torch.autograd.grad(y, x, create_graph=True)\n"
                 "    g.sum().backward()", id="gradients of gradients of one graph"),
    pytest.param("kept = []\nfor _ in range(5):\n    loss = net(x).mean()\n    loss.backward()\n    kept.append(loss)",
                 id="losses that are kept, their graphs freed"),
]  # fmt: skip
TOLD = [
    pytest.param("for _ in range(4):\n    loss = net(x).mean()\n    loss.backward(retain_graph=True)\n    net.zero_grad()", 4,
                 "unnecessary retain_graph=True; no later backward goes through these graphs", id="retained in a loop for nothing"),
    pytest.param("def step():\n    net(x).mean().backward(retain_graph=True)\nfor _ in range(3): step()", 3,
                 "unnecessary retain_graph=True", id="retained in a function for nothing"),
    pytest.param("kept = []\nfor _ in range(5):\n    loss = net(x).mean()\n    loss.backward(retain_graph=True)\n    kept.append(loss)",
                 5, "5 graphs of this backward are alive together", id="graphs kept in a list"),
]  # fmt: skip


@pytest.mark.parametrize("cell", QUIET)
def test_nothing_is_said(cell: str) -> None:
    done = run_cells(SETUP, f"%%autograd_check\n{textwrap.dedent(cell)}")
    assert done.error is None
    assert "retain" not in done.output and "alive" not in done.output


@pytest.mark.parametrize(("cell", "line", "says"), TOLD)
def test_what_is_certain_is_told_with_its_line(cell: str, line: int, says: str) -> None:
    done = run_cells(SETUP, f"%%autograd_check\n{textwrap.dedent(cell)}")
    assert done.error is None and done.diagnosis is None
    assert says in done.output and f"In[2]:{line}" in done.output


def test_nothing_is_held_by_the_watch() -> None:
    cell = "import weakref\nfor _ in range(3):\n    out = net(x)\n    out.mean().backward(retain_graph=True)\nseen = weakref.ref(out)\ndel out"
    done = run_cells(SETUP, f"%%autograd_check\n{cell}", "assert seen() is None")
    assert done.error is None
