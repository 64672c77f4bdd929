"""Leaves that have no name, and results that are asked for their gradient."""

from __future__ import annotations

import textwrap

import pytest

from .programs import Program
from .running import watch

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
LOST = "a result: the leaf that it is computed of has no name"
BACK = "loss = (x[:3] * y).sum()\nloss.backward()\n"


def notes(text: str) -> list[str]:
    text = textwrap.dedent(text)
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    return [finding.changed_note for finding in seen.findings]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("y = v * 2\n" + BACK + "y.grad", id="the leaf has a name"),
        pytest.param("leaves = {'v': torch.rand(3, requires_grad=True)}\ny = leaves['v'] * 2\n" + BACK + "y.grad", id="a dict has it"),
        pytest.param("net = nn.Linear(3, 3)\ny = net.weight[0] * 2\n" + BACK + "y.grad", id="a module has it"),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2 + v\n" + BACK + "y.grad", id="one of two leaves has a name"),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\ny.retain_grad()\n" + BACK + "y.grad", id="the gradient is kept"),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\ny.grad\n" + BACK, id="it is read ahead of the backward"),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\n" + BACK, id="nobody reads it"),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\nx.sum().backward()\ny.grad", id="the backward is another one's"),
        pytest.param(
            "y = torch.rand(3, requires_grad=True) * 2\nu = (x[:3] * y).square().sum()\n"
            "(g,) = torch.autograd.grad(u, y, create_graph=True)\ng.sum().backward()\ny.grad", id="it was asked for",
        ),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\nv.sum().backward()\ny.grad\n" + BACK, id="another backward came before"),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\n" + BACK + "y.grad = x[:3].detach()\ny.grad", id="it is set by hand"),
        pytest.param("loss = (torch.rand(3, requires_grad=True) * 2).sum()\nloss.backward()\nloss.grad", id="it is the loss"),
        pytest.param("w = torch.rand(3, requires_grad=True) * 2\ny = w + 1\n" + BACK + "y.grad", id="a value between has a name"),
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\n" + BACK + "nn.utils.clip_grad_norm_([v, y], 1.0)", id="torch reads it"),
        pytest.param(
            "def made():\n    leaf = torch.rand(3, requires_grad=True)\n    leaf.register_hook(print)\n    return leaf * 2\n"
            "y = made()\n" + BACK + "y.grad", id="the leaf has a hook",
        ),
        pytest.param("y = v * 2\n" + BACK + "with torch.inference_mode():\n    y.grad", id="a result is read in inference mode"),
        pytest.param(
            "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.variable = 'x'\n"
            "        return x * 2\n    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"
            "y = Twice.apply(v)\n" + BACK + "y.grad", id="a Function calls something its variable",
        ),
        pytest.param("y = torch.rand(3, requires_grad=True)\n" + BACK + "y.grad", id="a leaf itself"),
    ],
)  # fmt: skip
def test_nothing_is_said_where(text: str) -> None:
    assert notes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("y = torch.rand(3, requires_grad=True) * 2\n" + BACK + "y.grad", id="made and scaled"),
        pytest.param("y = torch.rand(1, 3, requires_grad=True).view(3)\n" + BACK + "y.grad", id="made and viewed"),
        pytest.param("y, other = torch.rand(2, 3, requires_grad=True)\n" + BACK + "y.grad", id="one of two made at once"),
        pytest.param("y = nn.Parameter(torch.rand(3)).double().float()\n" + BACK + "y.grad", id="a parameter that is converted"),
        pytest.param("y = torch.rand(3, requires_grad=True)\ny = y / 2\n" + BACK + "y.grad", id="one name for both"),
        pytest.param(
            "y = torch.rand(3, requires_grad=True) * torch.rand(3, requires_grad=True)\n" + BACK + "y.grad", id="made of two"
        ),
        pytest.param(
            "y = torch.rand(3, requires_grad=True) * 2\n" + BACK + "with torch.no_grad():\n    y.grad", id="read without grad mode"
        ),
        pytest.param(
            "def made():\n    raw = torch.rand(3, requires_grad=True)\n    return raw * 2\ny = made()\n" + BACK + "y.grad",
            id="made in a function that is over",
        ),
        pytest.param(
            "y = torch.rand(3, requires_grad=True) * 2\n" + BACK + "with torch.inference_mode():\n    y.grad", id="read in inference mode"
        ),
    ],
)  # fmt: skip
def test_a_leaf_without_a_name_is_found_where(text: str) -> None:
    assert notes(text) == [LOST]


def test_the_backward_that_went_through_the_leaf_is_named_and_none_where_that_is_not_known() -> None:
    text = "y = torch.rand(3, requires_grad=True) * 2\n" + BACK + "other = v.sum()\nother.backward()\ny.grad\n"
    (found,) = watch(Program("by hand", text), text).findings
    assert found.needed is not None and found.needed.text == "loss.backward()"
    gone = text.replace("other.backward()", "other.backward()\ndel loss")
    assert watch(Program("by hand", gone), gone).findings == ()
