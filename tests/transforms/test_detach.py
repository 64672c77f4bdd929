from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from inplace_magic.source.dataflow import binds, live_in, rebinds, slice_of
from inplace_magic.transforms.analysis.points import detached

from ..cells import run_cells
from .trying import clean, fix_by, fixes, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 4)
    lstm = nn.LSTM(3, 4)
    head = nn.Linear(4, 1)
    opt = torch.optim.SGD([*cell.parameters(), *lstm.parameters(), *head.parameters()], lr=0.1)
    """


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(
            """
            h = cell(torch.randn(2, 3))
            for _ in range(3):
                loss = head(h).exp().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
            """,
            id="what is computed once, before the loop, is carried by nobody",
        ),
        pytest.param(
            """
            base = cell(torch.randn(2, 3)) * 1.0
            first = base[:1]
            part = first.sin()
            base *= 2
            loss = part.sum() + base.sum()
            loss.backward()
            """,
            id="a value that is written within its own forward",
        ),
    ],
)
def test_is_not_proposed(cells: str) -> None:
    assert "detach" not in rules(START, cells)


NAME = """
    h = torch.zeros(2, 4)
    for step in range(3):
        opt.zero_grad()
        h_next = cell(torch.randn(2, 3), h)
        loss = head(h_next).exp().mean()
        loss.backward(retain_graph=True)  # 需要两次
        opt.step()
        h = h_next   # on to the next
    """
TUPLE = """
    state = None
    for step in range(3):
        out, state = lstm(torch.randn(5, 2, 3), state)
        loss = head(out).exp().mean()
        opt.zero_grad(); loss.backward(); opt.step()
    """
USED_LATER = """
    h = torch.zeros(2, 4)
    for step in range(3):
        h = cell(torch.randn(2, 3), h)
        loss = head(h).exp().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())
    """
LAYERS = """
    hs = [torch.zeros(2, 3) for _ in range(2)]
    layers = [nn.GRUCell(3, 3), nn.GRUCell(3, 3)]
    for x in torch.randn(3, 4, 2, 3):
        for x_t in x:
            for i, layer in enumerate(layers):
                hs[i] = x_t = layer(x_t, hs[i])
        loss = hs[-1].exp().mean()
        loss.backward()
    """
DICT = """
    state = {"h": torch.zeros(2, 4)}
    for x in torch.randn(3, 2, 3):
        state["h"] = cell(x, state["h"])
        loss = head(state["h"]).exp().mean()
        loss.backward()
    """
EVERY_THIRD = """
    h, loss = torch.zeros(2, 4), 0
    for t, x in enumerate(torch.randn(9, 2, 3)):
        h = cell(x, h)
        loss = loss + head(h).exp().mean()
        if t % 3 == 2:
            loss.backward()
            opt.step(); opt.zero_grad()
            loss = 0
    """
STEP_IN_FUNCTION = """
    def train_step(x, h):
        h = cell(x, h)
        loss = head(h).exp().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return h

    h = torch.zeros(2, 4)
    for x in torch.randn(3, 2, 3):
        h = train_step(x, h)
    """


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            NAME,
            [("(retain_graph=True)  #", "()  #"), ("h = h_next   #", "h = h_next.detach()   #")],
            id="a name that is handed on afterwards; retain_graph goes",
        ),
        pytest.param(
            TUPLE,
            [("opt.step()", "opt.step()\n    state = tuple(h.detach() for h in state)")],
            id="a tuple that begins as None",
        ),
        pytest.param(
            USED_LATER,
            [("opt.step()\n", "opt.step()\n    h = h.detach()\n")],
            id="a state that its own iteration still needs, once the iteration is over",
        ),
        pytest.param(
            LAYERS,
            [("loss.backward()", "loss.backward()\n    hs = [h.detach() for h in hs]")],
            id="a list with a state for each layer",
        ),
        pytest.param(
            DICT,
            [("loss.backward()", 'loss.backward()\n    state["h"] = state["h"].detach()')],
            id="a dict of states",
        ),
        pytest.param(
            EVERY_THIRD,
            [("opt.step();", "opt.step(); h = h.detach();")],
            id="a backward every few steps keeps the state whole until then",
        ),
        pytest.param(
            STEP_IN_FUNCTION,
            [("h = train_step(x, h)", "h = train_step(x, h)\n    h = h.detach()")],
            id="a state that a function takes and gives back is cut where it is handed on",
        ),
    ],
)
def test_is_cut_where_it_is_carried(cell: str, changes: list[tuple[str, str]]) -> None:
    fix = fix_by("detach", START, cell)
    assert fix.cells == {2: rewritten(cell, *changes)}
    assert fix.gradients == "truncated"


def test_a_cell_that_goes_on_from_its_last_run_takes_what_it_left_without_its_history() -> None:
    again = """
        h = cell(torch.randn(2, 3), h)
        loss = head(h).exp().mean()
        opt.zero_grad(); loss.backward(); opt.step()
        """
    fix = fix_by("detach", START, "h = torch.zeros(2, 4)", again, again)
    assert fix.cells == {4: rewritten(again, ("3), h)", "3), h.detach())"))}


MEMORY = """
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = nn.Linear(3, 3)
            self.M = None

        def forward(self, x):
            if self.M is None:
                self.M = torch.zeros(3, 3)
            k = self.k(x)
            out = torch.tanh(k @ self.M) + k
            self.M = self.M + k.t() @ k
            return out

    net = Memory()
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    """
SEGMENTS = """
    for x in torch.randn(3, 2, 3):
        loss = net(x).exp().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    """


def test_a_state_that_a_module_keeps_is_cut_where_its_class_reads_it() -> None:
    fix = fix_by("detach", START, MEMORY, SEGMENTS)
    assert fix.cells == {2: rewritten(MEMORY, ("k @ self.M)", "k @ self.M.detach())"))}
    assert fix.gradients == "truncated"


REPLAY = """
    class Buffer:
        def __init__(self, size):
            self.outputs, self.at = torch.zeros(size, 4), 0

        def add(self, rows):
            for row in rows:
                self.outputs[self.at] = row   # round robin
                self.at = (self.at + 1) % len(self.outputs)

    net = nn.Linear(3, 4)
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    buffer = Buffer(6)
    """
REPLAYED = """
    for x in torch.randn(3, 2, 3):
        out = net(x)
        loss = out.exp().mean() + (out.mean(0) - buffer.outputs).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        buffer.add(out)
    """


def test_what_is_written_into_a_part_of_a_state_goes_there_without_its_history() -> None:
    fix = fix_by("detach", START, REPLAY, REPLAYED)
    assert fix.cells == {3: rewritten(REPLAYED, ("optim.step()", "optim.step()\n    out = out.detach()"))}
    assert fix.gradients == "truncated"


AVERAGE = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.average = self.lin(torch.ones(1, 3)).tanh()
            self.average = self.average * 2

        def forward(self, x, state):
            return torch.tanh(self.lin(x) + state) + self.average

    net = Net()
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    """
CUT_ALREADY = """
    state = torch.zeros(1, 3)
    for x in torch.randn(3, 2, 3):
        state = net(x, state.detach())
        loss = state.exp().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    """


def test_what_does_not_pass_from_one_graph_into_the_next_is_left_alone() -> None:
    fix = fix_by("detach", START, AVERAGE, CUT_ALREADY)
    assert fix.cells == {2: rewritten(AVERAGE, ("self.average * 2", "(self.average * 2).detach()"))}


SUM = """
    total = 0
    for x in torch.randn(3, 2, 4):
        loss = head(x).pow(2).mean()
        total += loss
        opt.zero_grad()
        total.backward()
        opt.step()
    """
GAN = """
    G, D = nn.Linear(2, 3), nn.Linear(3, 1)
    optG, optD = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
    def score(images):
        return D(images).mean()
    for real in torch.randn(2, 4, 3):
        made = G(torch.randn(4, 2))
        optD.zero_grad()
        (score(made) - score(real)).backward()
        optD.step()
        optG.zero_grad(); (-score(made)).backward(); optG.step()
    """


PEERS = """
    nets = [nn.Linear(3, 2) for _ in range(3)]
    opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    x = torch.randn(4, 3)
    outs = [net(x) for net in nets]
    for i in range(3):
        loss = 0
        for j in range(3):
            if i != j:
                loss += (outs[i].exp() - outs[j].exp()).pow(2).mean()
        opts[i].zero_grad()
        loss.backward()
        opts[i].step()
    """
UNROLLED = """
    def fit(steps):
        theta, h = torch.randn(4, 3, requires_grad=True), torch.zeros(4, 4)
        total = 0
        for i in range(steps):
            loss = theta.pow(2).sum()
            g, = torch.autograd.grad(loss, theta, retain_graph=True)
            h = cell(g.detach(), h)
            theta = theta + h[:, :3]
            total = total + loss
            if i % 2 == 1:
                opt.zero_grad()
                total.backward()
                opt.step()
                total = 0
    fit(6)
    """
NODES = """
    class Nodes:
        def __init__(self):
            self.held = {}
        def see(self, a, b):
            one, other = (self.held.get(k, torch.zeros(1, 4)) for k in (a, b))
            self.held[a] = cell(other[:, :3], one)
            return head(self.held[a]).exp().sum()
    nodes = Nodes()
    def train(events):
        for a, b in events:
            loss = nodes.see(a, b)
            opt.zero_grad()
            loss.backward()
            opt.step()
    train([(0, 1), (1, 0), (0, 1)])
    """


LATE = """
    mean, seen = 0.0, []
    for step, x in enumerate(torch.randn(18, 2, 3)):
        out = head(cell(x)).squeeze(1)
        if step > 14:
            mean = 0.9 * mean + 0.1 * (x.mean() + out.exp().mean())
        loss = (out - mean).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen.append(loss.item())
    """


def test_a_number_that_becomes_a_tensor_in_a_branch_late_in_the_run_is_cut_off_in_that_branch() -> None:
    fix = fix_by("detach", START, LATE)
    put = "out.exp().mean())\n"
    assert fix.cells == {2: rewritten(LATE, (put, f"{put}        mean = mean.detach()\n"))}
    assert fix.gradients == "truncated"


def test_what_nobody_holds_is_cut_where_it_is_made() -> None:
    fix = fix_by("detach", START, PEERS)
    assert fix.cells == {2: rewritten(PEERS, ("outs[j].exp()", "outs[j].exp().detach()"))}


def test_what_gradients_are_asked_for_goes_on_to_require_them() -> None:
    fix = fix_by("detach", START, UNROLLED)
    line = "theta, h = theta.detach().requires_grad_(), h.detach()"
    assert fix.cells == {2: rewritten(UNROLLED, ("opt.step()\n", f"opt.step()\n            {line}\n"))}


def test_what_a_call_carries_on_is_not_cut_behind_the_call() -> None:
    run = run_cells(START, NODES)
    assert run.diagnosis is not None
    line = "nodes.held = {key: h.detach() for key, h in nodes.held.items()}"
    cut = rewritten(NODES, ("opt.step()\n", f"opt.step()\n        {line}\n"))
    assert {2: cut} in [fix.cells for fix in run.diagnosis.fixes]


def test_a_sum_kept_for_show_keeps_its_values() -> None:
    fix = fix_by("detach", START, SUM)
    assert fix.cells == {2: rewritten(SUM, ("total += loss", "total += loss.detach()"), ("total.b", "loss.b"))}


@pytest.mark.parametrize(
    ("sent", "instead"),
    [
        ("torch.stack(losses).mean()", "loss"),
        ("torch.stack([*losses]).mean()", "loss"),
        ("(sum(losses) / len(losses) + 0.1 * head.weight.pow(2).sum())", "(loss + 0.1 * head.weight.pow(2).sum())"),
        ("(sum(losses[-2:]) / 2)", "(loss / 2)"),
        ("(-sum(losses))", "(-loss)"),
        ("torch.add(sum(losses), head.weight.pow(2).sum())", "torch.add(loss, head.weight.pow(2).sum())"),
        ("torch.stack(losses).mean().sqrt()", "loss.sqrt()"),
    ],
)
def test_of_a_mean_of_all_losses_this_one_goes_back(sent: str, instead: str) -> None:
    cell = rewritten(
        SUM, ("total = 0", "losses = []"), ("total += loss", "losses.append(loss)"), ("total.b", f"{sent}.b")
    )
    fix = fix_by("detach", START, cell)
    assert fix.cells == {2: rewritten(cell, ("append(loss)", "append(loss.detach())"), (sent, instead))}


@pytest.mark.parametrize(
    ("sent", "instead"),
    [
        ("sum([*losses, head.weight.pow(2).sum()]).b", "loss.b"),
        ("torch.stack([*losses, head.weight.pow(2).sum()]).sum().b", "loss.b"),
        ("(sum(losses) + head.weight.pow(2).sum()).b", "loss.b"),
        ("total = sum(losses) + head.weight.pow(2).sum()\n    total.b", "loss.b"),
    ],
)
def test_what_goes_back_beside_the_losses_is_not_lost(sent: str, instead: str) -> None:
    cell = rewritten(SUM, ("total = 0", "losses = []"), ("total += loss", "losses.append(loss)"), ("total.b", sent))
    run = run_cells(START, cell)
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert not [fix.cells for fix in run.diagnosis.fixes if f"\n    {instead}" in fix.cells[2]]


LOG = """
    class Log:
        def __init__(self):
            self.values = []
        def add(self, value):
            self.values.append(value)
        def mean(self):
            return torch.stack(self.values).mean()
    """


def test_of_a_mean_that_a_method_gives_this_loss_goes_back() -> None:
    cell = rewritten(SUM, ("total = 0", "log = Log()"), ("total += loss", "log.add(loss)"), ("total.b", "log.mean().b"))
    fix = fix_by("detach", START, LOG, cell)
    log = rewritten(LOG, ("append(value)", "append(value.detach())"))
    assert fix.cells == {2: log, 3: rewritten(cell, ("log.mean().b", "loss.b"))}


def test_an_earlier_loss_that_was_not_meant_for_it_takes_a_value_without_its_history() -> None:
    fix = fix_by("detach", START, GAN)
    assert fix.cells == {2: rewritten(GAN, ("(score(made) - score", "(score(made.detach()) - score"))}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Tensor", "s.detach()"),
        ("list[tuple[Tensor]]", "[tuple(h.detach() for h in state) for state in s]"),
        ("sequence[Tensor]", "type(s)(*(h.detach() for h in s))"),
        ("mapping[Tensor]", "s | {key: h.detach() for key, h in s.items()}"),
        ("tuple(Tensor|-)", "(s[0].detach(), s[1])"),
        ("tuple(list[Tensor]|tuple(Tensor|-))", "([h.detach() for h in s[0]], (s[1][0].detach(), s[1][1]))"),
        ("list[tuple(Tensor|-)]", "[(state[0].detach(), state[1]) for state in s]"),
    ],
)
def test_every_shape_has_its_expression(kind: str, text: str) -> None:
    assert detached("s", kind) == text


def block(text: str) -> list[ast.stmt]:
    return ast.parse(textwrap.dedent(text)).body


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        pytest.param("x = y\nz = x", {"y"}, id="what a block makes itself it does not need"),
        pytest.param("for i in r:\n    x = i\nz = x", {"r"}, id="a loop is taken to run"),
        pytest.param("if c:\n    x = 1\nz = x", {"c", "x"}, id="one branch alone does not bind"),
        pytest.param("x += 1", {"x"}, id="an augmented assignment needs the old value"),
        pytest.param("s[0] = x", {"x"}, id="an item is written into what may hold more"),
    ],
)
def test_what_a_block_needs(text: str, needed: set[str]) -> None:
    assert live_in(block(text)) == needed


def test_what_a_value_was_made_from() -> None:
    body = block("a = f(x)\nb = g(y)\nlist.append(a)\nloss = h(list)\n")
    found, needed = slice_of(body, {"loss"})
    assert [ast.unparse(s) for s in found] == ["a = f(x)", "list.append(a)", "loss = h(list)"]
    assert "b" not in needed
    assert binds(body[2]) == {"list"}
    assert rebinds(body[2]) == set()


RATE = """
    class Rate(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.kept = nn.Linear(2, 1), torch.ones(1)

        def forward(self, g):
            self.kept = torch.sigmoid(self.fc(torch.stack([g.norm(), self.kept.squeeze()])))
            return self.kept

    rate = Rate()
    opt, x = torch.optim.SGD(rate.parameters(), lr=0.5), torch.randn(4, 3)
    """
STEERED = """
    for _ in range(2):
        w = torch.zeros(3).requires_grad_()
        for _ in range(2):
            g, = torch.autograd.grad((x @ w - 1).pow(2).mean(), w, create_graph=True)
            w = w - rate(g) * g
        loss = (x @ w - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_a_line_that_reads_what_it_binds_is_not_cut_there_for_the_sake_of_another_value_in_it() -> None:
    run = run_cells(START, RATE, STEERED)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.cells == {3: rewritten(STEERED, ("opt.step()", "opt.step()\n    rate.kept = rate.kept.detach()"))}


GUIDED = """
    x = torch.randn(3, requires_grad=True)
    for t in range(4):
        noise = torch.tanh(x * 2)
        loss = (noise + x).square().sum()
        loss.backward()
        x = x - 0.1 * noise - 0.1 * x.grad
    """


def test_what_an_iteration_makes_for_the_next_one_is_cut_off_behind_it_and_goes_on_to_require_gradients() -> None:
    fix = fix_by("detach", "import torch", GUIDED)
    line = "x = x - 0.1 * noise - 0.1 * x.grad"
    assert fix.cells == {2: rewritten(GUIDED, (line, f"{line}\n    x = x.detach().requires_grad_()"))}
    assert fix.verified and fix.gradients == "truncated"


def test_a_tensor_is_not_replaced_before_its_gradient_has_been_read() -> None:
    cell = """
        w, h, seen = torch.ones(3, requires_grad=True), torch.ones(3), []
        for t in range(3):
            h = torch.tanh(h * w)
            h.retain_grad()
            h.sum().backward()
            w.data -= 0.1 * w.grad
            seen.append(h.grad)
        """
    fix = fix_by("detach", "import torch", cell)
    line = "seen.append(h.grad)"
    assert fix.cells == {2: rewritten(cell, (line, f"{line}\n    h = h.detach().requires_grad_()"))}


CRITIC = """
    gen, critic = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt_c, opt_g = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (critic, gen))
    def penalty(real, fake):
        mix = 0.3 * real + 0.7 * fake
        g, = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
        return (g.norm(dim=1) - 1).square().mean()
    """
PENALISED = """
    for real in torch.randn(2, 5, 3):
        fake = gen(torch.randn(5, 2))
        loss = (critic(fake) - critic(real)).mean() + penalty(real, fake)
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        opt_g.zero_grad()
        (-critic(fake).mean()).backward()
        opt_g.step()
    """


def test_what_a_penalty_asks_a_gradient_of_goes_on_to_require_one_when_it_is_cut() -> None:
    run = run_cells(START, CRITIC, PENALISED)
    assert run.diagnosis is not None
    cut = ("(critic(fake) - critic(real)).mean() + penalty(real, fake)", "(critic(fake.detach()) - critic(real)).mean() + penalty(real, fake.detach().requires_grad_())")  # fmt: skip
    assert run.diagnosis.fixes[0].cells[3].rstrip() == rewritten(PENALISED, cut)


def test_so_it_does_where_the_penalty_stands_in_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, _, penalty = clean(CRITIC).partition("def penalty")
    (tmp_path / "penalties.py").write_text(
        f"import torch\ndef penalty{penalty}".replace("real, fake)", "critic, real, fake)")
    )
    monkeypatch.syspath_prepend(tmp_path)
    cell = PENALISED.replace("penalty(real", "penalty(critic, real")
    run = run_cells(START, above, f"from penalties import penalty\n{clean(cell)}")
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert (fix.rule, fix.gradients) == ("detach", "truncated")
    assert "penalty(critic, real, fake.detach().requires_grad_())" in fix.cells[3]


def test_a_plain_cut_is_left_plain_where_it_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slopes.py").write_text(
        "import torch\n"
        "def slope(net, x):\n"
        "    x = x.detach().requires_grad_()\n"
        "    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0].square().mean()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    cell = PENALISED.replace("penalty(real, fake)", "slope(critic, fake)")
    run = run_cells(START, clean(CRITIC).partition("def penalty")[0], f"from slopes import slope\n{clean(cell)}")
    assert run.diagnosis is not None
    assert "requires_grad_" not in run.diagnosis.fixes[0].cells[3]


MULTIPLIER = """
    net, lam = nn.Linear(3, 1), torch.ones(1, requires_grad=True)
    opt, opt_lam = torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.SGD([lam], lr=0.1)
    """
DUAL = """
    for x in torch.randn(3, 4, 3):
        bound = net.weight.norm() - 0.5
        loss = net(x).square().mean() + lam * bound
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        dual = -lam * bound
        opt_lam.zero_grad()
        dual.backward()
        opt_lam.step()
    """


def test_what_the_later_of_two_steps_does_not_train_is_given_to_its_loss_as_a_value() -> None:
    run = run_cells(START, MULTIPLIER, DUAL)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("detach", "same")
    assert "dual = -lam * bound.detach()" in first.cells[3]


LEARNED_STEPS = """
    rate = torch.full((), 0.1, requires_grad=True)
    opt = torch.optim.SGD([rate], lr=0.01)
    weights = {"w": torch.randn(3, requires_grad=True)}
    def stepped(weights, loss):
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        return {key: w - rate * g for (key, w), g in zip(weights.items(), grads)}
    """
META = """
    for x, y in torch.randn(3, 2, 3):
        weights = stepped(weights, (x @ weights["w"] - 1).square())
        loss = (y @ weights["w"] - 1).square()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_what_a_helper_asks_gradients_of_goes_on_to_require_them() -> None:
    fix = fix_by("detach", START, LEARNED_STEPS, META)
    line = '    weights["w"] = weights["w"].detach().requires_grad_()'
    assert fix.cells == {3: rewritten(META, ("    opt.step()", f"    opt.step()\n{line}"))}


SEVERAL = """
    gen = nn.Linear(2, 3)
    critics = [nn.Linear(3, 1), nn.Linear(3, 1)]
    opt_g, opt_d = torch.optim.SGD(gen.parameters(), lr=0.1), torch.optim.SGD([*critics[0].parameters(), *critics[1].parameters()], lr=0.1)
    """
GENERATOR_FIRST = """
    def judge(critic, fake):
        loss = critic(fake).square().mean()
        loss.backward()
        return loss.item()
    for _ in range(2):
        fake = gen(torch.randn(5, 2)).tanh()
        opt_g.zero_grad()
        (critics[0](fake) + critics[1](fake)).mean().neg().backward()
        opt_g.step()
        opt_d.zero_grad()
        print([judge(critic, fake) for critic in critics])
        opt_d.step()
    """


def test_what_several_backwards_add_up_for_one_step_is_cut_where_that_step_trains_nothing() -> None:
    run = run_cells(START, SEVERAL, GENERATOR_FIRST)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert (fix.rule, fix.gradients) == ("detach", "same")
    assert ".detach()" in fix.cells[3] and "critics[0](fake) + critics[1](fake)" in fix.cells[3]


def test_a_state_that_a_dict_holds_beside_lists_is_cut_alone() -> None:
    cell = """
        run = {"h": torch.zeros(2, 4), "seen": []}
        for x in torch.randn(3, 2, 3):
            run["h"] = cell_step(run, x)
            loss = head(run["h"]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            run["seen"].append(loss.item())
        """
    step = "def cell_step(run, x):\n    return cell(x, run['h'])"
    fix = fix_by("detach", START, step, cell)
    assert fix.gradients == "truncated"
    assert fix.cells == {3: rewritten(cell, ("    opt.step()\n", '    opt.step()\n    run["h"] = run["h"].detach()\n'))}


def test_a_target_that_neither_loss_is_to_train_is_cut_where_it_is_made() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        q1, q2, frozen = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)
        o1, o2 = torch.optim.SGD(q1.parameters(), 0.1), torch.optim.SGD(q2.parameters(), 0.1)
        def update(net, opt, x, y):
            loss = (net(x) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    cell = """
        for x in torch.randn(3, 4, 3):
            target = frozen(x) + 1
            update(q1, o1, x, target)
            update(q2, o2, x, target)
        """
    first = fixes(start, cell)[0]
    assert first.cells == {2: rewritten(cell, ("frozen(x) + 1", "(frozen(x) + 1).detach()"))}


def test_what_a_teacher_gives_whose_weights_no_optimizer_steps_is_a_value() -> None:
    made = """
        student, teacher = (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2))
        step = torch.optim.SGD(student.parameters(), lr=0.1)
        @torch.no_grad()
        def follow(a=0.9):
            for t, s in zip(teacher.parameters(), student.parameters()):
                t.mul_(a).add_(s, alpha=1 - a)
        """
    loop = """
        for x in torch.randn(3, 4, 3):
            wanted = teacher(x)
            loss = (student(x) - wanted).pow(2).mean()
            follow()
            step.zero_grad()
            loss.backward()
            step.step()
        """
    found = fixes(START, made, loop)
    assert found[0].cells == {3: rewritten(loop, ("- wanted)", "- wanted.detach())"))}


def test_a_loss_is_cut_once_behind_the_loop_that_steps_each_leaf() -> None:
    start = """
        import torch
        torch.manual_seed(0)
        ws = [torch.randn(3, 4).requires_grad_(), torch.randn(4, 1).requires_grad_()]
        opt = torch.optim.SGD(ws, lr=0.1)
        def model(x):
            return torch.tanh(x @ ws[0]) @ ws[1]
        """
    cell = """
        for x in torch.randn(3, 5, 3):
            opt.zero_grad()
            inner = model(x).pow(2).mean()
            grads = torch.autograd.grad(inner, ws, create_graph=True)
            with torch.no_grad():
                for i in range(len(ws)):
                    ws[i] -= 0.1 * grads[i]
            outer = model(x).exp().mean() + inner
            outer.backward()
            opt.step()
        """
    step = "            ws[i] -= 0.1 * grads[i]\n"
    assert fix_by("detach", start, cell).cells == {
        2: rewritten(cell, (step, f"{step}        inner = inner.detach()\n"))
    }


@pytest.mark.parametrize(
    ("define", "head", "change"),
    [
        pytest.param(
            """
            from itertools import accumulate
            def advance(state, x): return torch.tanh(x @ w + state @ u)
            def states(): yield from accumulate(xs, advance, initial=torch.zeros(2, 3))
            """,
            "for h in states():\n    if not h.requires_grad: continue\n    loss = h.square().mean()",
            ("state @ u", "state.detach() @ u"),
            id="the argument of a function that itertools calls",
        ),
        pytest.param(
            """
            means = [torch.tensor(1.0)]
            def add(v):
                last = means[-1]
                means.append(torch.lerp(last, v, 0.1))
                return means[-1]
            """,
            "for x in xs:\n    error = (x @ w @ u).square().mean()\n    loss = error / add(error)",
            ("torch.lerp(last,", "torch.lerp(last.detach(),"),
            id="a name that a function gives to the last of a list",
        ),
    ],
)
def test_a_value_is_cut_by_the_name_that_it_has_where_it_is_used(
    define: str, head: str, change: tuple[str, str]
) -> None:
    start = """
        import torch
        torch.manual_seed(0)
        w = (torch.randn(3, 3) * 0.3).requires_grad_(); u = (torch.randn(3, 3) * 0.3).requires_grad_()
        opt = torch.optim.SGD([w, u], lr=0.1); xs = torch.randn(3, 2, 3)
        """
    cell = f"{head}\n    opt.zero_grad(); loss.backward(); opt.step()"
    found = fixes(start, define, cell)
    assert (found[0].cells, found[0].gradients) == ({2: rewritten(define, change)}, "truncated")


@pytest.mark.parametrize(
    ("judged", "fooled", "compute"),
    [
        pytest.param("partial(judge, real, fake)", "partial(fool, real, fake)", "compute()", id="called by name"),
        pytest.param(
            "partial(judge, fake=fake)",
            "partial(fool, fake=fake)",
            "compute(real)",
            id="called with what it does not hold",
        ),
        pytest.param(
            "{'loss': partial(judge, real, fake)}",
            "{'loss': partial(fool, real, fake)}",
            "compute['loss']()",
            id="called as an item",
        ),
    ],
)
def test_an_argument_that_a_partial_holds_is_cut_in_the_function_that_has_it(
    judged: str, fooled: str, compute: str
) -> None:
    start = """
        from functools import partial
        import torch
        from torch import nn
        torch.manual_seed(0)
        G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        opt_g, opt_d = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (G, D))
        """
    define = f"""
        def judge(real, fake): return (D(fake) - D(real)).mean()
        def fool(real, fake): return -D(fake).mean()
        def jobs(real):
            fake = G(torch.randn(4, 2))
            return [(opt_d, {judged}), (opt_g, {fooled})]
        """
    cell = f"""
        real = torch.randn(4, 3)
        for opt, compute in jobs(real):
            opt.zero_grad(); loss = {compute}
            loss.backward()
            opt.step()
        """
    found = fixes(start, define, cell)
    assert (found[0].cells, found[0].gradients) == (
        {2: rewritten(define, ("D(fake) - ", "D(fake.detach()) - "))},
        "same",
    )


@pytest.mark.parametrize(
    ("function", "call"),
    [
        pytest.param(
            "def advance(state, x): return state.lerp(x, 0.5) @ w", "accumulate(xs, advance)", id="of two tensors"
        ),
        pytest.param(
            "def advance(scale): return accumulate(xs, lambda h, x: torch.tanh(x @ w + h @ u * scale))",
            "advance(2.0)",
            id="a lambda's",
        ),
        pytest.param(
            "class Cell:\n    def __call__(self, h): return torch.tanh(h @ w)\ncell = Cell()",
            "accumulate(xs, lambda h, x: x @ u + cell(h))",
            id="of an object that is called",
        ),
    ],
)
def test_no_other_argument_is_cut_for_that_of_a_function_which_is_handed_over(function: str, call: str) -> None:
    start = """
        from itertools import accumulate
        import torch
        torch.manual_seed(0)
        w = (torch.randn(2, 2) * 0.3).requires_grad_(); u = (torch.randn(2, 2) * 0.3).requires_grad_()
        xs = torch.randn(4, 2, 2)
        """
    cell = f"for h in {call}:\n    if h.requires_grad: h.square().sum().backward()"
    run = run_cells(start, function, cell)
    assert run.diagnosis is not None
    cut = [
        fix.cells
        for fix in run.diagnosis.fixes
        if any(f"{one}.detach()" in str(fix.cells) for one in ("x", "scale", "self"))
    ]
    assert not cut
