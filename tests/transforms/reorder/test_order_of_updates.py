"""Updates in a loop, or in blocks, that come in another order."""

from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import fix_by, rules

NETWORKS = """
    import torch
    from contextlib import contextmanager
    from torch import nn
    torch.manual_seed(0)
    nets = {"disc": nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)), "gen": nn.Linear(3, 3)}
    opts = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in nets.items()}

    def update(name, loss):
        opts[name].zero_grad()
        loss.backward()
        opts[name].step()

    @contextmanager
    def updating(name):
        opts[name].zero_grad()
        yield
        opts[name].step()

    def losses_of(x):
        fake = nets["gen"](x)
        return {"disc": nets["disc"](fake.detach()).exp().mean(), "gen": -nets["disc"](fake).mean()}
    """
HELPED = """
    def learn(x):
        losses = losses_of(x)
        for name, loss in losses.items():
            update(name, loss)
    for x in torch.randn(2, 4, 3):
        learn(x)
    """
IN_BLOCKS = """
    losses = losses_of(torch.randn(4, 3))
    with updating("disc"):
        losses["disc"].backward()
    with updating("gen"):
        losses["gen"].backward()
    """


def test_a_loop_that_makes_what_it_needs_is_not_turned_round() -> None:
    made = """
        for x in torch.randn(2, 4, 3):
            losses = losses_of(x)
            update("disc", losses["disc"])
            update("gen", losses["gen"])
        """
    assert "reverse_loop" not in rules(NETWORKS, made)


def test_of_two_blocks_that_update_the_later_one_goes_first() -> None:
    run = run_cells(NETWORKS, IN_BLOCKS)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    title = '`with updating("disc")` after `with updating("gen")`'
    assert (first.rule, first.gradients, first.title) == ("move_step", "same", title)


GUARDED = """
    def learn(x, critic=True, generator=True):
        losses = losses_of(x)
        opts["disc"].zero_grad(); opts["gen"].zero_grad()
        if critic:
            losses["disc"].backward()
            opts["disc"].step()
        if generator:
            losses["gen"].backward()
            opts["gen"].step()
    learn(torch.randn(4, 3))
    """


def test_it_does_not_where_the_test_may_say_something_else_by_then() -> None:
    rebound = GUARDED.replace('opts["disc"].step()\n', 'opts["disc"].step()\n            critic = False\n')
    run = run_cells(NETWORKS, rebound)
    assert run.diagnosis is not None
    assert all(text.count("if critic") == 1 for fix in run.diagnosis.fixes for text in fix.cells.values())


IN_METHODS = """
    class Model:
        def forward(self, x):
            self.fake = nets["gen"](x)
            self.losses = losses_of(x)
        def critic(self):
            self.losses["disc"].backward()
        def generator(self):
            (self.losses["gen"] + self.fake.square().mean()).backward()
        def optimize(self, x):
            self.forward(x)
            # the critic
            opts["disc"].zero_grad()
            self.critic()
            opts["disc"].step()
            # the generator
            opts["gen"].zero_grad()
            self.generator()
            opts["gen"].step()
    model = Model()
    for x in torch.randn(2, 4, 3):
        model.optimize(x)
    """


def test_an_update_that_keeps_the_graph_for_the_later_one_stays_ahead_of_it() -> None:
    cell = IN_METHODS.replace(
        "self.critic()\n            opts", 'self.losses["disc"].backward(retain_graph=True)\n            opts'
    )
    found = run_cells(NETWORKS, cell).diagnosis
    assert found is not None
    assert not any("zero_grad(), " in fix.title for fix in found.fixes)


def test_a_step_of_an_earlier_iterations_backward_is_moved_alone() -> None:
    cell = """
        class Back:
            def back(self, loss):
                loss.backward()
        m, a, b = Back(), nets["disc"], nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        each = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (b, a)]
        for i, x in enumerate(torch.randn(4, 4, 3)):
            loss = a(b(x)).square().mean()
            each[i % 2].step()
            m.back(loss)
        """
    assert fix_by("move_step", NETWORKS, cell).title == "each[i % 2].step() after m.back(loss)"


def test_the_title_of_a_block_is_its_head_on_one_line() -> None:
    cell = IN_BLOCKS.replace('with updating("gen"):', 'with updating(\n        "gen"\n    ):  # the generator')
    title = '`with updating("disc")` after `with updating( "gen" )`'
    assert fix_by("move_step", NETWORKS, cell).title == title


def test_a_loop_that_is_left_is_neither_listed_nor_turned_round() -> None:
    endless = """
        import itertools
        losses = losses_of(torch.randn(4, 3))
        for i, name in enumerate(itertools.cycle(losses)):
            opts[name].zero_grad()
            losses[name].backward()
            opts[name].step()
            if i == 1:
                break
        """
    assert not {"split_loop", "reverse_loop"} & {*rules(NETWORKS, endless)}


JUDGED = """
    for i, x in enumerate(torch.randn(3, 4, 3)):
        losses = losses_of(x)
        if {test}:
            opts["disc"].zero_grad()
            losses["disc"].backward(retain_graph=True)
            opts["disc"].step()
            {behind}
        opts["gen"].zero_grad()
        losses["gen"].backward()
        opts["gen"].step()
    """


@pytest.mark.parametrize("test", ["next(flags)", "(on := not i % 2)"])
def test_a_test_that_does_something_is_not_asked_twice(test: str) -> None:
    run = run_cells(
        NETWORKS,
        "import itertools\nflags = itertools.cycle([True, True, False])",
        JUDGED.format(test=test, behind="pass"),
    )
    assert run.diagnosis is not None
    assert all(fix.cells[3].count(test) == 1 for fix in run.diagnosis.fixes)


def test_a_step_is_not_moved_behind_what_clears_its_gradients() -> None:
    regularised = """
        for x in torch.randn(2, 4, 3):
            fake = nets["gen"](x)
            loss, penalty = nets["disc"](fake.detach()).exp().mean(), nets["disc"](x).pow(2).mean()
            opts["disc"].zero_grad()
            loss.backward()
            opts["disc"].step()
            if x is not None:
                nets["disc"].zero_grad()
                penalty.backward()
                opts["disc"].step()
        """
    run = run_cells(NETWORKS, regularised)
    assert run.diagnosis is not None
    assert all(fix.rule != "move_step" for fix in run.diagnosis.fixes)


def test_a_backward_keeps_to_what_is_stepped_for_it_a_few_statements_later() -> None:
    shown = JUDGED.format(test="i >= 0", behind="pass").replace(
        'losses["gen"].backward()\n', 'losses["gen"].backward()\n        print(losses["gen"].item())\n'
    )
    shown = shown.replace("if i >= 0:", "if True:").replace("            pass\n", "")
    run = run_cells(NETWORKS, shown)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].gradients == "same"
