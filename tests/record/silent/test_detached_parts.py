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


def program(loss: str, made: str = MADE, turns: int = 2) -> str:
    loop = f"for turn in range({turns}):\n" + textwrap.indent(textwrap.dedent(loss), "    ")
    return f"{textwrap.dedent(made).rstrip()}\n{loop}\n{STEP}"


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
            program("loss = net(gate(x).detach()).sum()\nif turn: loss = loss + gate(x).square().sum()"),
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


def test_a_part_that_a_later_iteration_trains_is_trained_beside_one_that_no_optimizer_holds() -> None:
    made = MADE + "other = nn.Linear(3, 3)"
    loss = "loss = net((gate(x) + other(x)).detach()).sum()\nif turn == 2: loss = loss + gate(x).square().sum()"
    text = program(loss, made, turns=3)
    seen = watch(Program("by hand", text), text)
    assert (seen.findings, seen.detached) == ((), ())


def test_steps_of_others_and_lines_that_show_something_make_no_wrong_gradient_right() -> None:
    made = MADE + "critic = nn.Linear(3, 1)\n    other = torch.optim.SGD(critic.parameters(), 0.1)"
    loss = """
        shown = gate.weight.data.norm(), (gate(x).detach() * 2).sum()
        other.zero_grad(); critic(x).sum().backward(); other.step()
        loss = net(x @ gate.weight.data).sum()
        """
    text = program(loss.strip("\n"), made, turns=20)
    seen = watch(Program("by hand", text), text)
    assert [one.changed.text for one in seen.findings if one.changed] == ["loss = net(x @ gate.weight.data).sum()"]


def test_a_teacher_that_no_optimizer_steps_is_not_followed_for_ever() -> None:
    made = MADE.replace("[*gate.parameters(), *net.parameters()]", "net.parameters()")
    text = program("loss = (net(x) - gate(x).detach().sum()).square().sum()", made, turns=20)
    seen = watch(Program("by hand", text), text)
    assert (seen.problem, seen.findings, seen.detached) == (None, (), ())


ONCE = """
    gate, net = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*gate.parameters(), *net.parameters()], 0.1)
    x = torch.rand(2, 3)
    gate(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    """


def test_a_part_that_was_trained_before_in_the_same_run_is_trained() -> None:
    text = textwrap.dedent(ONCE) + "net(gate(x).detach()).sum().backward()\noptimizer.step()\n"
    seen = watch(Program("by hand", text), text)
    assert (seen.findings, seen.detached) == ((), ())


def test_what_comes_behind_the_end_of_a_watch_may_train_it() -> None:
    loss = "loss = net(gate(x).detach()).sum()\nif turn == 2: loss = loss + gate(x).square().sum()"
    text = program(loss, turns=3)
    run = run_in(new_shell(), [START, "%%autograd_check --backwards 2\n" + text])
    assert run.diagnosis is None and "nothing found" in run.output


@pytest.mark.parametrize("call", ["torch.detach(input=gate(x))", "torch.detach(gate(x))", "gate(x).data"])
def test_however_it_is_written(call: str) -> None:
    text = program(f"loss = net({call}).sum()")
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    assert [one.changed.text for one in seen.detached if one.changed] == [f"loss = net({call}).sum()"]


def test_a_weight_read_as_data_is_wrong_also_where_a_look_at_it_goes_into_the_loss() -> None:
    text = program("scale = gate.weight.detach().norm()\nloss = net(x @ gate.weight.data * scale).sum()")
    seen = watch(Program("by hand", text), text)
    assert [one.changed.text for one in seen.findings if one.changed] == [
        "loss = net(x @ gate.weight.data * scale).sum()"
    ]


def test_a_line_that_only_shows_something_is_not_the_one_that_is_told() -> None:
    text = program("h = gate(x)\nshown = (h.detach() * net.weight).sum()\nloss = net(h.softmax(-1).detach()).sum()")
    seen = watch(Program("by hand", text), text)
    assert [one.changed.text for one in seen.detached if one.changed] == ["loss = net(h.softmax(-1).detach()).sum()"]


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


@pytest.mark.parametrize(
    ("loss", "gone"),
    [
        pytest.param("g, k = gate(x).detach(), x\nloss = net(g * k).sum()", 1, id="one"),
        pytest.param("g = gate(x).detach()\nk = other(x).detach()\nloss = net(g * k).sum()", 1, id="one of two, each of which may be meant"),
        pytest.param("g = gate(x).detach()\nk = other(g).detach()\nloss = net(k).sum()", 1, id="one of two in a row"),
        pytest.param("z = net(x)\nq = gate(x).sum(-1, keepdim=True)\nloss = (z + (q - z).detach()).square().sum()", 0, id="none of a straight-through estimator"),
    ],
)  # fmt: skip
def test_a_fix_takes_the_cut_away_and_nothing_else(loss: str, gone: int) -> None:
    made = MADE + "other = nn.Linear(3, 3)\n    optimizer.add_param_group({'params': other.parameters()})"
    text = program(loss, made)
    found = run_in(new_shell(), [START, "%%autograd_check\n" + text]).diagnosis
    assert found is not None and found.may_be_meant
    assert [text.count("detach()") - fix.cells[2].count("detach()") for fix in found.fixes[:1]] == [gone] * bool(gone)


def test_an_initial_state_that_a_loop_goes_on_from_stays_cut_off() -> None:
    made = MADE + "h0 = nn.Parameter(torch.rand(2, 3))\n    optimizer.add_param_group({'params': [h0]})\n    h = h0 * 1"
    text = program("h = gate(x + h.detach())\nloss = net(h).sum()", made)
    found = run_in(new_shell(), [START, "%%autograd_check\n" + text]).diagnosis
    assert found is not None and found.may_be_meant and found.fixes == ()


WITHOUT = "with torch.no_grad():\n    term = gate(x).square().mean()\n"


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(WITHOUT + "loss = net(gate(x)).sum()\nshown = loss.detach() + term", id="it goes into no loss"),
        pytest.param(WITHOUT + "loss = (net(gate(x)) * term).sum()", id="it scales the loss"),
        pytest.param(WITHOUT + "loss = (net(gate(x)) - term).square().sum()", id="it is what something is compared with"),
        pytest.param("with torch.no_grad():\n    most = gate(x).amax()\nout = gate(x)\nloss = net(out).sum() + most + (out - most).exp().sum().log()",
                     id="what is taken off and put back, without gradients"),
        pytest.param("with torch.no_grad():\n    mean = gate(x).mean()\nloss = (net(gate(x)) - mean).square().mean() + mean", id="it shifts as well"),
        pytest.param("out = gate(x)\nloss = torch.zeros(()).to(out)\nloss = loss + net(out).square().sum()", id="a sum begins in the memory of something"),
        pytest.param("out = gate(x)\nloss = torch.zeros(()).type_as(out) + net(out).square().sum()", id="a sum begins with the type of something"),
        pytest.param("out = gate(x)\nmost = out.amax().item()\nloss = net(out).sum() + most + (out - most).exp().sum().log()",
                     id="what is taken off and put back, as a number"),
        pytest.param("term = gate(x).square().mean().item()\nloss = net(gate(x)).sum() * term + 0.3", id="a number scales the loss"),
        pytest.param("term = gate(x).square().mean()\nloss = net(gate(x)).sum() + 0.1 * (term - term.item())", id="a term is made zero and keeps its gradient"),
        pytest.param("term = gate(x).square().mean().item()\nloss = net(gate(x)).sum()\nshown = loss.detach() + term", id="a number goes into no loss"),
        pytest.param("term = x.square().mean().item()\nloss = net(gate(x)).sum() + term", id="a number of what has no history"),
        pytest.param("p = gate(x).mean().sigmoid()\nhard = (p > 0.5).float() - p.detach() + p\nloss = net(gate(x)).sum() + 0.1 * hard",
                     id="a straight-through value that is a term"),
        pytest.param("p = gate(x).mean().sigmoid()\nhard = (p > 0.5).float() + p - p.detach()\nloss = net(gate(x)).sum() + 0.1 * hard",
                     id="a straight-through value in another order"),
        pytest.param("p = gate(x).mean().sigmoid()\nhard = (p > 0.5).float() - p.data + p\nloss = net(gate(x)).sum() + 0.1 * hard",
                     id="a straight-through value by data"),
        pytest.param("loss = net(gate(x)).square().sum()\nwith torch.no_grad():\n    z = gate(x).mean()\nz.requires_grad_()\nloss = loss + z",
                     id="a leaf of its own"),
        pytest.param("term = gate(x).square().mean().detach()\nloss = net(gate(x)).sum() + term", id="it is detached, as it says"),
        pytest.param(
            "out = gate(x)\nmost = out.amax().detach()\nloss = net(out).sum() + most + (out - most).exp().sum().log()",
            id="what is taken off and put back",
        ),
        pytest.param(
            "out = gate(x)\nmask = (out > 0).float()\nloss = (net(out) * mask.mean()).sum() + mask.mean()", id="it weighs as well",
        ),
        pytest.param(
            "out = gate(x)\nhard = (out > 0).float()\nloss = net(hard - out.detach() + out).sum()", id="a straight-through value"
        ),
    ],
)  # fmt: skip
def test_no_term_is_said_to_train_nothing_where(loss: str) -> None:
    seen = watch(Program("by hand", program(loss)), program(loss))
    assert seen.problem is None
    assert (seen.findings, seen.detached) == ((), ())


def test_a_term_that_is_computed_without_gradients_may_be_meant() -> None:
    shell = new_shell()
    run_in(shell, [START])
    text = program(WITHOUT + "loss = net(gate(x)).square().sum() + 0.1 * term")
    seen = watch(Program("by hand", text), text)
    assert seen.findings == () and [one.changed and one.changed.text for one in seen.detached] == [
        "with torch.no_grad():"
    ]
    found = run_in(shell, ["%%autograd_check\n" + text]).diagnosis
    assert found is not None and found.may_be_meant
    assert (
        "    term = gate(x).square().mean()\n" in found.fixes[0].cells[2] and "no_grad" not in found.fixes[0].cells[2]
    )


@pytest.mark.parametrize(
    ("read", "added"),
    [
        pytest.param("gate(x).square().mean().item()", "term", id="itself"),
        pytest.param("float(gate(x).square().mean())", "0.1 * term", id="times a number of the code"),
        pytest.param("gate(x).square().mean().detach().item()", "scale * term", id="times a number with a name"),
    ],
)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_a_term_that_is_a_number_may_be_meant(read: str, added: str) -> None:
    text = program(
        f"scale, unlike_any_float = 0.25, 2**2048\nterm = {read}\nloss = net(gate(x)).square().sum() + {added}"
    )
    seen = watch(Program("by hand", text), text)
    assert seen.findings == ()
    assert [one.changed and one.changed.text for one in seen.detached] == [f"term = {read}"]
    found = run_in(new_shell(), [START, "%%autograd_check\n" + text]).diagnosis
    assert found is not None and found.may_be_meant
    assert "    term = gate(x).square().mean()\n" in found.fixes[0].cells[2]


def test_a_term_within_a_closure_is_seen() -> None:
    text = (
        MADE
        + """
    def closure():
        optimizer.zero_grad()
        loss = net(gate(x)).square().sum() + (net(x) > 0).float().mean()
        loss.backward()
        return loss
    for turn in range(2):
        optimizer.step(closure)
    """
    )
    (found,) = watch(Program("by hand", text), textwrap.dedent(text)).findings
    assert found.changed is not None and "(net(x) > 0)" in found.changed.text
