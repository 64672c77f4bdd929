"""Candidates in the order of their cost, and what is added to one that fails again elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from inplace_magic.transforms.problem import Problem
from inplace_magic.transforms.proposal import Proposal, in_one_text
from inplace_magic.verify import composing

from ..cells import run_cells

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    lin = nn.Linear(3, 3)
    """
PLAIN = """
    x = torch.tanh(lin(torch.ones(2, 3)))
    x += 1
    x.sum().backward()
    """
MODELS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    enc, dec = nn.Linear(4, 4), nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 4))
    enc_opt, dec_opt = torch.optim.Adam(enc.parameters()), torch.optim.Adam(dec.parameters())
    data = torch.randn(3, 6, 4)
    """
ONE_GRAPH = """
    for x in data:
        mean, spread = enc(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * spread.exp()
        rebuilt = (dec(z) - x).pow(2).mean()
        prior = (mean ** 2 + spread.exp() - spread).mean()
        dec_opt.zero_grad()
        rebuilt.backward()
        dec_opt.step()
        enc_opt.zero_grad()
        (rebuilt + prior).backward()
        enc_opt.step()
    """


def test_a_plain_write_is_tried_once_for_each_kind_of_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    try_out = composing.try_out
    monkeypatch.setattr(
        composing, "try_out", lambda b, p, c, *rest: (tried.append(c.steps[0].rule), try_out(b, p, c, *rest))[1]
    )
    run = run_cells(START, PLAIN)
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes] == tried
    assert len(set(tried)) == len(tried) == 3


def test_a_graph_is_kept_and_the_step_put_off_where_neither_alone_serves() -> None:
    run = run_cells(MODELS, ONE_GRAPH)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.gradients == "same"
    assert fix.cells[2].index("retain_graph=True") < fix.cells[2].index("(rebuilt + prior).backward(")
    assert fix.cells[2].index("(rebuilt + prior).backward(") < fix.cells[2].index("dec_opt.step()")


TWICE_SUMMED = """
    data = torch.randn(4, 3)
    opt = torch.optim.SGD(lin.parameters(), 0.1)
    for _ in range(2):
        total = 0
        for row in data:
            total += lin(row).pow(2).sum()
        opt.zero_grad()
        total.backward()
        opt.step()
        for row in data:
            total += lin(row).abs().sum()
        opt.zero_grad()
        total.backward()
        opt.step()
    """


def test_a_sum_that_goes_back_twice_begins_anew_and_its_value_is_told_as_changed() -> None:
    run = run_cells(START, TWICE_SUMMED)
    assert run.diagnosis is not None
    first, *others = run.diagnosis.fixes
    assert (first.rule, first.title, first.gradients) == ("reset_accumulator", "total = 0", "different")
    assert [clause.partition(" is ")[0] for clause in first.changes] == ["total"]
    assert [fix.cells for fix in others if "row).detach()" in fix.title] == []


OWN_CENTRES = """
    class Centres:
        def __init__(self):
            self.at = nn.Parameter(torch.randn(2, 3))
            self.opt = torch.optim.SGD([self.at], lr=0.1)

        def __call__(self, x):
            self.loss = (x @ self.at.t()).mean()
            return self.loss

        def update(self, *names):
            self.opt.zero_grad()
            self.loss.backward(retain_graph=True)
            self.opt.step()

    centres, opt = Centres(), torch.optim.SGD(lin.parameters(), lr=0.1)
    """
UPDATED_TOO_EARLY = """
    h = lin(torch.ones(2, 3)).tanh()
    loss = h.pow(2).mean() + centres(h)
    opt.zero_grad()
    centres.update()
    loss.backward()
    opt.step()
    """


def test_what_a_candidate_leaves_of_another_family_is_looked_at_as_that_family_asks() -> None:
    """Who freed a graph is only known to a run that keeps it."""
    run = run_cells(START, OWN_CENTRES, UPDATED_TOO_EARLY)
    assert run.diagnosis is not None
    texts = ["".join(fix.cells.values()) for fix in run.diagnosis.fixes]
    assert any("loss.backward(retain_graph=True)\ncentres.update()" in text for text in texts), texts


TWO_UPDATES = """
    gen, critic = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    gen_opt, critic_opt = torch.optim.Adam(gen.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(3):
        fake = gen(torch.ones(4, 3))
        score = critic(fake)
        critic_loss, gen_loss = critic(fake.detach()).mean(), -score.mean()
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()
        gen_opt.zero_grad()
        gen_loss.backward()
        gen_opt.step()
    """


@pytest.mark.all_fixes
def test_what_a_candidate_changes_is_measured_after_others_had_a_chance_to_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    for name in ("try_out", "measured"):
        work = getattr(composing, name)
        monkeypatch.setattr(composing, name, lambda *given, name=name, work=work: (done.append(name), work(*given))[1])
    run = run_cells(START, TWO_UPDATES)
    assert run.diagnosis is not None
    assert {"same", "different"} <= {fix.gradients for fix in run.diagnosis.fixes}
    assert run.diagnosis.fixes[0].gradients == "same"
    assert done[: done.index("measured") + 1] == ["try_out", "try_out", "measured"]


HELPED = """
    import torch
    from torch import nn
    torch.manual_seed(0)

    class Learner:
        def __init__(self, net):
            self.net, self.opt = net, torch.optim.Adam(net.parameters())
        def update(self, loss):
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    judge = lambda: Learner(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    maker, first, second, third = Learner(nn.Linear(2, 3)), judge(), judge(), judge()
    """
TRAIN_ALL = """
    for z in torch.randn(2, 5, 2):
        fake = maker.net(z)
        loss = first.net(fake).mean() - second.net(fake).mean()
        first.update(first.net(fake.detach()).exp().mean())
        loss = loss - third.net(fake).mean()
        second.update(second.net(fake.detach()).exp().mean())
        third.update(third.net(fake.detach()).exp().mean())
        maker.update(loss)
    """


def test_updates_that_share_a_helper_are_conflicts_of_their_own_and_all_move_in_their_order() -> None:
    run = run_cells(HELPED, TRAIN_ALL)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert (fix.rule, fix.gradients, fix.changes) == ("move_step", "same", ())
    calls = [line.strip().partition(".update")[0] for line in fix.cells[2].splitlines() if ".update" in line]
    assert calls == ["maker", "first", "second", "third"]


TWO_WRITES = """
    x = torch.tanh(lin(torch.ones(2, 3)))
    x += 1
    z = torch.sigmoid(x)
    z *= 2
    z.sum().backward()
    """


@pytest.mark.parametrize(
    ("second", "kept"),
    [
        pytest.param("torch.tanh(", True, id="one that nothing else serves for"),
        pytest.param(("torch.tanh(", "torch.sigmoid("), False, id="one that a later step serves for as well"),
    ],
)
def test_a_step_without_which_a_fix_is_verified_as_well_is_no_part_of_it(
    monkeypatch: pytest.MonkeyPatch, second: str | tuple[str, ...], kept: bool
) -> None:
    def propose(problem: Problem) -> Iterator[Proposal]:
        code = problem.code(2)
        assert code is not None
        writes = [n for n in ast.walk(code.tree) if isinstance(n, ast.AugAssign) and code.text(n) == "z *= 2"]
        if writes:
            edits = [code.replace(writes[0], "z = z * 2")]
            yield in_one_text(code, edits, "z = z * 2", "", "out_of_place: statement")
        else:
            calls = [n for n in ast.walk(code.tree) if isinstance(n, ast.Call) and code.text(n).startswith(second)]
            edits = [code.replace(n, f"torch.clone({code.text(n)})") for n in calls]
            yield in_one_text(code, edits, "clone", "", "clone_at_save: result")

    monkeypatch.setattr(composing, "propose", propose)
    run = run_cells(START, TWO_WRITES)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.gradients == "same" and "x += 1" in fix.cells[2]
    assert ("z = z * 2" in fix.cells[2]) is kept


def test_a_fix_by_which_an_earlier_cell_fails_is_none() -> None:
    kept = """
        import torch
        class Kept:
            def __init__(self):
                self.w = torch.ones(3, requires_grad=True)
                self.y = self.w.exp()
            def back(self):
                self.y.sum().backward()
            def back_again(self):
                self.y.dot(torch.ones(3)).backward()
        kept = Kept()
        """
    run = run_cells(kept, "kept.back()", "kept.back_again()")
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule == "retain"
    assert "detach" not in {fix.rule for fix in run.diagnosis.fixes}


def test_a_kind_that_keeps_the_gradients_leaves_the_next_turns_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiers = """
        first, second = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)), nn.Linear(4, 2)
        first_opt, second_opt = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second))
        """
    train = """
        for bag in torch.randn(2, 4, 3):
            features = []
            for part in bag.chunk(2):
                features.append(first(part).amax(0))
            loss = torch.stack(features).pow(2).mean()
            first_opt.zero_grad()
            loss.backward(retain_graph=True)
            first_opt.step()
            later = second(torch.stack(features)).exp().mean()
            second_opt.zero_grad()
            later.backward()
            second_opt.step()
        """
    tried: list[str] = []
    try_out = composing.try_out
    monkeypatch.setattr(
        composing, "try_out", lambda b, p, c, *rest: (tried.append(c.steps[0].rule), try_out(b, p, c, *rest))[1]
    )
    run = run_cells(START, tiers, train)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule == "detach"
    assert {"move_step", "recompute"} <= set(tried[: len(tried) - tried[::-1].index("detach")])
