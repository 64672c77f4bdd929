"""All that a loss is made by, from a net to its backward, keeps the history of its values."""

from __future__ import annotations

import pytest

from ...cells import new_shell, run_in
from ..trying import clean, proposals

RULE = "connected: whole"
HEAD, BACK = "import numpy as np, torch\n", "loss.backward()\n"


def found(cell: str, cut: str) -> list[str]:
    made = proposals(
        "connected", HEAD + cell + BACK, write=cut, raised=(BACK.strip(),), family="silent", how="untrained"
    )
    return [proposal.texts[1] for proposal in made if proposal.form == RULE]


@pytest.mark.parametrize(
    ("cell", "cut"),
    [
        pytest.param("y = net(x)\nloss = y.mean()\n", "net(x)", id="nothing is cut"),
        pytest.param("y = net(x)\nlog.append(y.item())\nloss = y.mean()\n", "y.mean()", id="a number beside the loss"),
        pytest.param("y = net(x).argmax()\nloss = y.float()\n", "net(x).argmax()", id="what has no derivative"),
        pytest.param(
            "y = net(x)\nq = y + (code - y).detach()\nloss = q.mean()\n", "(code - y).detach()", id="a straight-through value",
        ),
        pytest.param(
            "y = net(x).argmax()\nw = torch.tensor([1.0, 2.0])\nt = torch.from_numpy(a)\nloss = (w * t * y).sum()\n", "net(x).argmax()",
            id="data that is made on the way",
        ),
    ],
)  # fmt: skip
def test_proposes_nothing(cell: str, cut: str) -> None:
    assert found(cell, cut) == []


@pytest.mark.parametrize(
    ("cell", "cut", "expected"),
    [
        pytest.param(
            "y = []\nfor x in xs:\n    y.append(net(x).item())\nloss = torch.tensor(y, requires_grad=True).mean()\n",
            "net(x).item()",
            "y = []\nfor x in xs:\n    y.append(net(x))\nloss = torch.stack(y).mean()\n",
            id="numbers in a list",
        ),
        pytest.param(
            "y = 0\nfor x in xs:\n    y += float(net(x))\nloss = Variable(torch.tensor(y), requires_grad=True)\n",
            "float(net(x))",
            "y = 0\nfor x in xs:\n    y += net(x)\nloss = y\n",
            id="numbers in a sum",
        ),
        pytest.param(
            "y = [net(x), net(2 * x)]\nloss = torch.FloatTensor([np.mean(y)])\nloss.requires_grad = True\n",
            "torch.FloatTensor([np.mean(y)])",
            "y = [net(x), net(2 * x)]\nloss = torch.stack([torch.stack(y).mean()])\n",
            id="the mean of numpy, and a flag",
        ),
        pytest.param(
            "y = net(x) + 1\nloss = nn.Parameter(torch.tensor((y - b.item()).data[0]))\n",
            "(y - b.item()).data",
            "y = net(x) + 1\nloss = (y - b.item())[0]\n",
            id="a parameter of what is computed, with a baseline",
        ),
        pytest.param(
            "x = Variable(data, requires_grad=True)\ny = torch.from_numpy(net(x).detach().cpu().numpy()).requires_grad_(True)\nloss = y.mean()\n",
            "net(x).detach()",
            "x = Variable(data, requires_grad=True)\ny = net(x).cpu()\nloss = y.mean()\n",
            id="by way of numpy, behind an input that requires grad",
        ),
        pytest.param(
            "y = net(x).mean()\nif on:\n    y = Variable(y, requires_grad=True)\n    y.requires_grad_()\nloss = y * 2\n",
            "Variable(y, requires_grad=True)",
            "y = net(x).mean()\nif on:\n    pass\nloss = y * 2\n",
            id="what is itself then",
        ),
        pytest.param(
            "loss = torch.tensor(\n    net(x).item()\n    - net(y).item(), requires_grad=True)\n",
            "torch.tensor(\n    net(x).item()\n    - net(y).item(), requires_grad=True)",
            "loss = (net(x)\n    - net(y))\n",
            id="on several lines",
        ),
    ],
)  # fmt: skip
def test_makes_the_path_whole(cell: str, cut: str, expected: str) -> None:
    assert HEAD + expected + BACK in found(cell, cut)


def test_a_name_that_is_bound_anew_comes_from_elsewhere() -> None:
    cell = "v = net(x).item()\nlosses = [v]\nv = data\nt = torch.tensor(v, requires_grad=True)\nloss = torch.tensor(losses).mean() + t\n"
    first = found(cell, "net(x).item()")[0]
    assert (
        "v = net(x)\n" in first
        and "torch.stack(losses).mean()" in first
        and "t = torch.tensor(v, requires_grad=True)" in first
    )


def test_a_function_that_gives_back_a_loss_is_on_its_way() -> None:
    setup = """
        import torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        def criterion(x):
            terms = []
            for row in x:
                terms.append(net(row).square().item())
            terms = torch.tensor(terms)
            return terms.mean()
        """
    cell = "%%autograd_check\nfor x in torch.randn(2, 4, 3):\n    opt.zero_grad()\n    loss = criterion(x)\n    loss.requires_grad = True\n    loss.backward()\n    opt.step()\n"
    shell = new_shell()
    run_in(shell, [clean(setup)])
    diagnosis = run_in(shell, [cell]).diagnosis
    assert diagnosis is not None and diagnosis.changed is not None and ".item()" in diagnosis.changed.text
    first = diagnosis.fixes[0]
    assert "terms.append(net(row).square())" in first.cells[1] and "terms = torch.stack(terms)" in first.cells[1]
    assert "requires_grad" not in first.cells[2]
