"""The path from an optimizer's parameters to the loss is made whole again."""

from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, proposals

RULE = "connected"


def found(cell: str, cut: str) -> list[str]:
    return [p.texts[1] for p in proposals(RULE, cell, write=cut, family="silent", how="untrained")]


def test_proposes_nothing_for_writes() -> None:
    assert proposals(RULE, "h = net(x).detach()", write="h = net(x).detach()", family="silent") == []


@pytest.mark.parametrize(
    ("cell", "cut"),
    [
        pytest.param("h = net(x)", "h = net(x)", id="nothing is cut"),
        pytest.param("log.append(loss.item())", "loss.item()", id="a number that is kept"),
        pytest.param("rate = float('1e-3') * x", "float('1e-3')", id="a number that is a constant"),
        pytest.param("h = torch.tensor(p.item(), dtype=d)", "p.item()", id="a tensor of another type"),
        pytest.param(
            "g = torch.autograd.grad(loss, w, retain_graph=True)", "g = torch.autograd.grad(loss, w, retain_graph=True)",
            id="a gradient whose graph is kept on purpose",
        ),
        pytest.param("with torch.enable_grad():\n    h = net(x)", "with torch.enable_grad():\n    h = net(x)", id="a block that cuts nothing"),
        pytest.param(
            "opt = SGD(net.parameters())\nopt.step()\nnet.w = Parameter(w)\nopt.step()", "net.w = Parameter(w)",
            id="an optimizer that is used before",
        ),
        pytest.param(
            "net.w = Parameter(w)\nopt = SGD(net.parameters())\nopt.step()", "net.w = Parameter(w)",
            id="an optimizer that is made behind",
        ),
    ],
)  # fmt: skip
def test_proposes_nothing(cell: str, cut: str) -> None:
    assert found(cell, cut) == []


@pytest.mark.parametrize(
    ("cell", "cut", "expected"),
    [
        pytest.param("h = net(x).detach()\n", "h = net(x).detach()", ["h = net(x)\n"], id="a detach"),
        pytest.param("loss = loss - p.item() * r\n", "p.item()", ["loss = loss - p * r\n"], id="a number"),
        pytest.param("def f():\n    return -p.item() * r\n", "p.item()", ["def f():\n    return -p * r\n"], id="a number that is given back"),
        pytest.param("loss -= float(p + q)\n", "float(p + q)", ["loss -= (p + q)\n"], id="a number taken from a sum"),
        pytest.param("loss = -float(p.item())\n", "p.item()", ["loss = -p\n"], id="a number of a number"),
        pytest.param(
            "loss = p.item() * q.item()\n", "p.item()", ["loss = p * q.item()\n", "loss = p.item() * q\n", "loss = p * q\n"],
            id="each of two numbers, then both",
        ),
        pytest.param(
            "loss = torch.tensor(p.item(), requires_grad=True)\n", "p.item()", ["loss = p\n"], id="a tensor that is made of a number",
        ),
        pytest.param(
            "h = net(x).detach() + p.data\n", "h = net(x).detach() + p.data",
            ["h = net(x) + p.data\n", "h = net(x).detach() + p\n", "h = net(x) + p\n"], id="each of several, then all",
        ),
        pytest.param(
            "if on:\n    with torch.no_grad():\n        h = net(x)  # features\n        h = h + 1\n",
            "with torch.no_grad():\n        h = net(x)  # features\n        h = h + 1",
            ["if on:\n    h = net(x)  # features\n    h = h + 1\n"], id="a block",
        ),
        pytest.param(
            "h = checkpoint(net, x, use_reentrant=True)\n", "h = checkpoint(net, x, use_reentrant=True)",
            ["h = checkpoint(net, x, use_reentrant=False)\n"], id="a checkpoint with reentry",
        ),
        pytest.param(
            "h = checkpoint(net, x)\n", "h = checkpoint(net, x)", ["h = checkpoint(net, x, use_reentrant=False)\n"],
            id="a checkpoint that does not say",
        ),
        pytest.param(
            "net.load_state_dict(state, assign=True)\n", "net.load_state_dict(state, assign=True)",
            ["net.load_state_dict(state)\n"], id="parameters that are exchanged",
        ),
        pytest.param(
            "g = torch.autograd.grad(loss, w)\n", "g = torch.autograd.grad(loss, w)",
            ["g = torch.autograd.grad(loss, w, create_graph=True)\n"], id="a gradient that has no history",
        ),
        pytest.param(
            "opt = SGD(net.parameters())\nnet.w = Parameter(w)\nnet.b = Parameter(b)\nfor x in data:\n    net(x).backward()\n    opt.step()\n",
            "net.w = Parameter(w)",
            ["net.w = Parameter(w)\nnet.b = Parameter(b)\nopt = SGD(net.parameters())\nfor x in data:\n    net(x).backward()\n    opt.step()\n"],
            id="an optimizer made too early",
        ),
    ],
)  # fmt: skip
def test_makes_the_path_whole(cell: str, cut: str, expected: list[str]) -> None:
    assert found(cell, cut) == list(map(clean, expected))


def test_a_sign_goes_or_is_taken_straight_through_where_a_function_gives_it() -> None:
    inner = proposals(RULE, "h = p.sign() * r\n", write="p.sign()", family="silent", how="flat")
    assert [p.texts[1] for p in inner] == ["h = p * r\n"]
    rounded = proposals(RULE, "h = torch.round(p + q) * r\n", write="torch.round(p + q)", family="silent", how="flat")
    assert [p.texts[1] for p in rounded] == ["h = (p + q) * r\n"]
    given = proposals(RULE, "def f(p):\n    return p.sign()\n", write="p.sign()", family="silent", how="flat")
    assert [p.texts[1].splitlines()[1].strip() for p in given] == ["return p", "return (p + (p.sign() - p).detach())"]


def test_a_step_is_what_is_named_where_no_line_cut_a_path() -> None:
    start = """
        import torch
        from torch import nn
        net, x = nn.Linear(3, 1), torch.randn(4, 3)
        opt, anneal = torch.optim.SGD(net.parameters(), 0.1), torch.optim.SGD([nn.Parameter(torch.ones(1))], 5.0)
        """
    cell = """
        for _ in range(3):
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()
            anneal.step()
        """
    run = run_cells(start, "%%autograd_check\n" + clean(cell))
    assert "steps what has no gradient" in run.output
    assert "gives no gradient to what the optimizer holds" in " ".join(run.output.split())
    assert "is cut here" not in run.output and "changed value" not in run.output


LEARNED_DATA = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    data, y, net = nn.Parameter(torch.randn(6, 3)), torch.randn(6, 1), nn.Linear(3, 1)
    opt = torch.optim.SGD([data], lr=0.1)
    """


def test_an_inner_step_that_is_not_differentiable_is_where_the_path_is_cut() -> None:
    cell = """
        for _ in range(2):
            opt.zero_grad()
            g = torch.autograd.grad((net(data) - y).square().mean(), net.weight)[0]
            w = net.weight - 0.1 * g
            (y @ w).square().mean().backward()
            opt.step()
        """
    run = run_cells(LEARNED_DATA, "%%autograd_check\n" + clean(cell))
    assert "is cut here" in run.output
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes] == [RULE]
    assert "create_graph=True" in run.diagnosis.fixes[0].cells[2]


@pytest.mark.parametrize("kept", ["retain_graph=True", "create_graph=True"])
def test_a_gradient_that_is_only_looked_at_is_not_what_is_named(kept: str) -> None:
    cell = f"""
        for _ in range(2):
            opt.zero_grad()
            shown = torch.autograd.grad((net(data) - y).square().mean(), net.weight, {kept})[0].norm().item()
            with torch.no_grad():
                features = net(data)
            (y * net.weight.sum() - features).square().mean().backward()
            opt.step()
        """
    output = run_cells(LEARNED_DATA, "%%autograd_check\n" + clean(cell)).output
    assert "is cut here" in output
    assert "with torch.no_grad():" in output[: output.index("is cut here")]
