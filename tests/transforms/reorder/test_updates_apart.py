"""Updates that stand in one loop, or in methods of one object."""

from __future__ import annotations

import textwrap

import pytest

from inplace_magic.verify import ranking

from ...cells import run_cells
from ..trying import clean, fix_by, fixes, rewritten, rules

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


def test_a_loop_that_is_all_a_function_does_leaves_nothing_behind() -> None:
    loop = textwrap.indent(clean(ONE_LOOP).partition("]\n")[2], "    ")
    cell = clean(ONE_LOOP).partition("]\n")[0] + "]\ndef update(opts, losses):\n" + loop + "update(opts, losses)\n"
    fixed = fix_by("split_loop", AGENTS, cell).cells[2]
    assert fixed.endswith("        # now\n        opt.step()\nupdate(opts, losses)") and "pass" not in fixed


def test_one_loss_goes_back_once_between_the_loops() -> None:
    loop = """
        loss = mixer(torch.cat([n(x) for n in nets], 1)).pow(2).mean()
        for i, opt in enumerate(opts):
            opt.zero_grad()
            loss.backward(retain_graph=i == 0)
            opt.step()
        """
    assert fix_by("split_loop", AGENTS, loop).cells[2].rstrip() == clean(
        """
        loss = mixer(torch.cat([n(x) for n in nets], 1)).pow(2).mean()
        for i, opt in enumerate(opts):
            opt.zero_grad()
        loss.backward()
        for i, opt in enumerate(opts):
            opt.step()
        """
    ).rstrip("\n")


BY_HAND = """
    def grads_of(loss):
        return torch.autograd.grad(loss, list(mixer.parameters()), retain_graph=True)

    def apply(grads):
        with torch.no_grad():
            for p, g in zip(mixer.parameters(), grads):
                CHANGE
    """
EACH_TASK = """
    out, taken = mixer(torch.randn(5, 4)), {}
    for name, loss in {"mean": out.mean(), "size": out.pow(2).mean()}.items():
        taken[name] = grads_of(loss)
        # by hand
        apply(taken[name])
    """
IN_TWO = (
    "    # by hand",
    'for name, loss in {"mean": out.mean(), "size": out.pow(2).mean()}.items():\n    # by hand',
)


@pytest.mark.parametrize(
    ("change", "magic"),
    [("p -= 0.1 * g", ""), ("p.data.sub_(0.1 * g)", "%%autograd_check\n")],
    ids=["torch refuses the second", "the second is silently wrong"],
)
def test_updates_that_a_helper_makes_come_behind_the_gradients_of_all_losses(change: str, magic: str) -> None:
    run = run_cells(AGENTS, BY_HAND.replace("CHANGE", change), magic + clean(EACH_TASK))
    assert run.diagnosis is not None
    fix = next(fix for fix in run.diagnosis.fixes if fix.rule == "split_loop")
    assert fix.gradients == "same"
    assert fix.cells[3].rstrip() == magic + rewritten(EACH_TASK, IN_TWO)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            "grads_of(loss)\n", "grads_of(loss)\n        if name == 'none':\n            continue\n", id="left early"
        ),
        pytest.param("apply(taken[name])", "apply(taken[max(taken)])", id="what another one kept is read"),
    ],
)
def test_a_loop_whose_iterations_are_not_alike_is_not_split(old: str, new: str) -> None:
    helpers = BY_HAND.replace("CHANGE", "p -= 0.1 * g")
    assert "split_loop" in rules(AGENTS, helpers, EACH_TASK)
    assert "split_loop" not in rules(AGENTS, helpers, EACH_TASK.replace(old, new))


def test_updates_that_a_helper_makes_of_what_is_added_up_are_not_split_off() -> None:
    """Behind all backwards each would use the gradients of all losses."""
    helper = "def update(opt):\n    opt.step()"
    assert "split_loop" in rules(AGENTS, ONE_LOOP)
    assert "split_loop" not in rules(AGENTS, helper, ONE_LOOP.replace("opt.step()", "update(opt)"))


def test_what_a_loop_goes_through_is_not_made_anew_in_it() -> None:
    run = run_cells(AGENTS, ONE_LOOP)
    assert run.diagnosis is not None
    assert all("        losses = [" not in text for fix in run.diagnosis.fixes for text in fix.cells.values())


def test_the_loop_of_a_training_is_not_split() -> None:
    training = """
        out = mixer(torch.cat([n(x) for n in nets], 1))
        for epoch in range(3):
            loss = out.pow(2).mean()
            out = mixer(torch.cat([n(x) for n in nets], 1))
            opts[0].zero_grad()
            loss.backward()
            opts[0].step()
        """
    assert "split_loop" not in rules(AGENTS, training)


def test_a_prediction_kept_on_the_trainer_is_made_again() -> None:
    fix = fix_by("recompute", TRAINER, TRAIN)
    assert fix.cells[1].rstrip() == rewritten(
        TRAINER, ("        loss = -self.pred", "        self.pred = self.D(self.fake)\n        loss = -self.pred")
    )


THREE_PARTS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    enc = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2))
    dec, judge = nn.Sequential(nn.Tanh(), nn.Linear(2, 3)), nn.Sequential(nn.Tanh(), nn.Linear(3, 1))
    opts = opt_e, opt_d, opt_j = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (enc, dec, judge)]
    x = torch.randn(5, 3)

    def clear():
        for m in (enc, dec, judge):
            m.zero_grad()
    """
CLEARED_BETWEEN = """
    for _ in range(2):
        z = enc(x)
        rebuilt = dec(z)
        fake, real = judge(rebuilt).exp().mean(), judge(x).mean()
        loss_e, loss_d, loss_j = (rebuilt - x).abs().mean() + z.pow(2).mean(), (rebuilt - x).abs().mean() - fake, fake - real
        clear()
        loss_e.backward(retain_graph=True)
        opt_e.step()
        clear()
        loss_d.backward(retain_graph=True)
        opt_d.step()
        clear()
        loss_j.backward()
        opt_j.step()
    """
CRITICS = """
    critics = {"a": nn.Sequential(nn.Tanh(), nn.Linear(3, 1)), "b": nn.Sequential(nn.Tanh(), nn.Linear(3, 1))}
    critic_opts = {name: torch.optim.SGD(m.parameters(), lr=0.1) for name, m in critics.items()}
    opt_g = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
    rebuilt = dec(enc(x))
    judged = {name: m(rebuilt) for name, m in critics.items()}
    opt_g.zero_grad()
    (rebuilt.pow(2).mean() - sum(d.mean() for d in judged.values())).backward(retain_graph=True)
    opt_g.step()
    for name, opt in critic_opts.items():
        loss = judged[name].exp().mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
    """


def test_where_a_helper_clears_all_gradients_in_between_each_is_taken_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        ranking, "_trains_otherwise", lambda *_: True
    )  # as a limited backward does, which is shown first
    fix = fix_by("move_step", THREE_PARTS, CLEARED_BETWEEN)
    text = fix.cells[2]
    assert fix.gradients == "truncated"
    assert not any("trains nothing" in clause for clause in fix.changes)
    assert text.index("autograd.grad(loss_d") < text.index("autograd.grad(loss_j") < text.index("opt_e.step()")


def test_a_step_goes_behind_a_loop_whose_backwards_are_limited_to_what_each_trains() -> None:
    fix = fix_by("move_step", THREE_PARTS, CRITICS)
    limited = 'retain_graph=True, inputs=[p for group in opt.param_groups for p in group["params"]])\n    opt.step()'
    assert fix.cells[2].rstrip() == rewritten(
        CRITICS,
        ("opt_g.step()\n", ""),
        ("loss.backward(retain_graph=True)\n    opt.step()", f"loss.backward({limited}\nopt_g.step()"),
    )
    assert fix.gradients == "same"
    assert "loss" not in fix.title


IN_FUNCTION = """
    def train(g, d, rounds=2):
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        for _ in range(rounds):
            fake = g(x)
            loss_d, loss_g = d(fake.detach()).exp().mean(), -d(fake).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
    """
NETWORKS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    x = torch.randn(5, 3)
    gen, disc = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    """


def test_gradients_that_optimizers_of_a_function_leave_behind_are_read_by_nobody() -> None:
    run = run_cells(NETWORKS, IN_FUNCTION, "train(gen, disc)")
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients, first.changes) == ("move_step", "same", ())
    assert "loss_g.backward(inputs=list(g.parameters()))" in first.cells[2]


GUARDED = """
    opt_g, opt_d = torch.optim.SGD(gen.parameters(), lr=0.1), torch.optim.SGD(params=disc.parameters(), lr=0.1)

    def backward(loss_g=None, loss_d=None):
        if loss_d is not None:
            loss_d.backward()
        opt_d.step()
        if loss_g is not None:
            loss_g.backward()
        opt_g.step()
    """
MADE_AHEAD = """
    for _ in range(2):
        opt_g.zero_grad(), opt_d.zero_grad()
        fake = gen(x)
        loss_d = disc(fake.detach()).exp().mean()
        loss_g = -disc(fake).mean()
        backward(loss_g, loss_d)
    """


def test_a_backward_that_a_branch_guards_is_limited_in_its_branch() -> None:
    run = run_cells(NETWORKS, GUARDED, MADE_AHEAD)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    title = "opt_d.step() after loss_g.backward(inputs=list(gen.parameters()))"
    assert (first.rule, first.gradients, first.title) == ("move_step", "same", title)
    guarded = "    if loss_g is not None:\n        loss_g.backward({})\n"
    assert first.cells[2].rstrip() == rewritten(
        GUARDED,
        (
            f"    opt_d.step()\n{guarded.format('')}",
            f"{guarded.format('inputs=list(gen.parameters())')}    opt_d.step()\n",
        ),
    )


PAIRS = """
    def learn(x):
        fake = gen(x)
        losses = disc(fake).exp().mean(), -disc(fake).mean()
        for opt, loss in zip(opts, losses):
            opt.zero_grad()
            loss.backward(retain_graph=True)
            opt.step()
    for _ in range(2):
        learn(torch.randn(4, 3))
    """


def test_a_loop_in_a_function_is_split_and_each_backward_limited_to_what_its_own_optimizer_holds() -> None:
    opts = "opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (disc, gen)]"
    run = run_cells(NETWORKS, opts, PAIRS)
    assert run.diagnosis is not None
    found = [fix for fix in run.diagnosis.fixes if fix.rule == "split_loop"]
    assert found[0].gradients == "same"
    assert 'inputs=[p for group in opt.param_groups for p in group["params"]])' in found[0].cells[3]


AUTOENCODER = """
    enc, dec, disc = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), nn.Linear(3, 1)
    opt_e, opt_g, opt_d = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (enc, dec, disc))
    """
TWICE_JUDGED = """
    for _ in range(2):
        code = enc(x)
        made = dec(code)
        opt_d.zero_grad()
        disc(made).mean().backward(retain_graph=True)
        opt_d.step()
        rebuilt = (made - x).pow(2).mean()
        loss = rebuilt - disc(made).mean()
        opt_g.zero_grad()
        loss.backward(retain_graph=True)
        opt_g.step()
        opt_e.zero_grad()
        (rebuilt + code.abs().mean()).backward()
        opt_e.step()
    """


def test_only_steps_whose_writes_the_later_backward_meets_are_moved() -> None:
    run = run_cells(NETWORKS, AUTOENCODER, TWICE_JUDGED)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients, first.changes) == ("move_step", "same", ())
    assert first.title.startswith("opt_g.step() after")


SHARED_TRUNK = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    opt_a = torch.optim.SGD([*trunk.parameters(), *actor.parameters()], lr=0.1)
    opt_c = torch.optim.SGD([*trunk.parameters(), *critic.parameters()], lr=0.1)
    """
BOTH_UPDATES = """
    h = trunk(torch.randn(5, 3))
    loss_c, loss_a = critic(h).exp().mean(), actor(h).exp().mean()
    opt_c.zero_grad()
    loss_c.backward(retain_graph=True)
    opt_c.step()
    opt_a.zero_grad()
    {loss}.backward()
    opt_a.step()
    """


def test_gradients_of_shared_parameters_are_cleared_ahead_of_both_backwards() -> None:
    cell = BOTH_UPDATES.format(loss="loss_a")
    moved = [f for f in fixes(SHARED_TRUNK, cell) if f.title == "opt_c.step() after loss_a.backward()"]
    assert [fix.gradients for fix in moved] == ["different"]
    assert moved[0].cells[2].splitlines()[2:] == [
        "opt_a.zero_grad()", "opt_c.zero_grad()", "loss_c.backward(retain_graph=True)", "loss_a.backward()", "opt_c.step()",
        "opt_a.step()",
    ]  # fmt: skip


def test_of_two_losses_in_one_dict_each_is_one_of_its_own() -> None:
    cell = BOTH_UPDATES.format(loss="loss_a").replace("loss_c, loss_a =", "losses = {}; losses['c'], losses['a'] =")
    cell = cell.replace("loss_c.", "losses['c'].").replace("loss_a.", "losses['a'].")
    moved = next(f for f in fixes(SHARED_TRUNK, cell) if f.title == "opt_c.step() after losses['a'].backward()")
    assert moved.cells[2].splitlines()[2:4] == ["opt_a.zero_grad()", "opt_c.zero_grad()"]


def test_one_loss_that_is_sent_back_for_both_is_not_counted_twice() -> None:
    found = fixes(SHARED_TRUNK, BOTH_UPDATES.format(loss="loss_c"))
    moved = next(fix for fix in found if fix.title == "opt_c.step() after loss_c.backward()")
    assert "retain_graph=True)\nopt_a.zero_grad()\nloss_c.backward()\nopt_c.step()" in moved.cells[2]


def test_a_loop_of_steps_goes_behind_a_later_update_that_is_limited_to_its_own() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        actor, critics = nn.Linear(3, 2), [nn.Linear(5, 1) for _ in range(2)]
        actor_opt, opts = torch.optim.SGD(actor.parameters(), 0.1), [torch.optim.SGD(c.parameters(), 0.1) for c in critics]
        """
    cell = """
        for step, (obs, act) in enumerate(zip(torch.randn(4, 6, 3), torch.randn(4, 6, 2))):
            q = torch.cat([c(torch.cat([obs, act], 1)) for c in critics], 1)
            q_loss = q.pow(2).mean()
            actor_loss = -sum(c(torch.cat([obs, actor(obs)], 1)).mean() for c in critics)
            for opt in opts:
                opt.zero_grad()
            q_loss.backward()
            for opt in opts:
                opt.step()
            if step % 2 == 0:
                actor_opt.zero_grad()
                actor_loss.backward()
                actor_opt.step()
        """
    fix = fix_by("move_step", start, cell)
    loop = "    for opt in opts:\n        opt.step()\n"
    expected = rewritten(
        cell,
        (loop, ""),
        ("actor_loss.backward()", "actor_loss.backward(inputs=list(actor.parameters()))"),
        ("        actor_opt.step()\n", f"        actor_opt.step()\n{loop}"),
    )
    assert (fix.cells, fix.gradients) == ({2: expected}, "same")
