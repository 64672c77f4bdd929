"""All that a loss is made by, from a net to its backward, keeps the history of its values."""

from __future__ import annotations

import pytest

from ...cells import new_shell, run_in
from ..trying import clean, proposals

RULE = "connected: whole"
BACK = "loss.backward()"


def found(cell: str, cut: str) -> list[str]:
    made = proposals("connected", cell, write=cut, raised=(BACK,), family="silent", how="untrained")
    return [proposal.texts[1] for proposal in made if proposal.form == RULE]


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("y = net(x)\nloss = y.mean()\nloss.backward()\n", id="nothing is cut"),
        pytest.param("y = net(x)\nprint(y.item())\nlog = y.item()\nloss = y.mean()\nloss.backward()\n", id="numbers beside the loss"),
        pytest.param("y = net(x)\nloss = torch.tensor(0.0, requires_grad=True)\nloss = loss + y\nloss.backward()\n", id="where a sum begins"),
    ],
)  # fmt: skip
def test_proposes_nothing(cell: str) -> None:
    assert found("import torch\n" + cell, "y = net(x)") == []


@pytest.mark.parametrize(
    ("cell", "expected", "place"),
    [
        pytest.param(
            "y = []\nfor x in xs:\n    y.append(net(x).item())\nloss = torch.tensor(y, requires_grad=True).mean()\n",
            "y = []\nfor x in xs:\n    y.append(net(x))\nloss = torch.stack(y).mean()\n",
            0,
            id="numbers in a list",
        ),
        pytest.param(
            "y = 0\nfor x in xs:\n    y += float(net(x))\nloss = Variable(torch.tensor(y), requires_grad=True)\n",
            "y = 0\nfor x in xs:\n    y += net(x)\nloss = y\n",
            1,
            id="numbers in a sum",
        ),
        pytest.param(
            "y = [net(x), net(2 * x)]\nloss = torch.FloatTensor([np.mean(y)])\nloss.requires_grad = True\n",
            "y = [net(x), net(2 * x)]\nloss = torch.stack([torch.stack(y).mean()])\n",
            0,
            id="the mean of numpy, and a flag",
        ),
        pytest.param(
            "y = net(x) + 1\nloss = nn.Parameter(y.detach() * (y - 1).item())\n",
            "y = net(x) + 1\nloss = y * (y - 1)\n",
            0,
            id="a parameter of what is computed",
        ),
        pytest.param(
            "y = torch.from_numpy(net(x).detach().cpu().numpy()).requires_grad_(True)\nloss = y.mean()\n",
            "y = net(x).cpu()\nloss = y.mean()\n",
            0,
            id="by way of numpy",
        ),
        pytest.param(
            "loss = net(x).mean()\nif on:\n    loss = Variable(loss, requires_grad=True)\nelse:\n    loss = loss.data\n",
            "loss = net(x).mean()\nif on:\n    pass\nelse:\n    pass\n",
            0,
            id="what is itself then",
        ),
    ],
)  # fmt: skip
def test_makes_the_path_whole(cell: str, expected: str, place: int) -> None:
    head = "import numpy as np, torch\n"
    assert found(f"{head}{cell}{BACK}\n", cell.splitlines()[0])[place] == f"{head}{expected}{BACK}\n"


def test_an_input_stays_a_leaf_first() -> None:
    leaf = "import torch\nx = Variable(data, requires_grad=True)\nx.requires_grad_()\n"
    cut = "loss = net(x.requires_grad_()).detach() + float(y)"
    first, last = found(f"{leaf}{cut}\n{BACK}\n", cut)
    assert first == f"{leaf}loss = net(x.requires_grad_()) + y\n{BACK}\n"
    assert last == f"import torch\nx = data\nloss = net(x) + y\n{BACK}\n"


def test_a_name_stands_for_a_tensor_as_well() -> None:
    cell = "import torch\ny = net(x)\nloss = torch.tensor(y, requires_grad=True)\nloss.backward()\n"
    made = [text.splitlines()[2] for text in found(cell, "y = net(x)")]
    assert made == ["loss = torch.stack(y)", "loss = y"]


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
