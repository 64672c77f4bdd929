"""Leaves that no backward has reached, and whose gradient is read: they are told of with the line that cuts them off."""

from __future__ import annotations

import textwrap

import pytest

import inplace_magic

from ...cells import new_shell, run_in
from .programs import START, Program
from .running import watch

NET = "net = nn.Linear(3, 1)\n"
BACK = "loss.backward()\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(NET + "loss = net(v * 2).sum()\n" + BACK + "v.grad", id="it is reached"),
        pytest.param(NET + "loss = net(v.detach()).sum()\n" + BACK, id="nobody reads it"),
        pytest.param(NET + "loss = net(v.detach()).sum()\nv.grad\n" + BACK, id="it is read ahead of the backward"),
        pytest.param(NET + "loss = net(v.detach()).sum()\n" + BACK + "v.grad is None", id="it is compared with None"),
        pytest.param(NET + "loss = net(v.detach()).sum()\n" + BACK + "if v.grad is not None: v.grad.zero_()", id="it is cleared if there is one"),
        pytest.param(NET + "loss = net(torch.ones(3)).sum()\n" + BACK + "v.grad", id="nothing is computed of it"),
        pytest.param(NET + "shown = v.detach() * 2\nloss = net(torch.ones(3)).sum()\n" + BACK + "v.grad", id="what is cut off goes nowhere"),
        pytest.param(NET + "loss = net(v.detach()).sum()\n" + BACK + "v.grad\n(v * 2).sum().backward()", id="another backward reaches it later"),
        pytest.param(
            NET + "loss = net(v.detach()).sum()\n" + BACK + "list(nn.utils.get_total_norm([v.grad]) for _ in ())\nnn.utils.clip_grad_norm_([v], 1.0)",
            id="torch reads it",
        ),
        pytest.param(
            NET + "opt = torch.optim.SGD([v, *net.parameters()], 0.1)\nfor _ in range(2):\n    opt.zero_grad()\n    loss = net(v.detach()).sum()\n"
            "    loss.backward()\n    v.grad\n    opt.step()",
            id="an optimizer holds it",
        ),
        pytest.param(NET + "(g,) = torch.autograd.grad(net(v.detach()).sum(), net.bias)\nv.grad", id="gradients were asked for"),
        pytest.param(
            NET + "(g,) = torch.autograd.grad(net(v).square().sum(), net.bias)\nprint(g.norm())\nloss = net(torch.ones(3)).sum()\n" + BACK + "v.grad",
            id="gradients were asked for and go to no loss",
        ),
        pytest.param(NET + "u = v.detach()\nloss = net(u).sum()\n" + BACK + "u.grad", id="what was cut off is no leaf that requires grad"),
    ],
)  # fmt: skip
def test_nothing_is_said_where(text: str) -> None:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    told = [one.changed_note for one in (*seen.findings, *seen.detached)]
    assert "its history ends here" not in told


@pytest.mark.parametrize(
    ("text", "cut", "sure"),
    [
        pytest.param("loss = net(v.detach() * 2).sum()", "loss = net(v.detach() * 2).sum()", False, id="detach"),
        pytest.param("u = v.data\nloss = net(u).sum()", "u = v.data", False, id=".data"),
        pytest.param("with torch.no_grad():\n    u = v * 2\nloss = net(u).sum()", "with torch.no_grad():", False, id="a block without grad mode"),
        pytest.param(
            "(g,) = torch.autograd.grad(net(v).square().sum(), net.bias)\nloss = net(torch.ones(3)).sum() * g.sum()",
            "(g,) = torch.autograd.grad(net(v).square().sum(), net.bias)",
            False,
            id="a gradient that is not differentiable",
        ),
        pytest.param("u = torch.tensor(v.tolist())\nloss = net(u).sum()", "u = torch.tensor(v.tolist())", False, id="a list"),
        pytest.param(
            "u = v.detach().numpy() / 2\nloss = net(torch.from_numpy(u).double()).sum()", "u = v.detach().numpy() / 2", False, id="numpy"
        ),
        pytest.param("u = torch.tensor([v[0], v[1], v[2]])\nloss = net(u).sum()", "u = torch.tensor([v[0], v[1], v[2]])", True, id="torch.tensor"),
        pytest.param(
            "u = torch.tensor([[v[0], 1.0, 2.0], [0.0, v[1], v[2]]])\nloss = net(u).sum()",
            "u = torch.tensor([[v[0], 1.0, 2.0], [0.0, v[1], v[2]]])",
            True,
            id="a matrix that is written out",
        ),
        pytest.param("loss = net((v > 0.5).double()).sum()", "loss = net((v > 0.5).double()).sum()", True, id="a comparison"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad", "ignore:To copy construct")
def test_the_line_that_cuts_it_off_is_named_as_what_may_be_meant_or_not(text: str, cut: str, sure: bool) -> None:
    text = f"{NET}{text}\n{BACK}print(v.grad)"
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    (found,) = seen.findings if sure else seen.detached
    assert found.changed is not None and found.saved is not None and found.needed is not None
    assert (found.changed.text, found.saved.text, found.needed.text) == (cut, "print(v.grad)", BACK.strip())


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param("u = v.detach()\nloss = net(u).sum()\n", "u = v\nloss = net(u).sum()\n", id="a detach"),
        pytest.param("v2 = v\nv2 = v2.detach()\nloss = net(v2).sum()\n", "v2 = v\nloss = net(v2).sum()\n", id="a line that does nothing else"),
        pytest.param(
            "u = torch.from_numpy((v.detach().numpy() - 0.5) / 0.2)\nloss = net(u).sum()\n",
            "u = (v - 0.5) / 0.2\nloss = net(u).sum()\n",
            id="a way through numpy",
        ),
        pytest.param("with torch.no_grad():\n    u = v * 2\nloss = net(u).sum()\n", "u = v * 2\nloss = net(u).sum()\n", id="a block"),
        pytest.param(
            "(g,) = torch.autograd.grad(net(v).square().sum(), net.bias)\nloss = net(torch.ones(3)).sum() * g.sum()\n",
            "(g,) = torch.autograd.grad(net(v).square().sum(), net.bias, create_graph=True)\nloss = net(torch.ones(3)).sum() * g.sum()\n",
            id="a gradient that is not differentiable",
        ),
    ],
)  # fmt: skip
def test_the_path_is_made_whole_as_in(cell: str, expected: str) -> None:
    shell = new_shell()
    run = run_in(shell, [START, NET, f"%%autograd_check\n{cell}{BACK}print(v.grad)"])
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.diagnosis.fixes[0].cells[3] == f"%%autograd_check\n{expected}{BACK}print(v.grad)"


@pytest.mark.parametrize(
    ("cut", "raised"),
    [
        pytest.param("v.detach()", False, id="of a detach, which may be meant"),
        pytest.param("(v > 0.5).double()", True, id="of a comparison"),
    ],
)
def test_strict_raises_or_not(cut: str, raised: bool) -> None:
    run = run_in(new_shell(), [START, NET, f"%%autograd_check --strict\nloss = net({cut}).sum()\n{BACK}print(v.grad)"])
    assert run.diagnosis is not None
    assert isinstance(run.error, inplace_magic.SilentGradientError) is raised
    assert run.diagnosis.may_be_meant is not raised
    assert ("That may be meant." in str(run.diagnosis)) is not raised


FAILS = "loss = net(v.detach()).sum()\nloss.backward()\nprint(v.grad.norm())"


def test_a_watched_cell_that_dies_of_such_a_gradient_is_explained() -> None:
    shell = new_shell()
    run = run_in(shell, [START, NET, f"%%autograd_check\n{FAILS}"])
    assert isinstance(run.error, AttributeError)
    assert run.diagnosis is not None
    assert run.diagnosis.conflicts[0].tensor == "v"
    assert run.diagnosis.headline == "A gradient that is read is None"
    assert run.diagnosis.fixes[0].cells[3] == f"%%autograd_check\n{FAILS.replace('.detach()', '')}"


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(FAILS, id="it is not watched"),
        pytest.param(
            f"%%autograd_check\n{FAILS.replace('v.grad.norm()', 'v.grad')}\nundefined", id="it dies of something else"
        ),
        pytest.param(
            f"%%autograd_check\n{FAILS.replace('v.grad.norm()', 'v.grad')}\nraise KeyboardInterrupt",
            id="it is interrupted",
        ),
    ],
)
def test_a_cell_that_dies_is_not_explained_where(cell: str) -> None:
    shell = new_shell()
    assert run_in(shell, [textwrap.dedent(START), NET, cell]).diagnosis is None
