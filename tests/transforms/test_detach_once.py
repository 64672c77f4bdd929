"""A value computed once is taken without its history: before the loop that uses it, or where an object keeps it."""

from __future__ import annotations

import pytest

from ..cells import run_cells
from .trying import clean, fix_by, fixes, rewritten, rules

RULE = "detach"
START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    critic, actor = nn.Linear(3, 1), nn.Linear(3, 2)
    opt = torch.optim.SGD([*critic.parameters(), *actor.parameters()], lr=0.1)
    x = torch.randn(4, 3)
    """
EPOCHS = """
    values = critic(x).tanh()
    advantages = 1 - values
    for epoch in range(3):
        loss = -(actor(x).log_softmax(1) * advantages).mean() + critic(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
KEPT = """
    class Features:
        def __init__(self, x):
            hidden = torch.tanh(critic(x))
            self.x = torch.cat([hidden, x], 1)

    data = Features(x)
    head = nn.Linear(4, 1)
    opt = torch.optim.SGD(head.parameters(), lr=0.1)
    """
TRAINED = """
    for epoch in range(3):
        opt.zero_grad()
        head(data.x).pow(2).mean().backward()
        opt.step()
    """


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("loss = critic(x).exp().mean()\nloss.backward()\nloss.backward()", id="no loop"),
    ],
)
def test_is_not_offered(cell: str) -> None:
    assert RULE not in rules(START, cell)


def test_what_a_loop_uses_is_cut_before_it() -> None:
    fix = fix_by(RULE, START, EPOCHS)
    changes = ("for epoch", "advantages = advantages.detach()\nfor epoch")
    assert fix.cells == {2: rewritten(EPOCHS, changes)}
    assert fix.gradients == "truncated"


def test_what_an_object_keeps_is_cut_where_the_loop_reads_it() -> None:
    fix = fix_by(RULE, START, KEPT, TRAINED)
    assert fix.gradients == "truncated"
    assert "data.x = data.x.detach()" in fix.cells[3]


PENALISED = """
    penalty = 0.1 * sum(p.square().sum() for p in critic.parameters())
    for epoch in range(3):
        loss = critic(x).pow(2).mean() + penalty
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(PENALISED, id="its graph is used up"),
        pytest.param(
            PENALISED.replace("backward()", "backward(retain_graph=True)"), id="its weights have been stepped"
        ),
        pytest.param(
            "for p in critic.parameters():\n    p.data.zero_()\n"
            + clean(PENALISED).replace("critic(x)", "(critic(x) - 1)"),
            id="its gradient happens to be zero at the start",
        ),
        pytest.param(
            PENALISED.replace(
                "penalty = 0.1 * sum(p.square().sum() for p in critic.parameters())", "penalty = critic(x).tanh()"
            ).replace("+ penalty", "+ 0.1 * (penalty - 1).abs().mean()"),
            id="of which the term is computed",
        ),
    ],
)
def test_a_penalty_that_is_cut_off_trains_nothing_which_is_said_and_comes_later(cell: str) -> None:
    fixes = run_cells(START, cell).diagnosis.fixes  # type: ignore[union-attr]
    said = [(fix.rule, fix.changes) for fix in fixes]
    assert said[0] == ("recompute", ())
    assert ("detach", ("`penalty` trains nothing any more",)) in said[1:]


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(PENALISED.replace("+ penalty", "* penalty"), id="a factor, which other gradients depend on"),
        pytest.param(
            PENALISED.replace("critic(x).pow(2).mean() + penalty", "(critic(x) - penalty.exp()).pow(2).mean()"),
            id="a target, as the old one of a ratio",
        ),
        pytest.param(
            PENALISED.replace("+ penalty", "+ penalty").replace("loss.backward()", "loss.sqrt().backward()"),
            id="a term of what a root is taken of",
        ),
        pytest.param(
            "total = 0.0\nfor epoch in range(3):\n    loss = critic(x).pow(2).mean()\n    opt.zero_grad()\n"
            "    total = total + loss\n    total.backward()\n    opt.step()\n",
            id="a sum of what had its own backward before",
        ),
    ],
)
def test_a_cut_that_leaves_something_to_what_was_cut_off_is_one(cell: str) -> None:
    fix = fix_by(RULE, START, cell)
    assert not any("trains nothing" in change for change in fix.changes)
    assert fix.gradients == "truncated"


def test_a_total_that_a_method_adds_to_is_no_penalty_of_before() -> None:
    trainer = """
        import torch
        class Trainer:
            def __init__(self):
                self.net, self.total = torch.nn.Linear(2, 1), 0
                self.opt = torch.optim.SGD(self.net.parameters(), 0.1)
            def step(self, x):
                self.total = self.total + self.net(x).pow(2).mean()
                self.opt.zero_grad(); self.total.backward(); self.opt.step()
        trainer = Trainer()
        """
    cell = "for x in torch.ones(3, 4, 2):\n    trainer.step(x)"
    fix = fix_by("detach", trainer, cell)
    assert fix.cells == {2: f"{cell}\n    trainer.total = trainer.total.detach()"}
    assert fix.gradients == "truncated"


HANDED_OVER = """
    def fit(x, epochs=3):
        for _ in range(epochs):
            loss = (actor(x) - 1).pow(2).mean()
            step.zero_grad()
            loss.backward()
            step.step()
        return loss.item()

    step = torch.optim.SGD(actor.parameters(), lr=0.1)
    encode = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    """
GIVEN = """
    z = encode(x)
    print(fit(z))
    """
PRETRAINED = """
    pre = torch.optim.SGD(encode.parameters(), lr=0.1)
    encode(x).pow(2).mean().backward()
    pre.step()
    pre.zero_grad()
    """


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param((HANDED_OVER, GIVEN), id="nobody ever trains what made it"),
        pytest.param((HANDED_OVER, PRETRAINED, GIVEN), id="what made it was trained before"),
    ],
)
def test_what_is_handed_to_a_loop_once_is_cut_where_it_is_handed_over(cells: tuple[str, ...]) -> None:
    run = run_cells(START, *cells)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.cells == {len(cells) + 1: rewritten(GIVEN, ("fit(z)", "fit(z.detach())"))}
    assert {one.gradients for one in run.diagnosis.fixes if one.rule == RULE} == {"truncated"}


MADE = """
    def scaled(x):
        mean, std = critic(x).tanh().mean(0), critic(x).exp()
        return mean, std
    class Bank:
        def __init__(self, x):
            hidden = critic(x)
            self.keys = hidden / hidden.norm()
        def look_up(self, i):
            return self.keys[i]
    class Data:
        def __init__(self, *parts):
            self.parts = parts
        def look_up(self, i):
            return sum(part[i % len(part)] for part in self.parts)
    head = nn.Linear(1, 1)
    opt = torch.optim.SGD(head.parameters(), lr=0.1)
    def train(data):
        for i in range(8):
            opt.zero_grad()
            head(data.look_up(i).view(1)).pow(2).sum().backward()
            opt.step()
    """


@pytest.mark.parametrize(
    ("made", "cut"),
    [
        pytest.param("z = critic(x) * 2\ndata = Data(z)", "z = (critic(x) * 2).detach()\ndata = Data(z)", id="a name"),
        pytest.param("data = Data(critic(x))", "data = Data(critic(x).detach())", id="no name at all"),
        pytest.param(
            "zs = [critic(row) for row in x]\ndata = Data(zs)",
            "zs = [critic(row) for row in x]\nzs = [h.detach() for h in zs]\ndata = Data(zs)",
            id="a list",
        ),
        pytest.param(
            "mean, std = scaled(x)\ndata = Data(mean, std)",
            "mean, std = scaled(x)\nmean = mean.detach()\nstd = std.detach()\ndata = Data(mean, std)",
            id="several values of one call",
        ),
    ],
)
def test_what_objects_bring_into_the_loop_is_cut_where_it_is_made(made: str, cut: str) -> None:
    fix = fix_by(RULE, START, MADE, made, "train(data)")
    assert "\n".join(sorted(fix.cells[3].splitlines())) == "\n".join(sorted(cut.splitlines()))
    assert fix.gradients == "truncated"


def test_what_a_constructor_makes_is_cut_there() -> None:
    fix = fix_by(RULE, START, MADE, "train(Bank(x))")
    assert "self.keys = (hidden / hidden.norm()).detach()" in fix.cells[2]


def test_what_learns_through_it_is_not_cut_off() -> None:
    both = MADE.replace("head.parameters()", "[*head.parameters(), *critic.parameters()]")
    fixes = run_cells(START, both, "data = Data(critic(x))", "train(data)").diagnosis.fixes  # type: ignore[union-attr]
    assert all(fix.untrained for fix in fixes if fix.rule == RULE)


def test_a_term_of_what_no_optimizer_steps_never_trained_anything() -> None:
    frozen = """
        head = nn.Linear(2, 1)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        features = actor(x).tanh()
        for epoch in range(3):
            loss = head(features).pow(2).mean() + 0.01 * features.pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fix_by(RULE, START, frozen)
    assert not any("trains nothing" in change for change in fix.changes)


ROLLOUT = """
    class Rollout:
        def __init__(self):
            self.returns = torch.zeros(5, 1)
        def fill(self, last):
            self.returns[-1] = last
            for t in reversed(range(4)):
                self.returns[t] = 0.9 * self.returns[t + 1] + 1
        def batches(self):
            for t in range(4):
                yield self.returns[t : t + 1]
    rollout = Rollout()
    def learn(rollout):
        for returns in rollout.batches():
            loss = (critic(x).exp() - returns).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """


def test_what_an_object_makes_all_its_values_of_is_cut_where_it_gets_its_name() -> None:
    cell = "last = critic(x[:1]).exp()\nrollout.fill(last)\nlearn(rollout)"
    run = run_cells(START, ROLLOUT, cell)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].cells == {3: cell.replace(".exp()", ".exp().detach()")}


NORM_OF_WEIGHTS = """
    import torch
    from torch import nn
    torch.manual_seed(0)

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.v, self.g = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.ones(3, 1))
            self.norm = self.v.norm(dim=1, keepdim=True)

        def forward(self, x):
            return x @ (self.g * self.v / self.norm).T
    """
NORMED = """
    net = Normed()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.randn(3, 5, 3):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()
    """


def test_what_a_constructor_computes_of_the_weights_is_computed_of_the_trained_ones_rather_than_cut() -> None:
    first = fixes(NORM_OF_WEIGHTS, NORMED)[0]
    assert first.rule == "recompute"
    again = "        self.norm = self.v.norm(dim=1, keepdim=True)\n        return x"
    assert first.cells[1].rstrip() == rewritten(NORM_OF_WEIGHTS, ("        return x", again))


def test_features_that_a_constructor_takes_of_data_stay_what_they_are() -> None:
    features = NORM_OF_WEIGHTS.replace("nn.Module):", "nn.Module):  # of data").replace(
        "self.norm =", "self.norm = self.v @ rows +"
    )
    first = fixes(
        features.replace("def __init__(self)", "def __init__(self, rows)"),
        NORMED.replace("Normed()", "Normed(torch.ones(3, 1))"),
    )[0]
    assert first.rule == "detach"


def test_what_a_penalty_compares_with_the_trained_weights_stays_what_it_was() -> None:
    penalised = NORM_OF_WEIGHTS.replace(
        "return x @ (self.g * self.v / self.norm).T",
        "return x @ self.v + (self.v.norm(dim=1, keepdim=True) - self.norm).pow(2).sum()",
    )
    found = fixes(penalised, NORMED)
    assert [fix.rule for fix in found] == ["detach"]
    assert "self.norm = self.v.norm(dim=1, keepdim=True).detach()" in found[0].cells[1]


def test_of_a_dict_the_item_that_was_made_once_is_cut_and_not_what_stands_beside_it() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        x, body, head = torch.randn(5, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        store = {"scale": torch.ones(3, requires_grad=True)}
        store["features"] = body(x).tanh()
        opt = torch.optim.SGD([*head.parameters(), store["scale"]], lr=0.1)
        """
    cell = """
        for _ in range(3):
            opt.zero_grad()
            head(store["features"] * store["scale"]).square().mean().backward()
            opt.step()
        """
    found = fixes(start, cell)
    assert found[0].cells == {1: rewritten(start, ("body(x).tanh()", "body(x).tanh().detach()"))}
    assert not any("store.items()" in text for fix in found for text in fix.cells.values())


def test_a_cut_of_what_was_computed_once_of_a_weight_that_has_another_term_says_so_and_comes_behind() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        near, emb, head = torch.rand(5, 5), nn.Parameter(torch.randn(5, 3)), nn.Linear(3, 1)
        opt = torch.optim.SGD([emb, *head.parameters()], lr=0.1)
        smooth = near @ emb
        """
    cell = """
        for _ in range(3):
            loss = head(smooth).square().mean() + 1e-3 * emb.square().sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    found = fixes(start, cell)
    assert [fix.rule for fix in found[:2]] == ["recompute", "detach"]
    assert any("trains emb by a part of its loss alone" in change for change in found[1].changes)


def test_a_target_that_a_network_gave_once_is_cut_first_though_the_network_is_trained() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net, s, s2 = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3), torch.randn(5, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """
    cell = """
        target = 1 + 0.9 * net(s2).max(1).values
        for _ in range(3):
            loss = (net(s).max(1).values - target).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    assert fixes(start, cell)[0].cells == {2: rewritten(cell, ("for _", "target = target.detach()\nfor _"))}
