"""Updates that stand in one loop, or in methods of one object."""

from __future__ import annotations

from ..trying import clean, fix_by, rewritten, rules

AGENTS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    nets = [nn.Linear(3, 2) for _ in range(2)]
    mixer = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    opts = [torch.optim.SGD([*n.parameters(), *mixer.parameters()], lr=0.1) for n in nets]
    x = torch.randn(5, 3)
    """
ONE_LOOP = """
    mixed = mixer(torch.cat([n(x) for n in nets], 1))
    losses = [mixed.pow(2).mean(), mixed.abs().mean()]
    for opt, loss in zip(opts, losses):  # each its own
        opt.zero_grad()
        loss.backward(retain_graph=True)
        nn.utils.clip_grad_norm_(mixer.parameters(), 1.)
        # now
        opt.step()
    """
TRAINER = """
    import torch
    from torch import nn
    torch.manual_seed(0)

    class Trainer:
        def __init__(self):
            self.G, self.D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
            self.opt_g = torch.optim.SGD(self.G.parameters(), lr=0.1)
            self.opt_d = torch.optim.SGD(self.D.parameters(), lr=0.1)

        def forward(self, z):
            self.fake = self.G(z)
            self.pred = self.D(self.fake)

        def d_step(self):
            self.opt_d.zero_grad()
            self.pred.exp().mean().backward(retain_graph=True)
            self.opt_d.step()

        def g_step(self):
            self.opt_g.zero_grad()
            loss = -self.pred.mean()
            loss.backward()
            self.opt_g.step()
    """
TRAIN = """
    t = Trainer()
    t.forward(torch.randn(5, 2))
    t.d_step(), t.g_step()
    """


def test_one_loop_becomes_three() -> None:
    fix = fix_by("split_loop", AGENTS, ONE_LOOP)
    assert fix.cells[2] == clean(
        """
        mixed = mixer(torch.cat([n(x) for n in nets], 1))
        losses = [mixed.pow(2).mean(), mixed.abs().mean()]
        for opt, loss in zip(opts, losses):  # each its own
            opt.zero_grad()
        for opt, loss in zip(opts, losses):  # each its own
            loss.backward(retain_graph=True)
            nn.utils.clip_grad_norm_(mixer.parameters(), 1.)
        for opt, loss in zip(opts, losses):  # each its own
            # now
            opt.step()
        """
    ).rstrip("\n")


def test_a_loop_over_an_iterator_is_left_alone() -> None:
    consumed = ONE_LOOP.replace("in zip(opts, losses):", "in pairs:").replace(
        "    for opt", "    pairs = iter(list(zip(opts, losses)))\n    for opt", 1
    )
    assert "split_loop" not in rules(AGENTS, consumed.replace("in pairs", "in map(tuple, pairs)"))


def test_a_prediction_kept_on_the_trainer_is_made_again() -> None:
    fix = fix_by("recompute", TRAINER, TRAIN)
    assert fix.cells[1].rstrip() == rewritten(
        TRAINER, ("        loss = -self.pred", "        self.pred = self.D(self.fake)\n        loss = -self.pred")
    )
