"""The order of verified fixes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inplace_magic.diagnosis import Fix, Gradients
from inplace_magic.search import Rank
from inplace_magic.verify import ranking
from inplace_magic.verify.attempt import Attempt

from ..cells import run_cells

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    features = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    content, image = torch.rand(5, 3), torch.rand(5, 3, requires_grad=True)
    """
TARGET = """
    opt = torch.optim.SGD([image], lr=0.1)
    target = features(content)
    for _ in range(3):
        opt.zero_grad()
        (features(image) - target).pow(2).mean().backward()
        opt.step()
    """


def test_a_cut_that_no_step_feels_comes_before_a_forward_that_runs_again() -> None:
    run = run_cells(START, TARGET)
    assert run.diagnosis is not None
    assert [(fix.rule, fix.gradients) for fix in run.diagnosis.fixes[:2]] == [
        ("detach", "truncated"),
        ("recompute", "same"),
    ]


TWO_LOSSES = """
    opt = torch.optim.SGD(features.parameters(), lr=0.1)
    judge = nn.Linear(2, 1).requires_grad_(False)
    for _ in range(2):
        opt.zero_grad()
        out, other = features(content), features(image.detach())
        out.pow(2).mean().backward()
        opt.step()
        judge(other).mean().backward()
    """


def test_what_gives_a_backward_a_use_that_it_did_not_have_comes_before_what_does_not() -> None:
    run = run_cells(START, TWO_LOSSES)
    assert run.diagnosis is not None
    assert [(fix.rule, fix.gradients) for fix in run.diagnosis.fixes] == [
        ("move_step", "different"),
        ("recompute", "different"),
        ("allow_mutation", "same"),  # the last resort, whatever it keeps
    ]


METRIC = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 2)
    centers = nn.Parameter(torch.randn(2, 4))
    opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    center_opt = torch.optim.SGD([centers], lr=0.5)
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 0])

    def pull(part):
        part.backward(retain_graph=True)
        center_opt.step()
    """
PULLED = """
    for _ in range(2):
        opt.zero_grad(), center_opt.zero_grad()
        out = body(x)
        total = nn.functional.cross_entropy(head(out), y)
        part = (1 - (out * nn.functional.normalize(centers)[y]).sum(1)).mean()
        total = total + 0.5 * part
        pull(part)
        total.backward()
        opt.step()
        print(total.item())
    """
SEVERAL = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    G, D = nn.Sequential(nn.Linear(2, 3), nn.Tanh()), nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
    opt_g, opt_d = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (G, D))
    """
DRAWN = """
    for _ in range(2):
        for _ in range(3):
            drawn = G(torch.randn(4, 2))
            seen = D(drawn)
            seen.log().mean().neg().backward()
            opt_g.step()
            G.zero_grad()
        judged = D(drawn)
        judged.mean().backward()
        opt_d.step()
        D.zero_grad()
    """
JUDGED_ONCE = """
    for step in range(2):
        drawn = G(torch.randn(4, 2))
        seen = D(drawn)
        if step >= 0:
            D.zero_grad()
            seen.log().mean().backward(retain_graph=True)
            opt_d.step()
        else:
            D.zero_grad()
        if step >= 0:
            G.zero_grad()
            loss = drawn.abs().mean() - seen.mean()
            loss.backward()
            opt_g.step()
    """


@pytest.mark.parametrize(
    ("start", "cell", "starving", "gradients"),
    [
        pytest.param(
            METRIC, PULLED, "out.detach()", "same", id="a backward that is limited, before a part trains less"
        ),
        pytest.param(
            SEVERAL, JUDGED_ONCE, "D(drawn.detach())", "different", id="a forward more, before a cut in both losses"
        ),
        pytest.param(
            SEVERAL, DRAWN, "seen = D(drawn.detach())", "truncated", id="a cut behind the step, before one ahead"
        ),
    ],
)
def test_no_leaf_is_kept_from_a_loss_that_it_is_stepped_for_where_there_is_another_way(
    start: str, cell: str, starving: str, gradients: str
) -> None:
    run = run_cells(start, cell)
    assert run.diagnosis is not None
    first, *_ = run.diagnosis.fixes
    assert first.gradients == gradients
    assert all(starving not in text for text in first.cells.values())


STEPS_ON_ONE = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    G = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3))
    D = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = torch.optim.Adam(G.parameters(), 0.01)
    z, real = torch.randn(5, 2), torch.randn(5, 3)

    def train(rounds, steps):
        for _ in range(rounds):
            fake = G(z)
            for _ in range(steps):
                opt.zero_grad()
                judged = -D(fake).mean()
                judged.backward(retain_graph=True)
    """
REBUILT = """
                rebuilt = (G(z) - real).pow(2).mean()
                rebuilt.backward()
    """


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("", id="before a cut by which no step learns anything"),
        pytest.param(REBUILT, id="before a cut by which the steps learn from another loss alone"),
    ],
)
def test_a_forward_that_runs_again_and_adds_to_statistics_comes_first(more: str) -> None:
    """As zero_grad parted the steps, a sum over all of them, used once for each, is nothing that was written."""
    run = run_cells(STEPS_ON_ONE.rstrip() + more.rstrip() + "\n" + 16 * " " + "opt.step()\n", "train(2, 3)")
    assert run.diagnosis is not None
    fixes = run.diagnosis.fixes
    assert [fix.rule for fix in fixes if fix.rule != "restructure"] == ["recompute", "detach"]
    assert "fake = G(z)\n            judged" in fixes[0].cells[1]
    assert any("running_mean" in clause for clause in fixes[0].changes)


STATE = """
    import torch
    from torch import nn
    torch.manual_seed(0)

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.state = nn.Linear(2, 2), torch.zeros(2)
        def forward(self, x):
            self.state = torch.tanh(self.lin(x) + self.state)
            return self.state

    def begin(net):
        net.state = torch.zeros(2)

    net = Cell()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
BATCHES = """
    for _ in range(3):
        out = net(torch.randn(4, 2))
        opt.zero_grad()
        out.pow(2).mean().backward()
        opt.step()
    """


COLLECT = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    policy, chosen, gains = nn.Linear(2, 2), [], []
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)
    """
EPISODES = """
    for _ in range(3):
        for t in range(2):
            chosen.append(policy(torch.randn(2)).log_softmax(0)[0])
            gains.append(float(t))
        weights = torch.tensor(gains)
        opt.zero_grad()
        (-torch.stack(chosen) * (weights - weights.mean())).sum().backward()
        opt.step()
    """


def test_a_list_that_is_filled_for_one_backward_starts_anew_rather_than_to_keep_values() -> None:
    run = run_cells(COLLECT, EPISODES)
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes[:2]] == ["reset_accumulator", "detach"]


def test_a_reset_that_somebody_has_written_comes_before_a_cut_else_the_cut_does() -> None:
    for start, first in (
        (STATE, "reset_state"),
        (STATE.replace("def begin(net):\n        net.state", "kept"), "detach"),
    ):
        run = run_cells(start, BATCHES)
        assert run.diagnosis is not None
        assert run.diagnosis.fixes[0].rule == first


BLOCK = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    steps = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
    def forward(x):
        out = x
        for step in steps:
            {write}
        return {given}
    """
BLOCK_LOSS = """
    loss = forward(torch.tanh(steps[0](torch.randn(5, 4)))).pow(2).mean()
    loss.backward()
    """


@pytest.mark.parametrize(
    ("write", "given", "rule", "gradients"),
    [
        pytest.param("out += step(out)", "x", "clone_at_save", "same", id="one of the two names is never read by itself"),
        pytest.param("out += step(out)", "out", "out_of_place", "same", id="the other name is not read any more"),
        pytest.param("out += step(x)", "out", "out_of_place", "different", id="both names are read: each is a value of its own"),
        pytest.param("out[:, 0] = step(x)[:, 0]", "out", "clone_before_write", "different", id="a part is written"),
        pytest.param("x += step(x)", "out + x", "out_of_place", "different", id="it is the first name that is written"),
    ],
)  # fmt: skip
def test_two_names_that_are_both_read_come_apart_at_first(write: str, given: str, rule: str, gradients: str) -> None:
    run = run_cells(BLOCK.format(write=write, given=given), BLOCK_LOSS)
    assert run.diagnosis is not None
    first, *others = run.diagnosis.fixes
    assert (first.rule, first.gradients) == (rule, gradients)
    assert bool(first.changes) == (gradients == "different")
    assert gradients == "same" or any(fix.gradients == "same" for fix in others)


def test_what_an_inplace_function_gives_under_another_name_is_a_value_of_its_own() -> None:
    start = "import torch\na = torch.linspace(0.0, 6.0, 5, requires_grad=True)"
    run = run_cells(start, "b = torch.sin_(a)\nout = (2 * b + 1).sum()\nout.backward()\nprint(a.grad)")
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].cells[2].startswith("b = torch.sin(a)\n")


def test_what_a_function_adds_to_what_it_is_handed_is_a_value_of_its_own_where_others_are_handed_the_same() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.pos, self.out = nn.Parameter(torch.randn(4)), nn.Linear(4, 2)
            def forward(self, x):
                x.add_(self.pos)
                return self.out(x).tanh()
        heads = nn.ModuleList(Head() for _ in range(2))
        """
    run = run_cells(
        start, "x = torch.ones(3, 4, requires_grad=True).exp()\nsum(head(x).sum() for head in heads).backward()"
    )
    assert run.diagnosis is not None
    assert "x = x.add(self.pos)" in run.diagnosis.fixes[0].diff


PATH = """
    field = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    state = torch.randn(3, 2, requires_grad=True) * 1.0
    path = []
    for k in range(3):
        {write}
        path.append({kept})
    torch.stack(path).pow(2).mean().backward()
    """


@pytest.mark.parametrize(
    ("write", "kept", "rule", "gradients"),
    [
        pytest.param("state += 0.1 * field(state)", "state", "out_of_place", "different", id="a path of states"),
        pytest.param("state += 0.1 * field(state)", "state.clone()", "out_of_place", "same", id="what is kept is a copy already"),
        pytest.param("state += 0.1 * field(state)", "state + 0", "out_of_place", "same", id="what is kept is a sum"),
    ],
)  # fmt: skip
def test_what_a_loop_keeps_while_it_goes_on_writing_is_kept_as_values(
    write: str, kept: str, rule: str, gradients: str
) -> None:
    run = run_cells("import torch\nfrom torch import nn\ntorch.manual_seed(0)", PATH.format(write=write, kept=kept))
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == (rule, gradients)


FILLED = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    mix = nn.Linear(4, 4)
    def fill(x):
        y = mix(x)
        out = x
        out[:, 0] = y[:, 0]
        return {given}
    x = torch.tanh(mix(torch.randn(5, 4)))
    """


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        pytest.param("y * out[:, :1]", "clone_before_write", id="what it has filled is given back"),
        pytest.param("y", "clone_at_save", id="something else is given back"),
    ],
)
def test_who_fills_a_second_name_of_what_it_was_handed_and_returns_it_means_a_value_of_its_own(
    given: str, rule: str
) -> None:
    run = run_cells(FILLED.format(given=given), "(fill(x) * x).sum().backward()")
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule == rule


LEAF = """
    import torch
    weights = torch.ones(3, 1, requires_grad=True)
    def model(x):
        return x @ weights
    """


def test_what_makes_a_leaf_a_result_is_not_shown_beside_what_leaves_it_one() -> None:
    run = run_cells(LEAF, "weights[0] *= 1.5\nprint(model(torch.ones(2, 3)).sum().item())")
    assert run.diagnosis is not None
    assert [(fix.rule, fix.gradients) for fix in run.diagnosis.fixes] == [("no_grad", "same")]


def test_of_a_parameter_a_name_that_no_longer_leads_to_it_is_enough() -> None:
    """Here a module and its optimizer go on with what the list has lost."""
    define = """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.SiLU(), torch.nn.Linear(3, 1))
        params, x = list(net.parameters()), torch.ones(2, 2)
        def back():
            for i in range(len(params)):
                params[i].data.sub_(0.1)
        """
    run = run_cells(define, "%%autograd_check\nloss = net(x).square().mean()\nback()\nloss.backward()")
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert not [fix for fix in run.diagnosis.fixes if ".clone()" in str(fix.cells)]


def test_a_module_is_not_left_with_the_old_parameter_where_it_can_have_the_new_one() -> None:
    table = "import torch\nnet = torch.nn.ModuleDict({'words': torch.nn.Embedding(4, 3)})\ntable = net['words'].weight"
    run = run_cells(table, "for new in (1, 3):\n    table[new] = table[:2].mean(0) + 0.1")
    assert run.diagnosis is not None
    assert [(fix.rule, fix.gradients) for fix in run.diagnosis.fixes] == [("no_grad", "same")]


SKIP = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    act, first, second = nn.ReLU(inplace=True), nn.Linear(3, 3), nn.Linear(3, 3)
    def block(x):
        short = first(x)
        y = second(act(x))
        return short + y + x
    """


def test_a_flag_that_was_to_save_memory_goes_before_a_copy_that_keeps_its_effect_on_others() -> None:
    run = run_cells(SKIP, "loss = block(first(torch.randn(4, 3))).pow(2).mean()\nloss.backward()")
    assert run.diagnosis is not None
    first, second, *_ = run.diagnosis.fixes
    assert (first.rule, first.gradients, bool(first.changes)) == ("module_flag", "different", True)
    assert second.gradients == "same"


HANDED = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    lin, pos = nn.Linear(3, 3), torch.ones(3)
    def {name}(token):
        token += pos
        {gives}lin(token)
    """
TWICE = """
    shared = torch.sigmoid(lin(torch.randn(2, 3)))
    {calls}
    loss = (shared + {value}).pow(2).mean()
    loss.backward()
    """


@pytest.mark.parametrize(
    ("name", "gives", "first"),
    [
        pytest.param("decode", "return ", ("out_of_place", "different"), id="it gives something else back: the argument was not meant"),
        pytest.param("shift_", "return ", ("clone_at_save", "same"), id="its name says that it writes"),
        pytest.param("shift", "", ("clone_before_write", "same"), id="it gives nothing back, and is there for what it writes"),
    ],
)  # fmt: skip
def test_an_argument_that_a_function_adds_to_is_left_to_the_caller(
    name: str, gives: str, first: tuple[str, str]
) -> None:
    value = f"{name}(shared)" if gives else "shared"
    cell = TWICE.format(calls="pass" if gives else f"{name}(shared)", value=value)
    run = run_cells(HANDED.format(name=name, gives=gives), cell)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert (fix.rule, fix.gradients) == first


RUNNING_TOTAL = """
    opt = torch.optim.SGD(features.parameters(), lr=0.1)
    running = 0
    for x in torch.rand(3, 5, 3):
        loss = features(x).pow(2).mean()
        running += loss
        opt.zero_grad()
        running.backward()
        opt.step()
    print(running / 3)
    """


def test_no_fix_is_shown_that_writes_the_same_as_another_one_elsewhere_and_changes_the_same() -> None:
    run = run_cells(START, RUNNING_TOTAL)
    assert run.diagnosis is not None
    found = [(fix.title, fix.gradients, fix.changes) for fix in run.diagnosis.fixes]
    assert len(found) == len(set(found)) == 3


TABLE = """
    embed = nn.Linear(3, 2)
    opt = torch.optim.SGD(embed.parameters(), lr=0.1)
    table = {}
    for x in torch.randn(4, 5, 3):
        for c, z in enumerate(embed(x).chunk(5)):
            if c in table:
                z = 0.8 * table[c] + 0.2 * z
            table[c] = z
        loss = torch.stack(list(table.values())).pow(2).mean() + embed(x).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_two_of_one_kind_are_shown_where_they_give_other_gradients() -> None:
    run = run_cells(START, TABLE)
    assert run.diagnosis is not None
    cuts = [fix for fix in run.diagnosis.fixes if fix.rule == "detach"]
    assert [fix.title for fix in cuts] == ["z = 0.8 * table[c].detach() + 0.2 * z", "table[c] = z.detach()"]
    assert {fix.gradients for fix in cuts} == {"truncated"}


TARGETS = """
    pi, q1, q2, frozen = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(1, 1)
    o1, o2, op = (torch.optim.SGD(net.parameters(), 0.1) for net in (q1, q2, pi))
    for s in torch.randn(3, 4, 3):
        target = frozen(pi(s)).tanh()
        for q, opt in ((q1, o1), (q2, o2)):
            loss = (q(s) - target).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        actor = -q1(s * pi(s)).mean()
        op.zero_grad()
        actor.backward()
        op.step()
    """


def test_a_cut_whose_gradients_are_cleared_before_any_step_comes_before_a_forward_that_runs_again() -> None:
    run = run_cells(START, TARGETS)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("detach", "truncated")
    assert any(fix.rule == "recompute" and fix.gradients == "same" for fix in run.diagnosis.fixes)


MEMORY = """
    import torch
    from torch import nn
    torch.manual_seed(13)

    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.start, self.mix = nn.Parameter(torch.randn(1, 4) * 0.1), nn.Linear(4, 4)
            self.cache = {}

        def keep(self, value):
            self.cache["m"] = value

        def forward(self, x):
            m = self.cache.get("m", self.start)
            self.keep(torch.tanh(self.mix(m + x)))
            return self.cache["m"].mean()

    model = Memory()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    """


def test_a_state_is_cut_off_rather_than_begun_anew_though_what_it_began_from_learns_only_once() -> None:
    run = run_cells(
        MEMORY, "for x in torch.randn(4, 1, 4):\n    opt.zero_grad()\n    model(x).backward()\n    opt.step()"
    )
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.untrained) == ("detach", ("model.start",))


TIERS = """
    low, high = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)), nn.Linear(4, 2)
    low_opt, high_opt = (torch.optim.SGD(net.parameters(), 0.1) for net in (low, high))
    for bag in torch.randn(2, 4, 3):
        codes = [low(part).amax(0) for part in bag.chunk(2)]
        loss = torch.stack(codes).pow(2).mean()
        low_opt.zero_grad()
        loss.backward(retain_graph=True)
        low_opt.step()
        later = high(torch.stack(codes)).exp().mean()
        high_opt.zero_grad()
        later.backward()
        high_opt.step()
    """


def test_fixes_that_train_alike_leave_room_for_those_that_do_not() -> None:
    run = run_cells(START, TIERS)
    assert run.diagnosis is not None
    assert [(fix.rule, fix.gradients) for fix in run.diagnosis.fixes] == [
        ("detach", "same"),
        ("recompute", "different"),
        ("move_step", "different"),
    ]
    assert run.diagnosis.fixes[2].title == "low_opt.step() after later.backward()"


def test_what_trains_an_earlier_cell_again_says_so_and_comes_behind_what_does_not() -> None:
    earlier = """
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), 0.1)
        """
    cells = ("out = net(torch.ones(2, 3))\nout.exp().mean().backward()", "out.pow(2).mean().backward()\nopt.step()")
    run = run_cells(START, earlier, *cells)
    assert run.diagnosis is not None
    first, *others = run.diagnosis.fixes
    assert (first.cells.keys(), first.changes) == ({4}, ())
    assert [fix.changes for fix in others if 3 in fix.cells] == [("In[3] trains once more",)]


def ran(rule: str, rank: Rank, gradients: Gradients, *untrained: str) -> Attempt:
    fix = Fix(rule, "", rule, "", {1: rule}, True, gradients, untrained=untrained)
    return Attempt(fix, cost=1, turn=1, rank=rank)


@pytest.mark.parametrize(
    ("others", "shown"),
    [
        pytest.param([], ["detach"], id="where there is nothing else"),
        pytest.param([ran("move_step", "whole", "different")], ["move_step"], id="not beside what mends a line"),
        pytest.param(
            [ran("allow_mutation", "copied", "same")], ["allow_mutation", "detach"], id="behind torch's copies"
        ),
        pytest.param(
            [ran("allow_mutation", "copied", "same"), ran("recompute", "different", "different")],
            ["recompute", "allow_mutation"],
            id="not where a line can be mended otherwise",
        ),
    ],
)
def test_a_cut_that_leaves_a_parameter_without_any_gradient_is_shown(others: list[Attempt], shown: list[str]) -> None:
    found = ranking.chosen([ran("detach", "deprived", "truncated", "encoder.weight"), *others], 3)
    assert [fix.rule for fix in found] == shown


def test_of_two_cuts_that_leave_parameters_without_any_gradient_the_one_that_leaves_more_is_not_shown() -> None:
    less, more = ran("detach", "deprived", "truncated", "w"), ran("made_once", "deprived", "truncated", "w", "b")
    assert [fix.rule for fix in ranking.chosen([more, less], 3)] == ["detach"]
    other = ran("recompute", "deprived", "truncated", "b")
    assert [fix.rule for fix in ranking.chosen([less, other], 3)] == ["detach", "recompute"]
    reset = ran("reset_state", "deprived", "different", "w")
    assert {fix.rule for fix in ranking.chosen([reset, more], 3)} == {"reset_state", "made_once"}


def test_what_the_code_was_meant_to_say_comes_before_what_keeps_its_result_at_less_cost() -> None:
    meant = replace(ran("out_of_place", "same", "different"), cost=10, corrects=True)
    first, other = ranking.chosen([ran("clone_alias", "same", "same"), meant], 3)
    assert first.rule == "out_of_place" and "not what was meant" in str(other.changes)


def test_what_makes_a_leaf_a_result_comes_behind_the_others_of_its_rank() -> None:
    result = replace(ran("out_of_place", "different", "different"), cost=1, lesser=True, unleafed=True)
    update = replace(ran("no_grad", "different", "different"), cost=9)
    assert [fix.rule for fix in ranking.chosen([result, update], 3)] == ["no_grad", "out_of_place"]
