"""Updates in a loop, or in blocks, that come in another order."""

from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import fix_by, rewritten

NETWORKS = """
    import torch
    from contextlib import contextmanager
    from torch import nn
    torch.manual_seed(0)
    nets = {"disc": nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)), "gen": nn.Linear(3, 3)}
    opts = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in nets.items()}

    @contextmanager
    def updating(name):
        opts[name].zero_grad()
        yield
        opts[name].step()

    def losses_of(x):
        fake = nets["gen"](x)
        return {"disc": nets["disc"](fake.detach()).exp().mean(), "gen": -nets["disc"](fake).mean()}
    """
IN_BLOCKS = """
    losses = losses_of(torch.randn(4, 3))
    with updating("disc"):
        losses["disc"].backward()
    with updating("gen"):
        losses["gen"].backward()
    """


def test_of_two_blocks_that_update_the_later_one_goes_first() -> None:
    run = run_cells(NETWORKS, IN_BLOCKS)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    title = '`with updating("disc")` after `with updating("gen")`'
    assert (first.rule, first.gradients, first.title) == ("move_step", "same", title)


IN_BRANCHES = """
    def backward(disc=None, gen=None):
        if disc is not None:
            disc.backward()
            opts["disc"].step()
        if gen is not None:
            gen.backward()
            opts["gen"].step()
    backward(**losses_of(torch.randn(4, 3)))
    """


def test_of_two_branches_that_update_the_later_one_goes_first() -> None:
    run = run_cells(NETWORKS, IN_BRANCHES)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    title = "`if disc is not None` after `if gen is not None`"
    # Nothing clears gradients between the two: the discriminator's step uses those of both.
    assert (first.rule, first.gradients, first.title) == ("move_step", "different", title)


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


KEPT_NETS = """
class Trainer:
    def __init__(self, gen, dis):
        self.gen, self.dis = gen, dis
        self.opt_g, self.opt_d = torch.optim.SGD(gen.parameters(), lr=0.1), torch.optim.SGD(dis.parameters(), lr=0.1)

    def step(self, z, real):
        fake = self.gen(z)
        loss_d = self.dis(fake.detach()).exp().mean() - self.dis(real).mean()
        loss_g = -self.dis(fake).exp().mean()
        self.opt_d.zero_grad()
        loss_d.backward()
        self.opt_d.step()
        self.opt_g.zero_grad()
        loss_g.backward()
        self.opt_g.step()
"""
NETS = """
import torch
from torch import nn
torch.manual_seed(0)
G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
"""


def test_a_backward_is_limited_by_a_name_that_is_known_where_it_stands() -> None:
    found = run_cells(NETS, KEPT_NETS, "t = Trainer(G, D)\nt.step(torch.randn(5, 2), torch.randn(5, 3))").diagnosis
    assert found is not None
    moved = [fix for fix in found.fixes if fix.gradients == "same"]
    assert moved and "loss_g.backward(inputs=list(self.gen.parameters()))" in moved[0].diff


LOOP_OF_UPDATES = """
judges = [D, nn.Sequential(nn.Linear(3, 1), nn.Tanh())]
opts, opt_g = [torch.optim.SGD(j.parameters(), lr=0.1) for j in judges], torch.optim.SGD(G.parameters(), lr=0.1)
z, real = torch.randn(5, 2), torch.randn(5, 3)
for _ in range(2):
    losses = [j(real).exp().mean() for j in judges]
    loss_g = -sum(j(G(z)).exp().mean() for j in judges)
    for loss, opt in zip(losses, opts):
        opt.zero_grad()
        loss.backward()
        opt.step()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
"""


def test_an_update_goes_ahead_of_a_loop_of_updates() -> None:
    found = run_cells(NETS, LOOP_OF_UPDATES).diagnosis
    assert found is not None
    first = found.fixes[0]
    assert first.gradients == "same" and first.title.startswith("`for loss, opt in zip(losses, opts)` after")
    text = first.cells[2]
    assert text.index("loss_g.backward()") < text.index("for loss, opt") < text.index("opt_g.step()")


def test_an_update_by_methods_goes_as_a_whole_behind_the_one_that_meets_its_step() -> None:
    define = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Pair:
            def __init__(self):
                self.G, self.D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
                self.opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (self.G, self.D)]
            def forward(self, x):
                self.fake = self.G(x)
                self.seen, self.judged = self.D(self.fake.detach()), self.D(self.fake)
            def backward_d(self):
                self.seen.exp().mean().backward()
            def backward_g(self):
                (self.fake.pow(2).mean() - self.judged.mean()).backward()
            def learn(self):
                opt_g, opt_d = self.opts
                opt_d.zero_grad(); self.backward_d(); opt_d.step()
                opt_g.zero_grad(); self.backward_g(); opt_g.step()
        """
    run = run_cells(define, "pair = Pair()\nfor x in torch.randn(2, 5, 2):\n    pair.forward(x)\n    pair.learn()")
    assert run.diagnosis is not None
    first, *others = run.diagnosis.fixes
    early, late = (f"opt_{n}.zero_grad(); self.backward_{n}(); opt_{n}.step()" for n in "dg")
    assert (first.cells, first.gradients) == (
        {1: rewritten(define, (early, "early"), (late, early), ("early", late))},
        "same",
    )
    assert "self.judged.detach()" not in "".join(fix.diff for fix in others), "it would be judged by nobody"


SHARED = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    trunk, heads = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)), [nn.Linear(4, 1) for _ in range(2)]
    opts = [torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1) for head in heads]
    """
SHARED_LOOP = """
    for x in torch.randn(2, 5, 3):
        code = trunk(x)
        losses = [heads[0](code).exp().mean(), heads[1](code).pow(2).mean()]
        for loss, opt in zip(losses, opts):
            opt.zero_grad()
            loss.backward(retain_graph=True)
            opt.step()
    """
SHARED_SPLIT = """    grads = []
    for loss, opt in zip(losses, opts):
        params = [p for group in opt.param_groups for p in group["params"]]
        grads.append(zip(params, torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)))
    for (loss, opt), pairs in zip(zip(losses, opts), grads):
        opt.zero_grad()
        for p, g in pairs:
            p.grad = g
"""
LOOP_HEAD = """    for loss, opt in zip(losses, opts):
        opt.zero_grad()
        loss.backward(retain_graph=True)
"""


@pytest.mark.parametrize(
    "exchanged",
    [
        pytest.param((), id="as they are"),
        pytest.param(
            (
                (
                    "            opt.step()",
                    "            nn.utils.clip_grad_norm_(trunk.parameters(), 0.1)\n            opt.step()",
                ),
            ),
            id="clipped before the step",
        ),
        pytest.param(
            (("for loss, opt in zip(losses, opts)", "for (i, loss), opt in zip(enumerate(losses), opts)"),),
            id="named in a tuple",
        ),
    ],
)
def test_of_shared_parameters_each_step_of_a_loop_gets_its_own_losses_gradients(
    exchanged: tuple[tuple[str, str], ...],
) -> None:
    cell, head, split = SHARED_LOOP, LOOP_HEAD, SHARED_SPLIT
    for old, new in exchanged:
        cell, head, split = (text.replace(old, new) for text in (cell, head, split))
    split = (
        split.replace(
            "for (loss, opt), pairs in zip(zip(losses, opts)",
            "for ((i, loss), opt), pairs in zip(zip(enumerate(losses), opts)",
        )
        if "enumerate" in cell
        else split
    )
    run = run_cells(SHARED, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.cells[2].rstrip(), first.gradients) == (rewritten(cell, (head, split)), "same")
