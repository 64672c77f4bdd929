from __future__ import annotations

import textwrap

import pytest

from ...cells import run_cells
from ..trying import rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
META = """
    tasks = torch.randn(2, 4, 3)
    for epoch in range(2):
        start = {name: value.clone() for name, value in net.state_dict().items()}
        losses = []
        for x in tasks:
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()
            losses.append(net(x).exp().mul(net(x)).mean())
            net.load_state_dict(start)
        opt.zero_grad()
        sum(losses).backward()
        opt.step()
    """
SIMPLE = "y = net(torch.ones(1, 3)).exp()\ny += 1\ny.sum().backward()"
WITH = "with torch.autograd.graph.allow_mutation_on_saved_tensors():"


def test_where_a_line_can_be_mended_torch_is_not_told_to_copy() -> None:
    assert "allow_mutation" not in rules(START, SIMPLE)


def test_a_step_between_two_losses_has_other_fixes_first() -> None:
    two = """
        import torch
        from torch import nn
        one, two = nn.Linear(3, 3), nn.Linear(3, 1)
        a, b = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (one, two))
        """
    cell = """
        h = one(torch.randn(4, 3))
        out = two(h)
        out.mean().backward(retain_graph=True)
        b.step()
        a.zero_grad()
        out.square().mean().backward()
        a.step()
        """
    run = run_cells(two, cell)
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.diagnosis.fixes[0].rule != "allow_mutation"


def test_a_graph_of_an_earlier_cell_is_out_of_reach() -> None:
    made, _, used = SIMPLE.partition("\n")
    assert "allow_mutation" not in rules(START, made, used)


def test_weights_put_back_ahead_of_the_backward_are_copied_by_torch() -> None:
    """Across a loop's end: the block holds the loop and the backward behind it, and nothing else moves."""
    run = run_cells(START, META)
    assert run.diagnosis is not None
    (fix,) = run.diagnosis.fixes
    assert (fix.rule, fix.gradients) == ("allow_mutation", "same")
    lines = fix.cells[2].splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip() == WITH)
    assert lines[at + 1].strip() == "for x in tasks:"
    assert lines[-1] == "    opt.step()"


def test_what_may_be_freed_within_the_block_is_not_left_to_torch() -> None:
    """torch finds a copy by the address of what was written; another tensor may lie there by the backward."""
    dropped = """
        total = 0
        for n in range(3):
            total = total + scaled(n)
        total.backward()
        """
    helper = """
        def scaled(n):
            x = torch.full((1, 3), n + 1.0)
            y = net(x).sum()
            torch._foreach_zero_([x])
            return y
        """
    assert "allow_mutation" not in rules(START, helper, dropped)


STEPS = """
    losses = []
    for x in torch.randn(3, 4, 3):
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward(retain_graph=True)
        CHANGE
        losses.append(loss.exp())
    opt.zero_grad()
    sum(losses).backward()
    opt.step()
    """


@pytest.mark.parametrize(
    "how, change, left",
    [
        ("", "opt.step()", True),
        (", foreach=True", "opt.step()", False),
        ("", "torch.no_grad()(torch._foreach_mul_)(list(net.parameters()), 0.9)", False),
    ],
    ids=["by one call for each tensor", "by an optimizer's one call for all", "by the user's"],
)
def test_what_raises_no_version_under_a_mode_is_not_left_to_torch(how: str, change: str, left: bool) -> None:
    """By chance, torch takes the copy of another tensor for what was saved after a foreach operation within its block."""
    start, steps = START.replace("lr=0.1", "lr=0.1" + how), STEPS.replace("CHANGE", change)
    assert ("allow_mutation" in rules(start, steps)) is left


def test_an_optimizer_that_no_name_of_the_session_leads_to_is_known_as_well() -> None:
    for how, left in (("", True), (", foreach=True", False)):
        made = f"    opt = torch.optim.SGD(net.parameters(), lr=0.1{how})\n"
        body = textwrap.indent(textwrap.dedent(STEPS.replace("CHANGE", "opt.step()")), "    ")
        assert ("allow_mutation" in rules(START, f"def train():\n{made}{body}train()")) is left


def test_weights_that_a_call_for_each_puts_back_may_be_stepped_all_at_once() -> None:
    run = run_cells(START.replace("lr=0.1", "lr=0.1, foreach=True"), META)
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes] == ["allow_mutation"]


def test_a_torch_of_somebody_elses_is_left_alone() -> None:
    start = START.replace(
        "import torch\n    from torch import nn", "from torch import nn, manual_seed, optim, randn"
    ).replace("torch.", "")
    run = run_cells("torch = {}", start, META.replace("torch.", ""))
    assert run.diagnosis is not None
    assert not any("import torch" in text for fix in run.diagnosis.fixes for text in fix.cells.values())


@pytest.mark.parametrize(
    "renamed, told",
    [
        ([("import torch\n", "import torch as t\n"), ("torch.", "t.")], "with t.autograd.graph."),
        (
            [
                ("import torch\n    from torch import nn", "from torch import nn, manual_seed, optim, randn"),
                ("torch.", ""),
            ],
            "import torch\n",
        ),
    ],
    ids=["by the name that it has", "imported where it has none"],
)
def test_torch_is_called(renamed: list[tuple[str, str]], told: str) -> None:
    cells = [START, META]
    for old, new in renamed:
        cells = [cell.replace(old, new) for cell in cells]
    run = run_cells(*cells)
    assert run.diagnosis is not None
    assert any(told in fix.cells[2] for fix in run.diagnosis.fixes)
