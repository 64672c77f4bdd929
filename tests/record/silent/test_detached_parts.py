"""Parts of what an optimizer steps that are detached on their way to the loss: they are told of, and may be meant so."""

from __future__ import annotations

import textwrap

import pytest

import inplace_magic

from ...cells import new_shell, run_in
from .programs import START, Program
from .running import watch

MADE = """
    gate, net = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*gate.parameters(), *net.parameters()], 0.1)
    x = torch.rand(2, 3)
    """
STEP = "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"


def program(loss: str, made: str = MADE) -> str:
    return (
        textwrap.dedent(made).rstrip()
        + "\nfor _ in range(2):\n"
        + textwrap.indent(textwrap.dedent(loss), "    ")
        + "\n"
        + STEP
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(program("loss = net(gate(x)).sum()"), id="nothing is detached"),
        pytest.param(program("shown = gate(x).detach().max()\nloss = net(gate(x)).sum()"), id="what is shown"),
        pytest.param(program("shown = gate(x).detach().max()\nloss = net(x).sum()"), id="what goes into no loss"),
        pytest.param(
            program("h = gate(x)\nloss = net(h.detach()).square().sum() + h.square().sum()"), id="another term trains the part"
        ),
        pytest.param(
            program("loss = net(gate(x).detach()).sum()\nif _: loss = loss + gate(x).square().sum()"),
            id="a later iteration trains it",
        ),
        pytest.param(
            program("loss = net(gate(x).detach()).sum()", MADE.replace("[*gate.parameters(), *net.parameters()]", "net.parameters()")),
            id="the optimizer does not hold it",
        ),
        pytest.param(program("loss = net(gate(x).detach()).sum()", MADE + "gate.requires_grad_(False)"), id="it is frozen"),
        pytest.param(
            program(
                "loss = net(gate(x).detach()).sum()\nwith torch.no_grad():\n    for p in gate.parameters(): p.mul_(0.9)"
            ),
            id="it is stepped by hand",
        ),
        pytest.param(
            program("with torch.no_grad():\n    h = gate(x)\nloss = net(h).sum()"), id="it is computed under no_grad, as it says"
        ),
    ],
)  # fmt: skip
def test_nothing_is_said_where(text: str) -> None:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    assert (seen.findings, seen.detached) == ((), ())


DETACHED = program(
    "shown = gate(x).detach().max()\nweights = gate(x).softmax(-1).clone().detach()\nloss = net(weights * x).sum()"
)


def test_the_line_that_detaches_is_told_and_counts_as_no_wrong_gradient() -> None:
    seen = watch(Program("by hand", DETACHED), DETACHED)
    assert seen.findings == ()
    assert [one.changed.text for one in seen.detached if one.changed] == [
        "weights = gate(x).softmax(-1).clone().detach()"
    ]


def test_what_is_wrong_comes_first_and_its_fix_leaves_the_part_detached() -> None:
    text = DETACHED.replace("loss = ", "y = net.weight.exp()\n    y.data.mul_(2)\n    loss = y.sum() + ")
    found = run_in(new_shell(), [START, "%%autograd_check\n" + text]).diagnosis
    assert found is not None and found.changed is not None
    assert (found.changed.text, found.may_be_meant) == ("y.data.mul_(2)", False)
    assert found.fixes and "clone().detach()" in found.fixes[0].cells[2]


def test_the_report_says_what_to_do_if_it_is_meant_and_the_fix_is_verified() -> None:
    run = run_in(new_shell(), [START, "%%autograd_check --strict\n" + DETACHED])
    assert run.error is None, "may be meant, so that strict does not raise"
    found = run.diagnosis
    assert found is not None and found.may_be_meant
    assert "A part of what is trained is detached" in run.output
    assert "gate.weight" in run.output and "If that is meant, leave it out of the optimizer" in run.output.replace(
        "\n  ", " "
    )
    assert [fix.cells[2] for fix in found.fixes[:1] if fix.verified] == [
        "%%autograd_check --strict\n" + DETACHED.replace(".clone().detach()", ".clone()").rstrip("\n")
    ]
    assert inplace_magic.Diagnosis.from_dict(found.to_dict()).may_be_meant
