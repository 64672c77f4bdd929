from __future__ import annotations

import textwrap

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, fixes, rewritten, rules

RULE = "recompute"
START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    """
TRAIN = """
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.randn(3, 4):
        loss = net(x).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
IN_CONSTRUCTOR = """
    class Net(nn.Module):
        def __init__(self, size=4):
            super().__init__()
            self.log_scale = nn.Parameter(torch.zeros(4))
            scale = self.log_scale.exp()
            self.prior = torch.distributions.Normal(torch.zeros(4), scale)
        def forward(self, x):
            x = x * 2
            return self.prior.log_prob(x)
    """


def test_what_was_computed_in_an_earlier_cell_is_computed_where_a_part_of_it_is_taken() -> None:
    made = "lift, opt = nn.Linear(2, 3), torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)\nraw = torch.randn(4, 2)"
    parts = "data = lift(raw).exp()\nbatches = [data[:2], data[2:]]"
    loop = "for i in range(3):\n    x = batches[i % 2]\n    loss = x.sum()\n    loss.backward()"
    fix = fix_by(RULE, START, made, parts, loop)
    lines = "    data = lift(raw).exp()\n    batches = [data[:2], data[2:]]\n    x ="
    assert fix.cells == {4: rewritten(loop, ("    x =", lines))}


def test_what_another_loop_of_the_function_reads_stays_there() -> None:
    made = "gen, critic = nn.Linear(2, 3), nn.Linear(3, 1)\nopt = torch.optim.SGD(gen.parameters(), lr=0.1)"
    train = """
        def train():
            for _ in range(2):
                fake = gen(torch.ones(4, 2)).tanh()
                print(fake.shape)
            for _ in range(3):
                score = critic(fake)
                opt.zero_grad()
                score.mean().backward()
                opt.step()
        train()
        """
    fix = fix_by(RULE, START, made, train)
    line = "        fake = gen(torch.ones(4, 2)).tanh()\n        score ="
    assert fix.cells == {3: rewritten(train, ("        score =", line))}


BASE = """
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.mix = nn.Linear(4, 3), torch.rand(4, 4)

        def forward(self, x, *, scale=1):
            return self.out(scale * x @ self.mix)
    """
HEIR = """
    class Net(Base):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.randn(4, 4))
            self.mix = self.logits.softmax(1)
    """
OWN_METHOD = """
        def forward(self, x):
            return super().forward(x).exp()
    """


@pytest.mark.parametrize(
    ("heir", "change"),
    [
        pytest.param(
            HEIR,
            (
                "self.mix = self.logits.softmax(1)",
                "self.mix = self.logits.softmax(1)\n\n    def forward(self, x, *, scale=1):\n"
                "        self.mix = self.logits.softmax(1)\n        return super().forward(x, scale=scale)",
            ),
            id="a method that it inherits",
        ),
        pytest.param(
            HEIR.rstrip() + "\n" + OWN_METHOD,
            (
                "return super().forward(x).exp()",
                "self.mix = self.logits.softmax(1)\n        return super().forward(x).exp()",
            ),
            id="its own method",
        ),
    ],
)
def test_what_a_class_made_is_made_again_in_that_class_and_not_in_the_one_that_it_inherits_from(
    heir: str, change: tuple[str, str]
) -> None:
    fix = fix_by(RULE, START, BASE, heir, TRAIN)
    assert fix.cells == {3: rewritten(heir, change)}


MAKES = """
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.randn(4, 4))
            self._mix = self.logits.softmax(1)
    """
GETTER = """
        def mix(self):
            return self._mix
    """


@pytest.mark.parametrize(
    ("base", "read", "ahead_of"),
    [
        pytest.param(MAKES, "self._mix", "return x @ self._mix", id="by the heir itself"),
        pytest.param(MAKES.rstrip() + GETTER, "self.mix()", "return self._mix", id="by a method that it inherits"),
        pytest.param(
            MAKES.rstrip() + GETTER.replace("def mix", "@property\n        def mix"),
            "self.mix",
            "return self._mix",
            id="by a property that it inherits",
        ),
    ],
)
def test_what_the_inherited_constructor_made_is_made_again_where_it_is_read(
    base: str, read: str, ahead_of: str
) -> None:
    net = f"{base.rstrip()}\n    class Net(Base):\n        def forward(self, x):\n            return x @ {read}\n"
    fix = fix_by(RULE, START, net, TRAIN)
    assert fix.cells == {2: rewritten(net, (ahead_of, f"self._mix = self.logits.softmax(1)\n        {ahead_of}"))}


HOISTED = """
    policy = nn.Linear(3, 2)
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)

    def act(x):
        logits = policy(x)
        return logits.argmax(-1)

    def update(x):
        # what the weights of now say
        logits = policy(x)
        for _ in range(2):
            loss = logits.pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """


@pytest.mark.parametrize("reads_on", [False, True])
def test_what_a_function_made_ahead_of_its_loop_moves_into_it_unless_the_function_reads_it_on(reads_on: bool) -> None:
    """A local name of another function's is another name."""
    helper = HOISTED + ("    print(logits.detach().mean().item())\n" if reads_on else "")
    fix = fix_by(RULE, START, helper, "update(torch.randn(4, 3))")
    made = "# what the weights of now say\n    logits = policy(x)\n    "
    there = [] if reads_on else [(made, "")]
    moved = "logits = policy(x)\n        " if reads_on else made.replace("\n    ", "\n        ")
    assert fix.cells[2].rstrip() == rewritten(helper, *there, ("loss = logits", f"{moved}loss = logits"))


def test_what_is_not_read_there_is_not_computed_again() -> None:
    made = "policy = nn.Linear(2, 3)\nobs = torch.randn(4, 2)"
    drawn = "pi = torch.distributions.Normal(policy(obs), policy.bias.exp())\ndraws = [pi.sample() for _ in range(2)]"
    loop = "for a in draws:\n    loss = -pi.log_prob(a).mean()\n    loss.backward()\n    policy.bias.data -= policy.bias.grad"
    fix = fix_by(RULE, START, made, drawn, loop)
    line = "    pi = torch.distributions.Normal(policy(obs), policy.bias.exp())\n    loss ="
    assert fix.cells == {4: rewritten(loop, ("    loss =", line))}


def test_what_the_constructor_made_is_made_where_it_is_read_by_way_of_a_local_name() -> None:
    fix = fix_by(RULE, START, IN_CONSTRUCTOR, TRAIN)
    old = "        return self.prior"
    lines = (
        "        scale = self.log_scale.exp()\n        self.prior = torch.distributions.Normal(torch.zeros(4), scale)\n"
    )
    assert fix.cells[2].rstrip() == rewritten(IN_CONSTRUCTOR, (old, lines + old))
    assert (fix.gradients, fix.run, fix.untrained) == ("different", (3,), ())


JUDGED = """
    net, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    opt, opt_judge = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (net, judge))
    x, real = torch.randn(5, 4), torch.randn(5, 4)
    """
SUMMED = """
    for step in range(2):
        coarse = net(x)
        fine = net(coarse)
        judged = judge(fine.detach()).mean() - judge(real).mean()
        loss = 0
        for w, out in zip((1.0, 0.5), (coarse, fine)):
            loss += w * (out - real).abs().mean()
        loss += -0.1 * judge(fine).mean()
        opt_judge.zero_grad()
        judged.backward()
        opt_judge.step()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_a_sum_of_losses_is_made_behind_the_step_as_a_whole() -> None:
    fix = fix_by(RULE, START, JUDGED, SUMMED)
    update = "    opt_judge.zero_grad()\n    judged.backward()\n    opt_judge.step()\n"
    assert fix.cells[3].rstrip() == rewritten(SUMMED, (update, ""), ("    loss = 0\n", f"{update}    loss = 0\n"))
    assert fix.title.endswith(" after opt_judge.step()")


AHEAD_OF_EPOCHS = """
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    xs, ys = torch.randn(3, 5, 4), torch.randn(3, 5, 1)
    """
EPOCHS = """
    {}
    for epoch in range(3):
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
SUMS = [
    pytest.param(
        "loss = 0.0\nfor x, y in zip(xs, ys):\n    out = net(x)\n    loss += (out - y).square().mean()", id="added up"
    ),
    pytest.param(
        "losses = []\nfor x, y in zip(xs, ys):\n    losses.append((net(x) - y).square().mean())\nloss = torch.stack(losses).mean()",
        id="collected",
    ),
]


@pytest.mark.parametrize("lines", SUMS)
def test_a_loss_that_a_loop_adds_up_ahead_of_all_epochs_is_made_in_each(lines: str) -> None:
    run = run_cells(START, AHEAD_OF_EPOCHS, clean(EPOCHS).format(lines))
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.rule == RULE
    head = "for epoch in range(3):\n"
    assert first.cells[3].startswith(head + textwrap.indent(lines, "    ") + "\n    opt.zero_grad()")


def test_a_long_loop_is_moved_and_never_repeated() -> None:
    body = "".join(f"            out = out * {n}\n" for n in range(1, 6))
    longer = SUMMED.replace("            loss += w *", f"{body}            loss += w *")
    assert RULE in rules(START, JUDGED, longer)
    assert RULE not in rules(
        START, JUDGED, longer.replace("judged.backward()", "(judged + 0 * loss.detach()).backward()")
    )


KEPT_BY_HOOKS = """
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).requires_grad_(False)
    features = {}
    def keep(name):
        def hook(module, args, out):
            features[name] = out
        return hook
    for name, layer in net.named_children():
        layer.register_forward_hook(keep(name))
    """
IN_CLOSURE = """
    x = torch.randn(2, 4, requires_grad=True)
    opt = torch.optim.LBFGS([x], max_iter=2)
    net(x)
    for step in range(2):
        def closure():
            opt.zero_grad()
            loss = features["0"].square().mean() + features["2"].square().mean()
            loss.backward()
            return loss
        opt.step(closure)
    """


def test_a_forward_whose_features_hooks_keep_is_made_again_where_they_are_read() -> None:
    fix = fix_by(RULE, START, KEPT_BY_HOOKS, IN_CLOSURE)
    assert '        opt.zero_grad()\n        net(x)\n        loss = features["0"]' in fix.cells[3]


KEPT_BY_OBJECT = """
    class Fit:
        def __init__(self):
            self.net = nn.Linear(2, 1)
            self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        def score(self, x):
            self.error = self.net(x).square().mean()
            return self.error.item()
        def descend(self):
            self.opt.zero_grad()
            self.error.backward()
            self.opt.step()
    fit, x = Fit(), torch.randn(4, 2)
    """
KEPT_BY_CLOSURE = """
    def fitting():
        net = nn.Linear(2, 1)
        opt, error = torch.optim.SGD(net.parameters(), lr=0.1), None
        def score(x):
            nonlocal error
            error = net(x).square().mean()
            return error.item()
        def descend():
            opt.zero_grad()
            error.backward()
            opt.step()
        return score, descend
    score, descend = fitting()
    x = torch.randn(4, 2)
    """
KEPT_IN_DICT = """
    run, x = {"w": torch.randn(2, requires_grad=True)}, torch.randn(4, 2)
    def score(run, x):
        run["error"] = (x @ run["w"]).square().mean()
        return run["error"].item()
    def descend(run):
        run["error"].backward()
        with torch.no_grad():
            run["w"] -= 0.1 * run["w"].grad
            run["w"].grad = None
    """


@pytest.mark.parametrize(
    ("kept", "cells", "expected"),
    [
        pytest.param(
            KEPT_BY_OBJECT,
            ("first = fit.score(x)\nfit.descend()\n", "x = x[:2]\nfit.descend()\n"),
            "x = x[:2]\nfit.score(x)\nfit.descend()\n",
            id="on an object, by a call whose result has a name",
        ),
        pytest.param(
            KEPT_BY_OBJECT,
            ('print("first", fit.score(x))\nfit.descend()\n', "fit.descend()\n"),
            "fit.score(x)\nfit.descend()\n",
            id="on an object, by a call that is an argument",
        ),
        pytest.param(
            KEPT_BY_OBJECT,
            ("fit.score(x)\nfit.descend()\n", "fit.descend()\nfit.score(x)\n"),
            "fit.score(x)\nfit.descend()\nfit.score(x)\n",
            id="on an object, by a call for that alone",
        ),
        pytest.param(
            KEPT_BY_OBJECT,
            ("first = fit.score(fit.net(x) + x)\nfit.descend()\n", "fit.descend()\n"),
            "fit.score(fit.net(x) + x)\nfit.descend()\n",
            id="on an object, by a call that is handed another's result",
        ),
        pytest.param(
            KEPT_BY_OBJECT,
            ("def keep(loss):\n    fit.error = loss\nkeep(fit.net(x).mean())\nfit.descend()\n", "fit.descend()\n"),
            "keep(fit.net(x).mean())\nfit.descend()\n",
            id="on an object, by a function that is handed what was made",
        ),
        pytest.param(
            KEPT_BY_OBJECT,
            ("first = fit.score(x)\nfor _ in range(2):\n    fit.descend()\n",),
            "first = fit.score(x)\nfor _ in range(2):\n    fit.score(x)\n    fit.descend()\n",
            id="on an object, ahead of a loop",
        ),
        pytest.param(
            KEPT_BY_CLOSURE,
            ("print(score(x))\ndescend()\n", "for _ in range(2):\n    descend()\n"),
            "for _ in range(2):\n    score(x)\n    descend()\n",
            id="around two closures",
        ),
        pytest.param(
            KEPT_IN_DICT,
            ("first = score(run, x)\ndescend(run)\n", "x = x[:2]\ndescend(run)\n"),
            "x = x[:2]\nscore(run, x)\ndescend(run)\n",
            id="in a dict",
        ),
        pytest.param(
            KEPT_IN_DICT.replace("run, x):", "state, x):")
            .replace('run["error"] = (x @ run["w"])', 'state["error"] = (x @ state["w"])')
            .replace("return run[", "return state["),
            ("first = score(run, x)\nprint(first)\nfor _ in range(2):\n    descend(run)\n",),
            "first = score(run, x)\nprint(first)\nfor _ in range(2):\n    score(run, x)\n    descend(run)\n",
            id="in a dict, by a call whose result is read on",
        ),
    ],
)
def test_a_call_alone_is_made_again_where_an_object_keeps_what_it_makes(
    kept: str, cells: tuple[str, ...], expected: str
) -> None:
    found = fixes(START, kept, *cells)
    assert found[0].cells == {2 + len(cells): expected.rstrip()}
    assert "retain" not in [fix.rule for fix in found]


def test_a_closure_that_also_names_other_values_anew_is() -> None:
    define = rewritten(
        KEPT_BY_CLOSURE,
        ("opt, error = torch.optim.SGD(net.parameters(), lr=0.1), None", "opt, error, out = torch.optim.SGD(net.parameters(), lr=0.1), None, None"),
        ("nonlocal error\n", "nonlocal error, out\n        out = net(x)\n"),
    )  # fmt: skip
    found = fixes(START, define, "print(score(x))\ndescend()", "for _ in range(2):\n    descend()")
    assert found[0].cells == {4: "for _ in range(2):\n    score(x)\n    descend()"}


def test_a_closure_that_also_counts_is_not_called_once_more() -> None:
    define = rewritten(
        KEPT_BY_CLOSURE,
        ("opt, error = torch.optim.SGD(net.parameters(), lr=0.1), None", "opt, error, n = torch.optim.SGD(net.parameters(), lr=0.1), None, 0"),
        ("nonlocal error\n", "nonlocal error, n\n        n += 1\n"),
    )  # fmt: skip
    found = fixes(START, define, "print(score(x))\ndescend()", "for _ in range(2):\n    descend()")
    assert not [fix.cells for fix in found if fix.rule == "recompute"]


@pytest.mark.parametrize(
    ("bound", "cells"),
    [
        pytest.param(
            "evaluate, update = fitting()",
            ("evaluate(x)\nupdate()", "for _ in range(2):\n    update()"),
            id="by other names",
        ),
        pytest.param(
            "score, descend = fitting(); score2, descend2 = fitting()",
            ("score(x); score2(x)\ndescend(); descend2()", "for _ in range(2):\n    descend(); descend2()"),
            id="of two pairs",
        ),
    ],
)
def test_what_closures_keep_is_made_again_by_no_call_within_a_closure(bound: str, cells: tuple[str, ...]) -> None:
    found = fixes(START, rewritten(KEPT_BY_CLOSURE, ("score, descend = fitting()", bound)), *cells)
    assert not [fix.cells for fix in found if 2 in fix.cells and fix.rule == "recompute"]


def test_a_state_that_a_forward_carries_on_is_not_computed_twice() -> None:
    made = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.h = nn.RNNCell(2, 3), None
            def forward(self, x):
                self.h = self.cell(x, self.h)
                return self.h.sum()
        net, x = Net(), torch.randn(4, 2)
        """
    found = fixes(START, made, "out = net(x)\nout.backward()\n", "out = net(x)\nout.backward()\n")
    assert found
    assert RULE not in [fix.rule for fix in found]


DERIVATIVES = """
    u = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.linspace(0, 1, 10).view(-1, 1).requires_grad_()
    opt = torch.optim.LBFGS(u.parameters(), max_iter=5)
    y = u(x)
    dy = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
    d2y = torch.autograd.grad(dy.sum(), x, create_graph=True)[0]
    """
EQUATION = """
    def closure():
        opt.zero_grad()
        loss = (d2y + y).square().mean() + (y[0] - 1).square().sum() + dy[0].square().sum()
        loss.backward()
        return loss
    for i in range(2):
        opt.step(closure)
    """


def test_derivatives_that_were_taken_ahead_of_a_closure_are_taken_in_it() -> None:
    fix = fix_by(RULE, START, DERIVATIVES, EQUATION)
    again = "".join(f"    {line}\n" for line in clean(DERIVATIVES).splitlines()[-3:])
    assert fix.cells == {3: rewritten(EQUATION, ("    loss = (d2y", f"{again}    loss = (d2y"))}


TWICE = """
    net = nn.Linear(4, 1)
    opt, shown = torch.optim.SGD(net.parameters(), lr=0.1), []
    for x in torch.randn(3, 5, 4):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        shown.append(loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_a_second_step_of_one_optimizer_gets_a_forward_of_its_own_behind_what_shows_the_first_loss() -> None:
    run = run_cells(START, TWICE)
    assert run.diagnosis is not None
    line = "    shown.append(loss.item())\n"
    again = f"{line}    loss = net(x).square().mean()\n"
    assert run.diagnosis.fixes[0].cells[2].rstrip() == rewritten(TWICE, (line, again))


ACTOR_CRITIC = """
    body, pi, value = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 1)
    opt_pi, opt_v = (torch.optim.SGD([*body.parameters(), *one.parameters()], lr=0.1) for one in (pi, value))
    def ahead(s):
        h = body(s).tanh()
        return pi(h).log_softmax(1)[:, 0], value(h).squeeze(1)
    """
ADVANTAGE = """
    for s in torch.randn(2, 5, 4):
        logp, v = ahead(s)
        td = 1 - v
        loss_pi = -(logp * td).mean()
        loss_v = td.square().mean()
        opt_pi.zero_grad(); loss_pi.backward(); opt_pi.step()
        opt_v.zero_grad(); loss_v.backward(); opt_v.step()
    """


def test_only_what_the_earlier_loss_is_made_of_is_cut_where_it_stood() -> None:
    fix = fix_by(RULE, START, ACTOR_CRITIC, ADVANTAGE)
    assert "td = 1 - v.detach()" in fix.cells[3]
    assert "loss_v = td.detach()" not in fix.cells[3]


IN_A_DICT = """
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    run = {"x": torch.randn(8, 3), "t": torch.randn(8, 1), "seen": []}
    run["y"] = net(run["x"])
    """
READS_THE_DICT = """
    def loss_of(run):
        return (run["y"] - run["t"]).square().mean()
    for _ in range(2):
        loss = loss_of(run)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_an_item_of_a_dict_is_computed_again_from_other_items() -> None:
    fix = fix_by(RULE, START, IN_A_DICT, READS_THE_DICT)
    line = "    loss = loss_of(run)"
    assert fix.cells == {3: rewritten(READS_THE_DICT, (line, f'    run["y"] = net(run["x"])\n{line}'))}


def test_an_item_that_another_one_is_made_of_is_computed_again_ahead_of_it() -> None:
    made = clean(IN_A_DICT) + 'run["z"] = run["y"].exp()\n'
    reads = READS_THE_DICT.replace('run["y"]', 'run["z"]')
    fix = fix_by(RULE, START, made, reads)
    line = "    loss = loss_of(run)"
    lines = '    run["y"] = net(run["x"])\n    run["z"] = run["y"].exp()\n'
    assert fix.cells == {3: rewritten(reads, (line, f"{lines}{line}"))}


def test_an_item_that_needs_its_own_old_value_is_not() -> None:
    carried = IN_A_DICT.replace(
        'run["y"] = net(run["x"])', 'run["y"] = torch.zeros(8, 3)\n    run["y"] = run["x"] + run["y"] * net.weight'
    )
    assert RULE not in rules(START, carried, READS_THE_DICT)


TWO_NETS = """
    gen, enc = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    opt_g, opt_e = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (gen, enc))
    class Model:
        def forward(self, x):
            self.x = x
            self.fake = gen(self.x)
            self.code = enc(self.fake)
        def both(self):
            (self.fake.square().mean() + self.code.mean()).backward(retain_graph=True)
        def alone(self):
            loss = self.code.square().mean()
            loss.backward()
    model = Model()
    """
IN_TURN = """
    for x in torch.randn(2, 5, 4):
        model.forward(x)
        opt_g.zero_grad(); opt_e.zero_grad()
        model.both()
        opt_g.step(); opt_e.step()
        opt_g.zero_grad()
        model.alone()
        opt_g.step()
    """


def test_what_an_earlier_change_computes_again_is_not_computed_twice() -> None:
    fix = fix_by(RULE, START, TWO_NETS, IN_TURN)
    lines = "        self.fake = gen(self.x)\n        self.code = enc(self.fake)\n"
    assert fix.cells == {2: rewritten(TWO_NETS, ("        loss = self.code", f"{lines}        loss = self.code"))}


CALLED_ALIKE = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        def forward(self, x):
            h = self.enc(x).tanh()
            logits = self.head(h)
            return logits, logits.square().mean()
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
TWO_STEPS = """
    for x in torch.randn(2, 5, 3):
        logits, loss = net(x)
        loss.backward()
        opt.step()
        opt.zero_grad()
        second = logits.exp().mean()
        second.backward()
        opt.zero_grad()
    """


HANDED_ON = """
    class Task:
        def __init__(self, net, opt):
            self.net, self.opt = net, opt
        def update(self, x, out):
            out.square().mean().backward()
            self.opt.zero_grad()
            loss = out.exp().mean()
            loss.backward()
            self.opt.step()
        def fit(self, batches):
            for x in batches:
                out = self.net(x)
                self.update(x, out)
    net = nn.Linear(3, 2)
    task = Task(net, torch.optim.SGD(net.parameters(), lr=0.1))
    """


def test_what_is_handed_on_under_its_own_name_is_computed_again_where_it_is_handed_to() -> None:
    fix = fix_by(RULE, START, HANDED_ON, "task.fit(torch.randn(2, 5, 3))")
    assert "self.net(x)" in fix.cells[2].partition("def fit")[0]


def test_what_a_method_calls_its_own_values_is_no_name_of_the_callers() -> None:
    fix = fix_by(RULE, START, CALLED_ALIKE, TWO_STEPS)
    line = "    second = logits"
    assert fix.cells == {3: rewritten(TWO_STEPS, (line, f"    logits, loss = net(x)\n{line}"))}


JOINT = """
    actors = [nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)) for _ in range(2)]
    critics = [nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)) for _ in range(2)]
    opts = [torch.optim.SGD([*a.parameters()], lr=0.1) for a in actors]
    def learn(states):
        chosen = []
        for i, actor in enumerate(actors):
            chosen.append(torch.tanh(actor(states[i])))
        joint = torch.cat(chosen, 1)
        for i, actor in enumerate(actors):
            loss = -critics[i](joint).exp().mean()
            opts[i].zero_grad()
            loss.backward(retain_graph=True)
            opts[i].step()
            print(i, actor[0].weight.grad.norm())
    learn(torch.randn(2, 5, 2))
    """


def test_a_loop_that_is_computed_again_in_another_one_counts_with_names_of_its_own() -> None:
    fix = fix_by(RULE, START, JOINT)
    text = fix.cells[2]
    assert "for i_2, actor_2 in enumerate(actors):\n            chosen.append(torch.tanh(actor_2(states[i_2])))" in text
    assert "print(i, actor[0].weight.grad.norm())" in text


def test_so_does_one_in_a_loop_that_counts_by_hand() -> None:
    setup = """
        nets = [nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)) for _ in range(2)]
        opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        outs = []
        for k in range(2):
            outs.append(nets[k](torch.ones(4, 2)))
        reward = torch.cat(outs, 1).prod(1)
        """
    steps = """
        k = 0
        while k < 2:
            opts[k].zero_grad()
            (-reward.mean()).backward(retain_graph=True)
            opts[k].step()
            k += 1
        """
    text = fix_by(RULE, START, setup, steps).cells[3]
    assert "for k_2 in range(2):\n        outs.append(nets[k_2](torch.ones(4, 2)))" in text


PENALTY = """
    net, x = nn.Linear(3, 1), torch.randn(8, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    penalty = 0.1 * net.weight.abs().sum()
    """
BY_A_CLASS = """
    class Trainer:
        def __init__(self, term):
            self.term = term
        def fit(self):
            for _ in range(3):
                loss = net(x).pow(2).mean() + self.term
                opt.zero_grad()
                loss.backward()
                opt.step()
    Trainer(penalty).fit()
    """
BY_A_FUNCTION = """
    def fit(term):
        for _ in range(3):
            loss = net(x).pow(2).mean() + term
            opt.zero_grad()
            loss.backward()
            opt.step()
    fit(penalty)
    """


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        pytest.param(BY_A_CLASS, "self.term", id="an attribute"),
        pytest.param(BY_A_FUNCTION, "term", id="a parameter"),
    ],
)
def test_what_was_handed_on_is_computed_again_under_the_name_that_reads_it(cell: str, name: str) -> None:
    fix = fix_by(RULE, START, PENALTY, cell)
    assert f"{name} = 0.1 * net.weight.abs().sum()\n" in fix.cells[3]
    assert f"penalty = {name}" not in fix.cells[3]


ADVERSARIES = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    G, D = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    opt_g, opt_d = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
    """
BOTH_AHEAD = """
    for x in torch.randn(3, 4, 3):
        fake = G(x)
        loss_d = D(fake.detach()).exp().mean()
        loss_g = -D(fake).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
    """


def test_a_loss_that_goes_through_what_another_update_trains_is_computed_behind_that_or_sent_back_before() -> None:
    first, second = fixes(ADVERSARIES, BOTH_AHEAD)[:2]
    line = "    loss_g = -D(fake).mean()\n"
    behind = ("    opt_g.zero_grad()\n", f"{line}    opt_g.zero_grad()\n")
    assert second.cells == {2: rewritten(BOTH_AHEAD, (line, ""), behind)}
    assert (second.gradients, first.rule, first.gradients) == ("different", "move_step", "same")


def test_a_loss_for_which_the_graph_was_kept_is_scored_again_behind_the_step_first() -> None:
    one = """
        for x in torch.randn(3, 4, 3):
            score = D(G(x)).tanh()
            opt_d.zero_grad()
            score.exp().mean().backward(retain_graph=True)
            opt_d.step()
            opt_g.zero_grad()
            (-score).exp().mean().backward()
            opt_g.step()
        """
    first, second = fixes(ADVERSARIES, one)[:2]
    assert (first.rule, first.gradients, second.gradients) == ("recompute", "different", "same")


def test_a_loss_that_trains_the_same_weights_is_not_computed_behind_the_update_first() -> None:
    both = ADVERSARIES.replace("SGD(G.parameters()", "SGD([*G.parameters(), *D.parameters()]")
    first = fixes(both, BOTH_AHEAD)[0]
    assert (first.rule, first.gradients) == ("move_step", "same")


TWO_PASSES = """
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    ps, shown = list(net.parameters()), []
    for x in torch.randn(3, 5, 3):
        out = net(x)
        loss = out.pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in ps:
                p.add_(0.1 * p.grad)
        (out - 1).pow(2).mean().backward()
        {behind}
    """


def test_what_is_computed_again_leaves_alone_what_is_read_on_behind_the_backward() -> None:
    cell = TWO_PASSES.format(behind="shown.append((loss.item(), out.argmax(1).tolist()))")
    first = fixes(START, cell)[0]
    assert (first.rule, first.title, first.changes) == ("recompute", "out_2 = net(x) again", ())
    needed = "(out - 1).pow(2).mean().backward()"
    assert first.cells == {2: rewritten(cell, (needed, f"out_2 = net(x)\n    {needed.replace('out', 'out_2')}"))}


def test_its_names_stay_where_nothing_reads_them_on() -> None:
    assert fix_by(RULE, START, TWO_PASSES.format(behind="shown.append(loss.item())")).title == "out = net(x) again"


ADAPTED = """
    net, x = nn.Linear(3, 3), torch.randn(5, 3)
    opt, delta = torch.optim.SGD(net.parameters(), 0.1), torch.zeros(5, 3, requires_grad=True)
    def adapt(x):
        out = net(x)
        loss = -(out.softmax(1) * out.log_softmax(1)).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return out
    """
ATTACK = """
    for i in range(3):
        out = adapt(x + delta)
        attack = nn.functional.cross_entropy(out, torch.zeros(5).long())
        delta.grad = None
        attack.backward()
        delta.data += 0.1 * delta.grad.sign()
    """


def test_what_a_function_has_used_up_is_made_again_before_it_is_given_out() -> None:
    fix = fix_by(RULE, START, ADAPTED, ATTACK)
    assert fix.cells == {2: rewritten(ADAPTED, ("    return out", "    out = net(x)\n    return out"))}
    assert fix.gradients == "different"


def test_what_a_closure_computes_again_stands_ahead_of_all_that_reads_it() -> None:
    made = "net, x, y = nn.Linear(3, 1), torch.randn(8, 3), torch.randn(8, 1)\nopt = torch.optim.LBFGS(net.parameters(), max_iter=3)"
    cell = """
        loss = (net(x) - y).pow(2).mean()
        def closure():
            opt.zero_grad()
            print(loss.item())
            loss.backward()
            return loss
        opt.step(closure)
        """
    line = "loss = (net(x) - y).pow(2).mean()\n"
    fix = fix_by(RULE, START, made, cell)
    assert fix.cells == {3: rewritten(cell, ("    print", f"    {line}    print"))}
    assert not fix.changes


def test_of_two_losses_on_one_forward_the_later_one_has_only_what_lies_behind_the_cut_again() -> None:
    made = "G, D = nn.Linear(2, 3), nn.Linear(3, 1)\noG, oD = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (G, D))"
    loop = """
        for z in torch.randn(3, 4, 2):
            fake = G(z).tanh()
            score = D(fake)
            oD.zero_grad()
            score.mean().backward()
            oD.step()
            loss = fake.pow(2).mean() - score.mean()
            oG.zero_grad()
            loss.backward()
            oG.step()
        """
    cut = rewritten(loop, ("= D(fake)", "= D(fake.detach())"), ("    loss =", "    score = D(fake)\n    loss ="))
    assert {3: cut} in [fix.cells for fix in fixes(START, made, loop) if fix.gradients == "truncated"]


def test_weights_that_a_class_of_the_persons_moves_and_puts_back_are_weights() -> None:
    climb = """
        class Climb:
            def __init__(self, params):
                self.params, self.old = list(params), {}
            @torch.no_grad()
            def up(self):
                for p in self.params:
                    self.old[p] = p.data.clone()
                    p.add_(0.1 * p.grad)
                    p.grad = None
            @torch.no_grad()
            def down(self):
                for p in self.params:
                    p.data = self.old[p]
        net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        climb, opt = Climb(net.parameters()), torch.optim.SGD(net.parameters(), lr=0.1)
        """
    loop = """
        for x in torch.randn(3, 4, 2):
            out = net(x)
            out.mean().backward(retain_graph=True)
            climb.up()
            out.mean().backward()
            climb.down()
            opt.step()
            opt.zero_grad()
        """
    fix = fix_by(RULE, START, climb, loop)
    assert fix.cells == {3: rewritten(loop, ("climb.up()\n", "climb.up()\n    out = net(x)\n"))}


METHODS = """
import torch
from torch import nn
torch.manual_seed(0)

class Pix(nn.Module):
    def __init__(self):
        super().__init__()
        self.G, self.D = nn.Linear(2, 2), nn.Linear(2, 1)
        self.opt_g, self.opt_d = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (self.G, self.D))

    def forward(self, seen):
        self.fake = self.G(seen).exp()
        self.judged = self.D(self.fake)

    def learn_d(self):
        self.opt_d.zero_grad()
        self.judged.mean().backward()
        self.opt_d.step()

    def learn_g(self):
        self.opt_g.zero_grad()
        (self.fake.pow(2).mean() - self.judged.mean()).backward()
        self.opt_g.step()
"""


def test_what_one_method_makes_and_another_goes_back_from_is_made_again_there_behind_a_cut() -> None:
    found = run_cells(
        METHODS, "pix = Pix()\nfor _ in range(2):\n    pix(torch.ones(3, 2)); pix.learn_d(); pix.learn_g()"
    ).diagnosis
    assert found is not None
    first = found.fixes[0]
    assert (first.rule, first.gradients) == ("recompute", "truncated")
    assert first.cells[1] == METHODS.strip("\n").replace("self.D(self.fake)", "self.D(self.fake.detach())").replace(
        "        self.opt_g.zero_grad()", "        self.judged = self.D(self.fake)\n        self.opt_g.zero_grad()"
    )


OF_AN_ARGUMENT = """
    class Net(nn.Module):
        def __init__(self, token=2):
            super().__init__()
            self.table = nn.Parameter(torch.randn(3, 4))
            self.mask = self.table[token].exp()
        def forward(self, x):
            return x * self.mask
    """


@pytest.mark.parametrize(
    ("changes", "kept", "name"),
    [
        pytest.param([], "self.token = token\n        ", "self.token", id="kept from now on"),
        pytest.param(
            [("super().__init__()", "super().__init__()\n            self.index = token")],
            "",
            "self.index",
            id="kept already",
        ),
    ],
)
def test_what_needs_an_argument_of_the_constructor_reads_it_off_the_object(
    changes: list[tuple[str, str]], kept: str, name: str
) -> None:
    net = OF_AN_ARGUMENT
    for old, new in changes:
        net = net.replace(old, new)
    fix = fix_by(RULE, START, net, TRAIN)
    made, read = "self.mask = self.table[token].exp()", "return x * self.mask"
    again = f"self.mask = self.table[{name}].exp()\n        {read}"
    assert fix.cells == {2: rewritten(net, (made, f"{kept}{made}"), (read, again))}


def test_an_argument_that_the_constructor_binds_anew_is_not_what_the_object_keeps() -> None:
    anew = "super().__init__()\n            self.index = token\n            token = token - 1"
    assert RULE not in rules(START, OF_AN_ARGUMENT.replace("super().__init__()", anew), TRAIN)


def test_what_needs_a_local_name_of_the_constructor_reads_it_off_the_object() -> None:
    net = OF_AN_ARGUMENT.replace("super().__init__()", "super().__init__()\n            eye = torch.eye(4)")
    made, read = "self.mask = self.table[0].exp() @ eye", "return x * self.mask"
    net = net.replace("self.mask = self.table[token].exp()", made)
    fix = fix_by(RULE, START, net, TRAIN)
    again = f"self.mask = self.table[0].exp() @ self.eye\n        {read}"
    assert fix.cells == {2: rewritten(net, (made, f"self.eye = eye\n        {made}"), (read, again))}


@pytest.mark.parametrize(
    ("keeps", "made_again"),
    [("self.x, self.y = x, y", True), ("self.x = x", False), ("self.x, self.y = x, y; self.peek(x)", False)],
)
def test_what_a_method_made_of_arguments_that_the_object_keeps_is_made_again_in_another(
    keeps: str, made_again: bool
) -> None:
    cell = f"""
        class Fit:
            def __init__(self):
                self.w = torch.zeros(3, requires_grad=True)
            def prepare(self, x, y):
                {keeps}
                self.loss = (x @ self.w.cos() - y).pow(2).mean()
            def peek(self, x):
                {"self.x = x" if "peek" in keeps else "pass"}
            def step(self):
                self.loss.backward(retain_graph=True)
                with torch.no_grad():
                    self.w.sub_(0.1 * self.w.grad)
                    self.w.grad.zero_()
        """
    run = run_cells(
        START, cell, "fit = Fit()\nfit.prepare(torch.ones(4, 3), torch.ones(4))", "for _ in range(3): fit.step()"
    )
    assert run.diagnosis is not None
    again = "self.loss = (self.x @ self.w.cos() - self.y).pow(2).mean()"
    assert any(again in fix.diff for fix in run.diagnosis.fixes) is made_again


def test_what_needs_an_argument_of_the_method_that_made_it_is_not_made_again_elsewhere() -> None:
    cell = METHODS.replace("self.D(self.fake)", "self.D(self.fake * seen)")
    found = run_cells(
        cell, "pix = Pix()\nfor _ in range(2):\n    pix(torch.ones(3, 2)); pix.learn_d(); pix.learn_g()"
    ).diagnosis
    assert found is not None
    assert not [
        fix for fix in found.fixes if fix.rule == "recompute" and "* seen)\n        self.opt_g" in fix.cells.get(1, "")
    ]


@pytest.mark.parametrize(
    "together",
    [
        pytest.param((), id="line by line"),
        pytest.param(
            (
                ("zero_grad()\n            loss", "zero_grad(); loss"),
                ("backward()\n            opts", "backward(); opts"),
            ),
            id="on one line",
        ),
    ],
)
def test_a_loop_that_trains_is_computed_again_without_its_training(together: tuple[tuple[str, str], ...]) -> None:
    cell = """
        nets = [nn.Linear(4, 3) for _ in range(2)]
        opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        data = torch.randn(2, 5, 4)
        codes = []
        for i in range(2):
            loss = nets[i](data[i]).pow(2).mean()
            opts[i].zero_grad()
            loss.backward()
            opts[i].step()
            codes.append(nets[i](data[i]))
        for i in range(2):
            apart = (codes[0] * codes[1]).exp().mean()
            opts[i].zero_grad()
            apart.backward()
            opts[i].step()
        """
    for apart, joined in together:
        cell = cell.replace(apart, joined, 1)
    again = "for i in range(2):\n    codes = []\n    for i_2 in range(2):\n        codes.append(nets[i_2](data[i_2]))\n    apart"
    found = [fix.cells[2] for fix in fixes(START, cell) if fix.rule == RULE]
    assert found == [rewritten(cell, ("for i in range(2):\n    apart", again))]


def test_what_is_made_of_a_value_that_was_made_once_is_made_again_with_it() -> None:
    define = """
        import torch
        from torch.distributions import Normal
        torch.manual_seed(0)
        log_std, mean = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
        opt = torch.optim.SGD([log_std, mean], lr=0.1)
        std = log_std.exp()
        count = 0
        dist = Normal(mean, std)
        shown = torch.zeros(1)
        """
    train = """
        for _ in range(3):
            opt.zero_grad()
            loss = -dist.log_prob(torch.ones(4)).mean()
            loss.backward()
            opt.step()
        """
    again = "    std = log_std.exp()\n    dist = Normal(mean, std)\n    loss ="
    assert fixes(define, train)[0].cells == {2: rewritten(train, ("    loss =", again))}


@pytest.mark.parametrize("bound", ["", "d = "], ids=["the call's value is left", "the call's value is kept"])
def test_what_a_call_uses_up_is_computed_again_behind_it(bound: str) -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        G, D = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        oG, oD = (torch.optim.SGD(m.parameters(), 0.1) for m in (G, D))
        def d_step(score):
            oD.zero_grad()
            score.mean().backward(retain_graph=True)
            oD.step()
            return score.mean().item()
        def g_step(score):
            oG.zero_grad()
            (-score.mean()).backward()
            oG.step()
        """
    cell = f"fake = G(torch.ones(3, 2))\nscore = D(fake)\n{bound}d_step(score)\ng_step(score)"
    fix = fix_by("recompute", start, cell)
    assert fix.cells == {2: cell.replace("g_step(score)", "score = D(fake)\ng_step(score)")}


def test_a_later_loss_made_of_a_kept_graph_is_made_again_behind_the_step_and_nothing_denies_the_moved_step() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        G, D = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        oG, oD = (torch.optim.SGD(m.parameters(), 0.1) for m in (G, D))
        """
    cell = """
        for _ in range(2):
            fake = G(torch.ones(3, 2))
            score = D(fake)
            loss_d, loss_g = score.mean(), -score.mean()
            oD.zero_grad(); loss_d.backward(KEEP); oD.step()
            oG.zero_grad(); loss_g.backward(); oG.step()
        """
    first, *others = fixes(start, cell.replace("KEEP", "retain_graph=True"))
    assert (first.rule, first.gradients) == (RULE, "different")
    assert first.cells[2].index("oD.step()") < first.cells[2].rindex("score = D(fake)")
    moved = next(fix for fix in others if fix.rule == "move_step")
    assert (moved.gradients, moved.changes) == ("same", ())


@pytest.mark.parametrize(
    ("ahead", "moved"),
    [
        pytest.param("", True, id="nothing stands between"),
        pytest.param("if update == 5: continue", False, id="an iteration may end between"),
        pytest.param("shown = score.item()", False, id="it is read between"),
        pytest.param("shown = read()", False, id="a function between reads it"),
    ],
)
def test_a_loss_that_is_read_behind_the_loop_alone_is_moved_down_its_block_where(ahead: str, moved: bool) -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        actor, critic = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        of_actor, of_critic = (torch.optim.SGD(m.parameters(), 0.1) for m in (actor, critic))
        x = torch.ones(3, 2)
        HELPER
        """
    start = start.replace("HELPER", "def read():\n            return score.item()" if "read()" in ahead else "")
    cell = """
        for update in range(2):
            value = critic(x).square().mean()
            score = -critic(actor(x)).mean()
            AHEAD
            of_critic.zero_grad(); value.backward(); of_critic.step()
            of_actor.zero_grad(); score.backward(); of_actor.step()
        print(score.item())
        """.replace("AHEAD", ahead or "pass")
    made = "    score = -critic(actor(x)).mean()\n"
    texts = [fix.cells.get(2, "") for fix in fixes(start, cell) if fix.rule == RULE]
    assert any(made in text for text in texts)
    assert all(text.count(made) == (1 if moved else 2) for text in texts)
    assert all("of_critic.step()" in text.partition(made)[0] for text in texts) == moved


def test_what_a_branch_uses_up_and_reads_on_is_computed_again_within_the_branch() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        scale, table = nn.Parameter(torch.ones(3)), nn.Parameter(torch.randn(5, 3))
        opt, own = torch.optim.SGD([scale], 0.1), torch.optim.SGD([table], 0.1)
        def look_up(z, training=True):
            codes = scale * table
            found = codes[torch.cdist(z, codes).argmin(-1)]
            if training:
                (found - z).square().mean().backward()
                own.step()
                found = codes[torch.cdist(z, codes).argmin(-1)]
            return found
        """
    cell = """
        for z in torch.randn(3, 4, 3):
            loss = (look_up(z) - z).exp().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fixes(start, cell)[0]
    behind = ("own.step()\n", "own.step()\n        codes = scale * table\n")
    assert (fix.rule, fix.untrained) == ("recompute", ()) and fix.cells == {1: rewritten(start, behind)}


TEMPERATURE = """
    for lp in torch.randn(3, 5):
        opt.zero_grad()
        loss = (net(lp[:, None]).squeeze() * VALUE.detach()).mean()
        loss = loss + (VALUE * (lp - 1.0)).mean()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("made", "value", "again"),
    [
        ("log = torch.zeros(1, requires_grad=True)\nvalue = log.exp()", "value", "value = log.exp()"),
        (
            "own = {'log': torch.zeros(1, requires_grad=True)}\nown['value'] = own['log'].exp()\nlog = own['log']",
            "own['value']",
            "own['value'] = own['log'].exp()",
        ),
        (
            "class Own:\n    def __init__(self):\n        self.log = torch.zeros(1, requires_grad=True)\n"
            "        self.value = self.log.exp()\nown = Own()\nlog = own.log",
            "own.value",
            "own.value = own.log.exp()",
        ),
    ],
    ids=["a name", "an item of a dict", "an attribute of an object"],
)
def test_in_a_loop_it_is_computed_ahead_of_all_that_reads_it_also_without_its_history(
    made: str, value: str, again: str
) -> None:
    net = "net = nn.Linear(1, 1)\nopt = torch.optim.SGD([*net.parameters(), log], lr=0.1)"
    cell = TEMPERATURE.replace("VALUE", value)
    first = "    loss = (net"
    found = fixes(START, f"{made}\n{net}", cell)
    assert found[0].cells == {3: rewritten(cell, (first, f"    {again}\n{first}"))}


def test_what_another_constructor_gives_an_object_is_made_again_by_the_method_that_reads_it() -> None:
    classes = """
        class Mixer(nn.Module):
            def __init__(self):
                super().__init__()
                self.w, self.mix = nn.Parameter(torch.randn(4)), None
            def forward(self, x):
                return x * self.mix
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.mixer = Mixer()
                mixer = self.mixer
                mixer.mix = torch.softmax(mixer.w, 0)
            def forward(self, x):
                return self.mixer(x)
        """
    again = ("    return x * self.mix", "    self.mix = torch.softmax(self.w, 0)\n        return x * self.mix")
    assert fixes(START, classes, TRAIN)[0].cells == {2: rewritten(classes, again)}


def test_what_the_call_that_broke_it_gives_another_value_is_not_made_again() -> None:
    made = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.out = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 1)
            def positive(self):
                with torch.no_grad():
                    self.weight.abs_()
                return self.weight
            def forward(self, x):
                h = torch.tanh(self.out.weight * x @ self.positive())
                h = torch.tanh(h @ self.positive())
                return self.out(h)
        net = Net()
        """
    assert RULE not in rules(START, made, "net(torch.randn(3, 4)).sum().backward()")


def test_a_leaf_that_is_frozen_meanwhile_is_no_edge_that_a_fix_has_cut() -> None:
    made = "w, b = nn.Parameter(torch.randn(3, 1)), nn.Parameter(torch.zeros(1))\nopt = torch.optim.SGD([w, b], lr=0.1)"
    ahead = "x = torch.randn(5, 3)\npred = x @ w + b"
    loop = """
        for i in range(3):
            loss = (pred - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i == 0:
                b.requires_grad_(False)
        """
    fix = fix_by(RULE, START, made, ahead, loop)
    assert fix.gradients == "different"


@pytest.mark.parametrize("in_function", [False, True], ids=["a class", "a class in a function"])
def test_what_a_comprehension_of_the_constructor_made_is_made_in_the_method_ahead_of_its_closures(
    in_function: bool,
) -> None:
    net = """
        class Net(nn.Module):
            def __init__(self, starts):
                super().__init__()
                for name, value in starts.items():
                    self.register_parameter(name, nn.Parameter(torch.tensor(value)))
                self.rates = {name: param.exp() for name, param in self.named_parameters()}
            def forward(self, x):
                def step(y):
                    return y * self.rates["grow"] - self.rates["decay"]
                return step(step(x))
        """
    train = TRAIN.replace("Net()", "Net({'grow': 0.1, 'decay': 0.2})")
    if in_function:
        net = f"def build():\n{textwrap.indent(clean(net), '    ')}\n    return Net\nNet = build()\n"
    fix = fix_by(RULE, START, net, train)
    made = "self.rates = {name: param.exp() for name, param in self.named_parameters()}"
    indent = " " * (12 if in_function else 8)
    assert fix.cells == {2: rewritten(net, ("def step(y)", f"{made}\n{indent}def step(y)"))}


ADDED_UP = """
    class Net(nn.Module):
        def __init__(self, weight=0.1):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)
            self.penalty = 0
            self.add_penalty(self.first.weight, weight)
            self.add_penalty(self.second.weight, weight=0.2)
        def add_penalty(self, w, weight):
            norm = w.norm()
            self.penalty = self.penalty + weight * norm
        def forward(self, x):
            return self.second(self.first(x).relu()) + self.penalty
    """


def test_what_methods_of_the_constructors_object_add_up_is_added_up_where_it_is_read() -> None:
    fix = fix_by(RULE, START, ADDED_UP, TRAIN)
    again = """self.penalty = 0
        self.add_penalty(self.first.weight, self.weight)
        self.add_penalty(self.second.weight, weight=0.2)
        return """
    keeping = "self.weight = weight\n        self.penalty = 0\n"
    assert fix.cells == {2: rewritten(ADDED_UP, ("self.penalty = 0\n", keeping), ("return ", again))}


def test_what_they_add_up_is_added_up_from_its_beginning_where_other_code_reads_it() -> None:
    net = rewritten(ADDED_UP, (".relu()) + self.penalty", ".relu())"))
    train = TRAIN.replace("net(x).sum()", "net(x).sum() + net.penalty")
    fix = fix_by(RULE, START, net, train)
    made = """for x in torch.randn(3, 4):
    net.penalty = 0
    net.add_penalty(net.first.weight, net.weight)
    net.add_penalty(net.second.weight, weight=0.2)
    loss = """
    assert made in fix.cells[3] and fix.changes == ()


@pytest.mark.parametrize("begun", ["type(self).penalty = 0", "setattr(self, 'penalty', 0)"])
def test_what_they_add_up_from_a_beginning_that_is_not_seen_is_not_added_to_once_more(begun: str) -> None:
    net = rewritten(ADDED_UP, ("self.penalty = 0", begun))
    assert RULE not in rules(START, net, TRAIN)


def test_what_a_closure_of_one_step_reads_is_made_in_it_also_where_the_step_is_returned() -> None:
    define = """
        class Fit:
            def __init__(self):
                self.rate = torch.tensor([0.3, 1.5], requires_grad=True)
                self.opt = torch.optim.LBFGS([self.rate], lr=0.5, max_iter=4)
            def curve(self): return torch.exp(-self.rate * 2)
            def objective(self):
                self.opt.zero_grad()
                loss = (self.model - 0.2).square().sum()
                loss.backward()
                return loss
            def run(self):
                self.model = self.curve()
                return self.opt.step(self.objective).item()
        """
    loss = "        loss = (self.model - 0.2)"
    fix = fix_by(RULE, START, define, "print(Fit().run())")
    assert fix.cells == {2: rewritten(define, (loss, f"        self.model = self.curve()\n{loss}"))}


def test_a_list_that_a_loop_goes_through_is_made_ahead_of_that_loop() -> None:
    make = "terms = [1e-3 * p.abs().sum() for p in net.parameters()]"
    define = """
        def train(net, xs):
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for x in xs:
                loss = net(x).square().mean()
                for term in terms:
                    loss = loss + term
                opt.zero_grad(); loss.backward(); opt.step()
        """
    head = "        for term in terms:\n"
    first = fixes(START, "net = nn.Linear(2, 1)", make, define, "train(net, torch.randn(3, 4, 2))")[0]
    assert first.cells == {4: rewritten(define, (head, f"        {make}\n{head}"))}


@pytest.mark.parametrize("branch", [pytest.param(False, id="a loop"), pytest.param(True, id="a branch of a loop")])
def test_what_a_method_adds_up_in_a_loop_comes_with_the_loop(branch: bool) -> None:
    define = """
        class Trainer:
            def __init__(self, net):
                self.net, self.opt = net, torch.optim.SGD(net.parameters(), lr=0.1)
                self.decay = torch.zeros(())
                for layer in net:
                    self.add_decay(layer.weight)
            def add_decay(self, weight):
                self.decay = self.decay + 0.01 * weight.pow(2).sum()
            def fit(self, xs):
                for x in xs:
                    loss = self.net(x).mean() + self.decay
                    self.opt.zero_grad(); loss.backward(retain_graph=True)
                    self.opt.step()
        """
    add = "            self.add_decay(layer.weight)\n"
    if branch:
        define = rewritten(define, (add, f"            if hasattr(layer, 'weight'):\n    {add}"))
    net = "net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))"
    first = fixes(START, net, define, "Trainer(net).fit(torch.randn(3, 4, 2))")[0]
    assert first.rule == RULE and first.cells[3].count("self.add_decay(") == 2
    assert first.gradients == "different" and not first.changes


def test_no_object_begins_anew_where_a_value_is_read() -> None:
    nets = """
        class Base(nn.Module):
            def __init__(self):
                super().__init__()
                self.log = nn.Parameter(torch.zeros(4))
                self.scale = self.log.exp()
        class Net(Base):
            def __init__(self):
                super().__init__()
                self.noise = 0.1 * self.scale
            def forward(self, x):
                return x * self.scale + self.noise ** 2
        """
    run = run_cells(START, nets, TRAIN)
    assert run.diagnosis is not None
    assert not any("forward(self, x):\n        super()" in fix.cells.get(2, "") for fix in run.diagnosis.fixes)


def test_what_a_write_makes_stale_in_each_iteration_is_computed_behind_that_write() -> None:
    made = "w = torch.rand(3, requires_grad=True)\nparts = {i: w[i] ** 2 for i in range(3)}\nd = parts[0] * parts[1] * parts[2]"
    loop = """
        for new in torch.rand(2, 3):
            for i in parts:
                w.data[i] = new[i]
            w.grad = None
            d.backward(retain_graph=True)
        """
    found = run_cells(START, made, "%%autograd_check\n" + clean(loop)).diagnosis
    assert found is not None
    text = found.fixes[0].cells[3]
    assert text.index("w.data[i]") < text.index("parts = {i: w[i] ** 2 for i in range(3)}") < text.index("d.backward()")


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(
            """
            import dataclasses
            @dataclasses.dataclass
            class Net:
                w: torch.Tensor
                def __post_init__(self): self.norm = self.w.norm()
                def __call__(self, x): return x @ self.w / self.norm
                def parameters(self): return [self.w]
            def made(): return Net(torch.ones(4, requires_grad=True))
            """,
            id="behind a dataclass's constructor",
        ),
        pytest.param(
            """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.ws = nn.ParameterList([torch.ones(4), torch.ones(4)])
                    self.norms = [self.length(i) for i in range(2)]
                def length(self, i): return self.ws[i].norm()
                def forward(self, x): return sum(x @ w / n for w, n in zip(self.ws, self.norms))
            made = Net
            """,
            id="by a method that it calls",
        ),
    ],
)
def test_what_a_constructor_computes_of_the_weights_alone_is_computed_again_rather_than_cut(made: str) -> None:
    found = fixes(START, made, TRAIN.replace("Net()", "made()"))
    assert found[0].rule == RULE
