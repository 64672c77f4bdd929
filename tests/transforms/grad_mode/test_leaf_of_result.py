"""What was to be a leaf requires grad once it is computed."""

from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, proposals

RULE = "leaf_of_result"


def found(cell: str, name: str = "w", how: str = "of_result") -> list[str]:
    cell = clean(cell) + "w.grad\n"
    return [
        p.texts[1].removesuffix("w.grad\n")
        for p in proposals(RULE, cell, write="w.grad", family="silent", how=how, name=name)
    ]


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        pytest.param("w = torch.rand(3, requires_grad=True)\n", "w", id="a leaf"),
        pytest.param("w = v\n", "w", id="another name for it"),
        pytest.param("w = torch.rand(3, requires_grad=on) * 2\n", "w", id="a leaf on a condition"),
        pytest.param("w = torch.rand(3, requires_grad=False) * 2\n", "w", id="a constant"),
        pytest.param("w = nn.Parameter(x, requires_grad=False).double()\n", "w", id="a parameter that is frozen"),
        pytest.param("w = net.requires_grad_(False).to(d)\n", "w", id="a net that is frozen"),
        pytest.param("w = net(x.requires_grad_())\n", "w", id="a leaf with a name of its own"),
        pytest.param("w = net(torch.rand(3, requires_grad=True))\n", "w", id="what a net gives"),
        pytest.param("w = nn.Parameter(torch.rand(3, requires_grad=True))\n", "w", id="a parameter"),
        pytest.param("w = torch.rand(3, requires_grad=True).shape[0] * x\n", "w", id="its shape"),
        pytest.param("w = torch.rand(3, requires_grad=True).size(0) * x\n", "w", id="its size"),
        pytest.param("w = torch.zeros(torch.rand(3, requires_grad=True).shape)\n", "w", id="what has its shape"),
        pytest.param("w = torch.rand(3, requires_grad=True) * 2\nw *= 0.5\n", "w", id="a name that is written behind"),
        pytest.param("w = []\nw.append(torch.rand(3, requires_grad=True) * 2)\n", "w[0]", id="a list that is filled"),
        pytest.param(
            "class Net:\n    def __init__(self):\n        self.w = torch.rand(3, requires_grad=True) * 2\n"
            "    def move(self):\n        self.w = self.w.to(d)\n",
            "net.w",
            id="one of two methods",
        ),
        pytest.param("w = x @ v\n", "w", id="what is computed of others"),
        pytest.param(
            "w = {}\nw['a'] = torch.rand(3, requires_grad=True) * 2\nw[key] = torch.zeros(3)\n",
            "w['a']",
            id="an item that a key may lead to",
        ),
        pytest.param(
            "w = {}\nw['a'] = torch.rand(3, requires_grad=True) * 2\nw['b'], w['a'] = made()\n",
            "w['a']",
            id="an item that is bound again",
        ),
        pytest.param(
            "w = {}\nw['a'] = torch.rand(3, requires_grad=True) * 2\nw['a'][0] = made()\n",
            "w['a']",
            id="an item that is written behind",
        ),
        pytest.param(
            "w = torch.rand(3, requires_grad=True) * 2\na, w = made()\n", "w", id="a name that is bound again"
        ),
        pytest.param(
            "w = torch.rand(3, requires_grad=True) * 2\nfor w in ws:\n    pass\n", "w", id="a name that a loop binds"
        ),
        pytest.param(
            "if small:\n    w = torch.rand(3, requires_grad=True)\nelse:\n    w = torch.rand(3, requires_grad=True) * 2\n",
            "w",
            id="one of two branches",
        ),
        pytest.param(
            "class A:\n    def f(self):\n        self.w = torch.rand(3, requires_grad=True) * 2\n"
            "class B:\n    def f(self):\n        self.w = torch.rand(3, requires_grad=True) / 2\n",
            "net.w",
            id="one of two classes",
        ),
        pytest.param("a, w = made()\n", "w", id="a part of what is unpacked"),
        pytest.param("w = torch.rand(3, requires_grad=True) * 2\n", "other", id="a name that no text binds"),
        pytest.param(
            "def made():\n    w = torch.rand(3, requires_grad=True) * 2\n", "w", id="a name of a function's own"
        ),
    ],
)
def test_proposes_nothing_for(cell: str, name: str) -> None:
    assert found(cell, name) == []


def test_proposes_nothing_for_writes() -> None:
    assert found("w = torch.rand(3, requires_grad=True) * 2\n", how="written") == []


@pytest.mark.parametrize(
    ("cell", "name", "expected"),
    [
        pytest.param(
            "w = torch.rand(3, requires_grad=True) * 0.1  # small\n", "w", ["w = (torch.rand(3) * 0.1).requires_grad_()  # small\n"],
            id="scaled",
        ),
        pytest.param(
            "w = torch.rand(3, requires_grad=True, device=d).view(3, 1)\n", "w", ["w = torch.rand(3, device=d).view(3, 1).requires_grad_()\n"],
            id="viewed",
        ),
        pytest.param(
            "w = torch.rand(3).requires_grad_().to(d)\n", "w", ["w = torch.rand(3).to(d).requires_grad_()\n"], id="moved, by a method",
        ),
        pytest.param(
            "w = nn.Parameter(torch.rand(3)).double()\n", "w", ["w = nn.Parameter(torch.rand(3).double())\n"], id="a parameter",
        ),
        pytest.param(
            "w = torch.sqrt(torch.rand(3, requires_grad=True))\n", "w", ["w = torch.sqrt(torch.rand(3)).requires_grad_()\n"],
            id="an argument",
        ),
        pytest.param("w = w.to(d)\n", "w", ["w = w.to(d).detach().requires_grad_()\n"], id="made elsewhere"),
        pytest.param("w = w * 0.1\n", "w", ["w = (w * 0.1).detach().requires_grad_()\n"], id="made elsewhere and scaled"),
        pytest.param(
            "w = [0.1 * torch.rand(n, requires_grad=True) for n in (2, 3)]\n", "w[1]",
            ["w = [(0.1 * torch.rand(n)).requires_grad_() for n in (2, 3)]\n"], id="the items of a list",
        ),
        pytest.param(
            "class Net:\n    def __init__(self):\n        self.w = torch.rand(3, requires_grad=True) * 0.1\n", "net.w",
            ["class Net:\n    def __init__(self):\n        self.w = (torch.rand(3) * 0.1).requires_grad_()\n"], id="an attribute",
        ),
        pytest.param(
            'ws = {}\nws["a"] = torch.rand(3, requires_grad=True) * 2\n', "ws['a']",
            ['ws = {}\nws["a"] = (torch.rand(3) * 2).requires_grad_()\n'], id="an item by its key",
        ),
        pytest.param(
            'ws = {}\nws["a"] = torch.rand(3, requires_grad=True) * 2\nws["b"], ws["c"] = torch.zeros(3), x\n', "ws['a']",
            ['ws = {}\nws["a"] = (torch.rand(3) * 2).requires_grad_()\nws["b"], ws["c"] = torch.zeros(3), x\n'], id="an item among others",
        ),
        pytest.param(
            "w = torch.rand(3, requires_grad=True) * torch.rand(3, requires_grad=True)\n", "w",
            ["w = (torch.rand(3) * torch.rand(3)).requires_grad_()\n"], id="made of two",
        ),
        pytest.param(
            "w = nn.Parameter(torch.rand(3, requires_grad=True) * 2).double()\n", "w",
            ["w = nn.Parameter((torch.rand(3, requires_grad=True) * 2).double())\n"], id="a parameter made of another leaf",
        ),
    ],
)  # fmt: skip
def test_proposes(cell: str, name: str, expected: list[str]) -> None:
    assert found(cell, name) == expected


LAYERS = "".join(f"w{n} = torch.randn(3, 3, requires_grad=True) * 0.5\n" for n in range(5))
START = (
    f"import torch\ntorch.manual_seed(0)\n{LAYERS}b = torch.zeros(3, requires_grad=True)\ndata = torch.randn(4, 3)\n"
)
CELL = """
    for _ in range(2):
        h = data
        for w in (w0, w1, w2, w3, w4):
            h = torch.tanh(h @ w)
        (h + b).square().sum().backward(KEEP)
        with torch.no_grad():
            for p in (w0, w1, w2, w3, w4, b):
                if p.grad is not None:
                    p -= 0.1 * p.grad
                    p.grad = None
    """


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("%%autograd_check\n" + clean(CELL).replace("KEEP", "retain_graph=True"), id="nothing is raised"),
        pytest.param(clean(CELL).replace("KEEP", ""), id="the graph of the layers is used up"),
    ],
)
def test_the_layers_of_a_net_written_by_hand_are_trained_where(cell: str) -> None:
    told = run_cells(START, cell).diagnosis
    assert told is not None
    fix = told.fixes[0]
    assert fix.verified and (fix.rule, fix.gradients, fix.untrained) == (RULE, "different", ())
    as_leaves = START.replace(
        "torch.randn(3, 3, requires_grad=True) * 0.5", "(torch.randn(3, 3) * 0.5).requires_grad_()"
    )
    assert fix.cells == {1: as_leaves.rstrip("\n")}


def test_the_line_that_made_the_result_is_named() -> None:
    cell = "%%autograd_check\n" + clean(CELL).replace("KEEP", "retain_graph=True")
    told = run_cells(START, cell).diagnosis
    assert told is not None and told.changed is not None and told.saved is not None and told.needed is not None
    places = [(one.cell, one.line) for one in (told.changed, told.saved, told.needed)]
    assert places == [(1, 3), (2, 9), (2, 6)]


def test_a_class_whose_cell_is_run_again_has_its_last_text() -> None:
    start = clean("""
        import torch
        class Net:
            def __init__(self, scale):
                self.w = torch.rand(3, requires_grad=True) * scale
    """)
    again = start.replace("* scale", "/ scale")
    cell = "%%autograd_check\nloss = net.w.sum()\nloss.backward()\nnet.w.grad\n"
    told = run_cells(start, again, "net = Net(2.0)", cell).diagnosis
    assert told is not None and told.changed is not None and (told.changed.cell, told.changed.line) == (2, 4)
    assert told.fixes[0].cells == {
        2: again.replace(
            "torch.rand(3, requires_grad=True) / scale", "(torch.rand(3) / scale).requires_grad_()"
        ).rstrip()
    }


def test_what_a_function_gives_back_becomes_a_leaf_there() -> None:
    start = clean("""
        import torch
        def make(values):
            a = torch.tensor(values, requires_grad=True).to(torch.double)
            return a
    """)
    cell = "%%autograd_check\nw = make([1.0, 2.0])\n(w * w).sum().backward()\nw.grad\n"
    told = run_cells(start, cell).diagnosis
    assert told is not None and told.changed is not None and (told.changed.cell, told.changed.line) == (1, 3)
    assert told.fixes[0].cells == {
        1: start.replace(
            "torch.tensor(values, requires_grad=True).to(torch.double)",
            "torch.tensor(values).to(torch.double).requires_grad_()",
        ).rstrip()
    }
