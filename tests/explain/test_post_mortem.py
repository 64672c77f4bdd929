"""What is said where a cell is not run again: from the error and the live graph, and worded as less certain."""

from __future__ import annotations

import gc
import textwrap
import weakref
from typing import Any

import pytest

from inplace_magic.diagnosis import Diagnosis
from inplace_magic.explain.post_mortem import look
from inplace_magic.source.sources import Sources
from inplace_magic.torch_private import SAVED_TENSORS_TELL
from tests.cells import new_shell, run_in

needs_saved_tensors = pytest.mark.skipif(not SAVED_TENSORS_TELL, reason="this torch's saved tensors do not tell")

SETUP = """
import torch
from torch import nn
w = torch.ones(3, requires_grad=True)
net = nn.Linear(3, 3)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
"""


def told(*cells: str) -> Diagnosis:
    shell = new_shell()
    run_in(shell, ["%config InplaceMagic.rerun = False", SETUP])
    done = run_in(shell, [textwrap.dedent(cell).strip("\n") for cell in cells])
    assert done.diagnosis is not None, done.output
    assert "verified," not in done.output
    assert not done.diagnosis.fixes
    return done.diagnosis


# (cells, the name, the node, the line that wrote, a part of the note on versions)
STALE = [
    pytest.param("x = w.exp()\nx += 1\nx.sum().backward()", "x", "exp", 2, "at version 0, now at version 1", id="one write in the text"),
    pytest.param("x = w.exp()\nx[0] = 1\nx.sum().backward()", "x", "exp", 2, "at version 0, now at version 1", id="a part is assigned"),
    pytest.param("x = w.exp()\nx.mul_(2)\nx.sum().backward()", "x", "exp", 2, "at version 0, now at version 1", id="a method"),
    pytest.param(
        "x = w.exp()\nx += 1\ny = x ** 2\nx -= 1\ny.sum().backward()", "x", "pow", 4, "at version 1, now at version 2",
        id="of two writes the one after the save",
    ),
    pytest.param("x = w.exp()\ny = x\ny += 1\nx.sum().backward()", "x", "exp", 3, "at version 0, now at version 1", id="by another name"),
    pytest.param(
        "def f():\n    z = torch.sigmoid(w)\n    z.mul_(2)\n    z.sum().backward()\nf()", "z", "sigmoid", 3, "at version 0, now at version 1",
        id="in a function that the error went through",
    ),
    pytest.param(
        "with torch.enable_grad():\n    x = w.exp()\n    x += 1\nx.sum().backward()", "x", "exp", 3, "at version 0, now at version 1",
        id="within with",
    ),
    # The text leaves a doubt: no line is named.
    pytest.param("x = w.exp()\nfor _ in range(2): x += 1\nx.sum().backward()", "x", "exp", None, "at version 0, now at version 2", id="in a loop"),
    pytest.param(
        "def hidden(t): t.add_(1)\nx = w.exp()\nhidden(x)\nx.sum().backward()", "x", "exp", None, "at version 0, now at version 1",
        id="in a function that has returned",
    ),
    pytest.param(
        "def hidden(t): t.add_(1)\nx = w.exp()\nx += 1\ny = x ** 2\nhidden(x)\ny.sum().backward()", "x", "pow", None,
        "at version 1, now at version 2", id="one write in the text and another elsewhere",
    ),
    pytest.param("x = w.exp()\nif True: x += 1\nx.sum().backward()", "x", "exp", None, "at version 0, now at version 1", id="in a branch"),
    pytest.param(
        "h = net(net(w))\nloss = h.sum()\nloss.backward(retain_graph=True)\nsgd.step()\nloss.backward()",
        "net.weight", "addmm", None, "", id="by an optimizer",
    ),
    pytest.param(
        "def f():\n    z = w.exp()\n    z += 1\n    return z.sum()\nf().backward()", None, "exp", None, "at version 0, now at version 1",
        id="no name leads to it",
    ),
]  # fmt: skip


@needs_saved_tensors
@pytest.mark.parametrize(("cell", "name", "node", "line", "went"), STALE)
def test_what_has_changed(cell: str, name: str | None, node: str, line: int | None, went: str) -> None:
    found = told(cell)
    first = found.conflicts[0]
    assert (first.tensor, first.needed is not None) == (name, True)
    assert first.node == node
    assert (first.changed.line if first.changed else None) == line
    assert went in first.changed_note + first.needed_note
    assert "was not run again" in found.notes[0] and "the graph it left" in found.notes[0]


@needs_saved_tensors
def test_every_value_that_has_changed_is_told_the_first_one_first() -> None:
    found = told("x = w.exp()\nz = x ** 2\nx += 1\nz.sum().backward()")
    assert [c.node for c in found.conflicts] == ["pow", "exp"]


def test_a_freed_graph_and_the_name_that_leads_into_it() -> None:
    found = told("h = torch.zeros(3)\nfor _ in range(2):\n    h = torch.tanh(h + w)\n    h.sum().backward()")
    assert found.conflicts[0].tensor == "h" and "h leads into" in found.sentence


REFUSED = [
    pytest.param("w += 1", "w", "`+=`", id="a leaf"),
    pytest.param("w[0] = 1", "w", "the assignment to a part of it", id="a part of a leaf"),
    pytest.param("net.weight.mul_(2)", "net.weight", "`mul_()`", id="a parameter"),
    pytest.param("(w * 2).unbind(0)[0].add_(1)", "(w * 2).unbind(0)[0]", "`add_()`", id="one of several views"),
]


@pytest.mark.parametrize(("cell", "tensor", "operation"), REFUSED)
def test_a_refused_write_is_named_by_its_text(cell: str, tensor: str, operation: str) -> None:
    first = told(cell).conflicts[0]
    assert (first.tensor, first.operation) == (tensor, operation)
    assert first.changed is not None and first.changed.line == 1


def test_the_inference_tensor_of_the_line() -> None:
    found = told("with torch.inference_mode():\n    made = torch.ones(3)\n    other = torch.ones(3)\n(w * made).sum()")
    assert found.conflicts[0].tensor == "made"


@needs_saved_tensors
def test_no_hook_of_the_persons_is_called() -> None:
    shell = new_shell()
    run_in(shell, ["%config InplaceMagic.rerun = False", SETUP])
    hooks = """
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: [unpacked.append(1), t][1]):
        y = w.sin()
    z = y.exp()
    z += 1
    (z + y).sum().backward()
    """
    done = run_in(shell, [textwrap.dedent(hooks).strip()])
    assert done.diagnosis is not None and done.diagnosis.conflicts[0].node == "exp"
    assert shell.user_ns["unpacked"] == []


@needs_saved_tensors
def test_nothing_is_kept_alive() -> None:
    namespace: dict[str, Any] = {}
    error: RuntimeError | None = None
    try:
        exec("import torch\nz = torch.ones(3, requires_grad=True).exp()\nz += 1\nz.sum().backward()", namespace)
    except RuntimeError as raised:
        error = raised
    assert error is not None
    found = look(error, namespace, Sources({}, {}, None))
    alive = weakref.ref(namespace["z"])
    namespace.clear()
    error = None
    gc.collect()
    assert found.stale[0].version == 1 and alive() is None


def test_a_fault_in_looking_leaves_the_report_from_the_error_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import inplace_magic.pipeline as pipeline

    def boom(*args: Any) -> Any:
        raise ValueError("a fault")

    monkeypatch.setattr(pipeline, "look", boom)
    found = told("x = w.exp()\nx += 1\nx.sum().backward()")
    assert "the error message alone" in found.notes[0] and found.needed is not None


@needs_saved_tensors
def test_a_deep_graph_is_quick_enough() -> None:
    found = told("x = w\nfor _ in range(3000): x = x * 1.0001\nx = x.exp()\nx += 1\nx.sum().backward()")
    assert found.seconds < 5 and found.conflicts[0].tensor == "x"
