"""Rules for a graph that is used twice: summed losses, a kept graph, a forward in every iteration, accumulators."""

from __future__ import annotations

import pytest

from ..cells import run_cells
from .trying import fix_by, fixes, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 2)
    """
TWO = """
    out = net(x)
    a = out.exp().mean(); b = out.pow(2).mean()
    opt.zero_grad()
    a.backward()   # the first
    (0.5 * b).backward()
    opt.step()
    """
REUSED = """
    out = net(x)
    loss = out.exp().mean()
    loss.backward()
    loss = out.pow(2).mean()
    loss.backward()
    """
EACH = """
    out = net(x)
    losses = [out.exp().mean(), out.pow(2).mean()]
    for loss in losses:
        loss.backward()
    """
TWO_LISTS = """
    for _ in range(2):
        losses = []
        opt.zero_grad()   # as it is
        for batch in x.split(2):
            losses.append(net(batch).exp().mean())
        torch.stack(losses).mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(p.grad, alpha=0.1)
        opt.zero_grad()
        for batch in x.split(2):
            losses.append(net(batch).exp().mean())
        torch.stack(losses).mean().backward()
        opt.step()
    """
IN_HELPERS = """
    def add(bag, value):
        bag['loss'] += value
    def collect(bag, batch):
        for column in net(batch).t():
            add(bag, column.pow(2).mean())
    for _ in range(2):
        bag = {'loss': 0}
        opt.zero_grad(set_to_none=True); collect(bag, x)
        bag['loss'].backward()
        with torch.no_grad():
            for p in net.parameters(): p += 0.1 * p.grad
        opt.zero_grad(); collect(bag, x)
        bag['loss'].backward()
        opt.step()
    """
KEPT_BY_CLOSURE = """
    cell = nn.LSTMCell(2, 2)
    def carried():
        h, c = torch.zeros(1, 2), torch.zeros(1, 2)
        def window(xs):
            nonlocal h, c
            total = 0
            for x in xs.split(1):
                h, c = cell(x, (h, c))
                total = total + net(h).pow(2).mean()
            return total
        return window
    window = carried()
    for xs in x.split(2):
        window(xs).backward()
    """
IN_CLOSURE = """
    def attention():
        memory = None
        def attend(chunk):
            nonlocal memory
            q = net(chunk)
            before = 0. if memory is None else q * memory
            memory = q if memory is None else memory + q
            return before + q.tanh()
        return attend
    attend = attention()
    for chunk in x.split(2):
        attend(chunk).exp().mean().backward()
    """
IN_GENERATOR = """
    cell = nn.GRUCell(2, 2)
    def windows(xs):
        h, total = None, 0
        for i, x in enumerate(xs.split(1)):
            h = cell(x, h)
            total = total + net(h).pow(2).mean()
            if i % 2:
                yield total
                total = 0
    for loss in windows(x):
        loss.backward()
    """
IN_GLOBAL_DICT = """
    cell, memory = nn.GRUCell(2, 2), {"h": torch.zeros(1, 2)}
    def advance(mem, x):
        mem["h"] = cell(x, mem["h"])
        return net(mem["h"]).pow(2).mean()
    def train():
        for one in x.split(1):
            loss = advance(memory, one)
            loss.backward()
    train()
    """
ROWS = """
    y = net(x[0]).exp()
    rows = [torch.autograd.grad(row, net[0].weight)[0] for row in y]
    """
COLUMNS = """
    z = x.clone().requires_grad_()
    y = net(z).exp().sum(0)
    jacobian = []
    for column in y:
        z.grad = None
        column.backward()
        jacobian.append(z.grad)
    """
STEPS = """
    z = x.clone().requires_grad_()
    y = net(z).exp().sum(0)
    def step(column):
        column.backward()
        return z.grad
    for i in range(2):
        print(step(y[i]), z.grad)
    """
PRODUCT = """
    class Hessian:
        def __init__(self, loss, weight):
            self.weight = weight
            self.grad, = torch.autograd.grad(loss, weight, create_graph=True)
        def __matmul__(self, v):
            return torch.autograd.grad(self.grad, self.weight, v)[0]
    H = Hessian(net(x).exp().mean(), net[0].weight)
    v = torch.ones(3, 2)
    for _ in range(3):
        v = H @ v
    """
FORCES = """
    x.requires_grad_()
    energy = net(x).exp().sum()
    forces = torch.autograd.grad(energy, x)[0]
    loss = energy + forces.pow(2).sum()
    loss.backward()
    """
MULTIPLIER = """
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha_opt = torch.optim.Adam([log_alpha], lr=0.1)
    for _ in range(2):
        out = net(x)
        fit, penalty = out.pow(2).mean(), out.exp().mean()
        alpha = log_alpha.exp()
        penalty = alpha * (penalty - 2)
        alpha_opt.zero_grad()
        (-penalty).backward()
        alpha_opt.step()
        opt.zero_grad()
        (fit + penalty).backward()
        opt.step()
        print(penalty.item())
    """
DESCENT = """
    w = torch.ones(2, requires_grad=True)
    loss = (x * w).exp().mean()
    for _ in range(3):
        loss.backward()
        w.data -= 0.1 * w.grad
    """
METHOD = """
    w = torch.ones(2, requires_grad=True)
    loss = (x * w).exp().mean()
    def descend():
        loss.backward()
        w.data = w.data - 0.1 * w.grad
    descend()
    descend()
    """
BEFORE_LOOP = """
    h = net(x).exp()
    for target in torch.randn(3, 4, 2):
        loss = (h - target).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
IN_LOOP = """
    for target in torch.randn(3, 4, 2):
        opt.zero_grad()
        loss = (h - target).pow(2).mean()
        loss.backward()
    """
DETACHED = """
    h = net(x).exp()
    fixed = h.detach()
    for target in torch.randn(3, 4, 2):
        loss = (h - target).pow(2).mean() + (net(x) - fixed).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
SEQUENCE = """
    cell = nn.RNNCell(2, 2)
    opt = torch.optim.SGD(cell.parameters(), lr=0.1)
    for xs in torch.randn(2, 3, 4, 2):
        h = torch.zeros(4, 2)
        opt.zero_grad()
        for x_t in xs:
            h = cell(x_t, h)
            loss = (h - 1).pow(2).mean()
            loss.backward()
        opt.step()
    """
TWO_PASSES = """
    loss = 0.0
    for out in net(x):
        loss += out.exp().mean()
    loss.backward()
    opt.step()

    for out in net(x):
        loss += out.exp().mean()
    loss.backward()
    """
COLLECTED = """
    log_probs, rewards = [], []
    for episode in range(3):
        for s in x:
            d = torch.distributions.Categorical(logits=net(s))
            log_probs.append(d.log_prob(d.sample())); rewards.append(1.0)
        loss = -(torch.stack(log_probs) * torch.tensor(rewards)).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("rule", "cell"),
    [
        pytest.param(
            "sum_losses",
            EACH.replace("    loss.backward()", "    opt.zero_grad()\n        loss.backward()"),
            id="a loop that clears the gradients",
        ),
        pytest.param("sum_losses", REUSED, id="a loss whose name is bound anew in between cannot be added later"),
        pytest.param(
            "sum_losses",
            SEQUENCE.replace("        opt.step()", ""),
            id="losses over time that no step behind the loop is for",
        ),
        pytest.param(
            "sum_losses",
            SEQUENCE.replace("loss.backward()", "loss.backward(); print(cell.weight_ih.grad.norm())"),
            id="losses over time, each of whose gradients is read",
        ),
        pytest.param("retain", BEFORE_LOOP, id="a loop with a step in it keeps no graph"),
        pytest.param(
            "retain",
            EACH.replace("in losses:", "in losses[:1] * 2:"),
            id="one loss again and again would keep the graph for ever",
        ),
        pytest.param("retain", DESCENT, id="a loop that updates by hand would go on with the old values"),
        pytest.param("retain", METHOD, id="so would a method that updates behind its backward, called twice"),
        pytest.param("reset_accumulator", TWO, id="nothing is collected"),
    ],
)
def test_is_not_offered(rule: str, cell: str) -> None:
    assert rule not in rules(START, cell)


@pytest.mark.parametrize(
    ("rule", "cells", "changed", "changes", "gradients"),
    [
        pytest.param(
            "sum_losses",
            (TWO,),
            2,
            [("a.backward()   # the first\n", ""), ("(0.5 * b).backward()", "(a + 0.5 * b).backward()")],
            "same",
            id="two losses, one backward of their sum",
        ),
        pytest.param(
            "sum_losses",
            (TWO.replace("a.backward()", "torch.autograd.backward(a)"),),
            2,
            [("torch.autograd.backward(a)   # the first\n", ""), ("(0.5 * b).backward()", "(a + 0.5 * b).backward()")],
            "same",
            id="one of them through torch's function",
        ),
        pytest.param(
            "sum_losses",
            (EACH,),
            2,
            [("for loss in losses:\n    loss.backward()", "sum(losses).backward()")],
            "same",  # the name of the loop, which is gone, is read by nobody
            id="a loop that does nothing else",
        ),
        pytest.param(
            "sum_losses",
            (SEQUENCE,),
            2,
            [
                ("    for x_t in xs:", "    total = 0\n    for x_t in xs:"),
                ("        loss.backward()\n", "        total = total + loss\n    total.backward()\n"),
            ],
            "same",
            id="losses over time, for one step behind the loop",
        ),
        pytest.param(
            "retain", (TWO,), 2, [("a.backward()", "a.backward(retain_graph=True)")], "same", id="no step in between"
        ),
        pytest.param(
            "retain",
            ("out = net(x)\nout.exp().mean().backward()\n", "out.pow(2).mean().backward()\n"),
            2,
            [("backward()", "backward(retain_graph=True)")],
            "same",
            id="the first backward in a cell of its own",
        ),
        pytest.param(
            "retain",
            (ROWS,),
            2,
            [("net[0].weight)[0]", "net[0].weight, retain_graph=True)[0]")],
            "same",
            id="one graph, asked for one gradient after the other",
        ),
        pytest.param(
            "retain",
            (PRODUCT,),
            2,
            [("self.weight, v)", "self.weight, v, retain_graph=True)")],
            "same",
            id="asked through a method, in a loop elsewhere",
        ),
        pytest.param(
            "retain",
            (COLUMNS,),
            2,
            [("backward()", "backward(retain_graph=True)")],
            "same",
            id="a loop that takes each gradient by itself",
        ),
        pytest.param(
            "retain",
            (STEPS,),
            2,
            [("backward()", "backward(retain_graph=True)")],
            "same",
            id="a function of the person's own, called step, that steps nowhere",
        ),
        pytest.param(
            "recompute",
            (BEFORE_LOOP,),
            2,
            [("h = net(x).exp()\n", ""), ("    loss =", "    h = net(x).exp()\n    loss =")],
            "different",
            id="a forward before the loop goes into it",
        ),
        pytest.param(
            "recompute",
            (DETACHED,),
            2,
            [
                ("h = net(x).exp()\nfixed = h.detach()\n", ""),
                ("    loss =", "    h = net(x).exp()\n    fixed = h.detach()\n    loss ="),
            ],
            "different",
            id="what is made from it goes along, a cut too",
        ),
        pytest.param(
            "recompute",
            ("h = net(x).exp()\n", IN_LOOP),
            3,
            [("    loss =", "    h = net(x).exp()\n    loss =")],
            "same",
            id="a forward in an earlier cell stays there and is repeated",
        ),
        pytest.param(
            "recompute",
            (
                "out = net(x)\nloss = out.exp().mean()\n",
                "loss.backward()\nopt.step()\n",
                "loss.backward()\nopt.step()\n",
            ),
            4,
            [("loss.backward()", "out = net(x)\nloss = out.exp().mean()\nloss.backward()")],
            "different",
            id="a backward cell that runs again without its forward",
        ),
        pytest.param(
            "reset_accumulator",
            (TWO_PASSES,),
            2,
            [("opt.step()\n\n", "opt.step()\n\nloss = 0.0\n")],
            "different",
            id="a sum over two passes starts from what it started from",
        ),
        pytest.param(
            "reset_accumulator",
            (COLLECTED,),
            2,
            [("opt.step()", "opt.step()\n    log_probs.clear()\n    rewards.clear()")],
            "different",
            id="lists that were filled for one backward, all that belong together",
        ),
        pytest.param(
            "reset_accumulator",
            (TWO_LISTS,),
            2,
            [("    opt.zero_grad()\n    for batch", "    opt.zero_grad()\n    losses = []\n    for batch")],
            "different",
            id="a list that a loop fills for each of two backwards",
        ),
        pytest.param(
            "reset_accumulator",
            (IN_HELPERS,),
            2,
            [("    opt.zero_grad(); collect", "    opt.zero_grad(); bag['loss'] = 0; collect")],
            "different",
            id="what a helper's helper adds to",
        ),
        pytest.param(
            "detach",
            (KEPT_BY_CLOSURE,),
            2,
            [("nonlocal h, c\n", "nonlocal h, c\n        h, c = h.detach(), c.detach()\n")],
            "truncated",
            id="a state that a closure carries on is cut as the call begins",
        ),
        pytest.param(
            "detach",
            (
                KEPT_BY_CLOSURE.replace("torch.zeros(1, 2), torch.zeros(1, 2)", "None, None").replace(
                    "cell(x, (h, c))", "cell(x, (h, c) if h is not None else None)"
                ),
            ),
            2,
            [
                (
                    "nonlocal h, c\n",
                    "nonlocal h, c\n        if h is not None and c is not None:\n            h, c = h.detach(), c.detach()\n",
                )
            ],
            "truncated",
            id="where it has one",
        ),
        pytest.param(
            "detach",
            (
                KEPT_BY_CLOSURE.replace("h, c = torch.zeros(1, 2), torch.zeros(1, 2)", "h = c = None").replace(
                    "cell(x, (h, c))", "cell(x, (h, c) if h is not None else None)"
                ),
            ),
            2,
            [
                (
                    "nonlocal h, c\n",
                    "nonlocal h, c\n        if h is not None and c is not None:\n            h, c = h.detach(), c.detach()\n",
                )
            ],
            "truncated",
            id="where both have one",
        ),
        pytest.param(
            "detach",
            (IN_CLOSURE,),
            2,
            [
                (
                    "nonlocal memory\n",
                    "nonlocal memory\n        if memory is not None:\n            memory = memory.detach()\n",
                )
            ],
            "truncated",
            id="what a closure adds up from call to call is cut as the call begins",
        ),
        pytest.param(
            "detach",
            (IN_GENERATOR,),
            2,
            [("yield total\n", "yield total\n            h = h.detach()\n")],
            "truncated",
            id="what a generator carries on is cut as it is resumed",
        ),
        pytest.param(
            "detach",
            (IN_GLOBAL_DICT,),
            2,
            [("loss.backward()\n", "loss.backward()\n        memory['h'] = memory['h'].detach()\n")],
            "truncated",
            id="an item of a dict that a function does not own is cut, and the dict is not bound",
        ),
    ],
)
def test_is_proved(
    rule: str, cells: tuple[str, ...], changed: int, changes: list[tuple[str, str]], gradients: str
) -> None:
    fix = fix_by(rule, START, *cells)
    assert fix.cells == {changed: rewritten(cells[changed - 2], *changes)}
    assert fix.gradients == gradients


SPIKING = """
    class Leaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.mem = None

        def reset_mem(self):
            self.mem = None

        def forward(self, x):
            self.mem = x if self.mem is None else 0.9 * self.mem + x
            return torch.sigmoid(self.mem)

    spiking = nn.Sequential(nn.Linear(2, 3), Leaky())
    """
STEPS = """
    for batch in torch.randn(3, 5, 4, 2):
        # several time steps
        out = sum(spiking(x_t) for x_t in batch)
        loss = out.exp().mean()
        loss.backward()
    """


def test_a_reset_that_nobody_calls_is_called() -> None:
    fix = fix_by("reset_state", START, SPIKING, STEPS)
    assert fix.cells == {3: rewritten(STEPS, ("    out =", "    spiking[1].reset_mem()\n    out ="))}
    assert fix.gradients == "different" and fix.changes


@pytest.mark.parametrize(
    ("hold", "through"),
    [
        pytest.param("nn.ModuleList([Leaky(), Leaky()])", "layers.layers", id="in a list of modules"),
        pytest.param("[nn.Identity(), Leaky(), Leaky()]", "layers.layers", id="in a list"),
    ],
)
def test_the_states_of_modules_that_an_object_holds_are_reset(hold: str, through: str) -> None:
    layers = f"""
    class Layers:
        def __init__(self):
            self.layers = {hold}
        def __call__(self, x):
            for layer in self.layers:
                x = layer(net(x))
            return x
    layers = Layers()
    """
    steps = STEPS.replace("spiking", "layers")
    fix = fix_by("reset_state", START, SPIKING, layers, steps)
    reset = f"    for module in {through}:\n        if isinstance(module, Leaky):\n            module.reset_mem()\n"
    assert fix.cells == {4: rewritten(steps, ("    out =", f"{reset}    out ="))}


def test_a_dict_of_states_that_was_empty_is_emptied() -> None:
    cell = """
    memory = {}
    def leak(name, x):
        memory[name] = torch.tanh(net(x) + memory.get(name, 0))
        return memory[name]
    for x in torch.randn(3, 4, 2):
        out = leak("first", x) + leak("second", x)
        out.exp().mean().backward()
    """
    fix = fix_by("reset_state", START, cell)
    assert fix.cells == {2: rewritten(cell, ("    out =", "    memory.clear()\n    out ="))}


def test_a_state_that_an_outer_loop_lets_begin_anew_is_carried_on_within_it() -> None:
    epochs = """
        for epoch in range(2):
            spiking[1].reset_mem()
            for batch in torch.randn(3, 5, 4, 2):
                out = sum(spiking(x_t) for x_t in batch)
                out.exp().mean().backward()
        """
    found = fixes(START, SPIKING, epochs)
    assert found[0].gradients == "truncated" and "reset_state" not in [fix.rule for fix in found]


STORAGE = """
    class Storage:
        def __init__(self):
            self.reset()
        def reset(self):
            {reset}
    class Agent:
        def __init__(self):
            self.storage = Storage()
        def learn(self, x):
            for row in x:
                self.storage.loss.append(net(row).pow(2).mean()); self.storage.seen.append(1.0)
            torch.stack(self.storage.loss).sum().backward()
    agent = Agent()
    """


@pytest.mark.parametrize(
    "reset",
    [
        pytest.param("self.loss, self.seen = [], []", id="beside what has none"),
        pytest.param("for key in ('loss', 'seen'): setattr(self, key, [])", id="by name"),
    ],
)
def test_a_reset_that_the_constructor_calls_gives_more_than_what_holds_a_graph(reset: str) -> None:
    loop = "for epoch in range(3):\n    agent.learn(x)"
    found = fixes(START, STORAGE.format(reset=reset), loop)
    assert {3: "for epoch in range(3):\n    agent.storage.reset()\n    agent.learn(x)"} in [fix.cells for fix in found]


def test_a_reset_that_would_begin_a_counter_anew_as_well_comes_behind_the_cut() -> None:
    average = """
        class Average:
            def __init__(self):
                self.restart()
            def restart(self):
                self.value, self.count = torch.zeros(()), 0
            def update(self, loss):
                self.count += 1
                self.value = 0.9 * self.value + loss
                return self.value
        average = Average()
        """
    loop = """
        for row in x:
            loss = (net(row) * average.update(net(row).mean())).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    found = fixes(START, average, loop)
    assert "self.value.detach()" in found[0].diff, [fix.title for fix in found]


def test_a_state_that_another_cell_began_may_begin_as_there() -> None:
    begin = "h = torch.zeros(4, 2)\ndef learn(x):\n    global h\n    h = torch.tanh(net(x) + h)\n    h.sum().backward()"
    fix = fix_by("reset_state", START, begin, "for _ in range(3):\n    learn(x)")
    assert fix.cells == {3: "for _ in range(3):\n    h = torch.zeros(4, 2)\n    learn(x)"}


def test_a_reset_that_is_called_already_is_not_called_again() -> None:
    called = rewritten(STEPS, ("    loss =", "    spiking[1].reset_mem\n    loss ="))
    assert "reset_state" in rules(START, SPIKING, called)
    reset_too_late = STEPS.replace("in batch)", "in batch); Leaky.reset_mem(Leaky())")
    found = run_cells(START, SPIKING, reset_too_late).diagnosis
    assert found is not None
    assert not [fix for fix in found.fixes if "reset_mem()" in fix.title]


FADING = """
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.mem = None

        def forward(self, x):
            self.mem = x if self.mem is None else 0.9 * self.mem + x
            return torch.sigmoid(self.mem)

    fading = nn.Sequential(nn.Linear(2, 3), Memory())
    """


def test_a_state_that_starts_as_none_is_set_back_to_it() -> None:
    steps = STEPS.replace("spiking", "fading")
    fix = fix_by("reset_state", START, FADING, steps)
    assert fix.cells == {3: rewritten(steps, ("    out =", "    fading[1].mem = None\n    out ="))}
    assert fix.gradients == "different" and fix.changes


def test_a_state_that_starts_as_none_beside_others_is_set_back_to_it_as_well() -> None:
    beside = FADING.replace("self.mem = None", "self.rate, self.mem = 0.9, None").replace(
        "0.9 * self", "self.rate * self"
    )
    steps = STEPS.replace("spiking", "fading")
    assert fix_by("reset_state", START, beside, steps).title == "fading[1].mem = None"


@pytest.mark.parametrize(
    ("initial", "again"),
    [
        pytest.param("torch.zeros(4, 3)", "fading[1].mem = torch.zeros(4, 3)", id="a value"),
        pytest.param("self.begin(wide)", "fading[1].mem = fading[1].begin(wide)", id="a method, with what the cell has under that name"),
        pytest.param("self.begin(width)", "fading[1].mem = fading[1].begin(wide)", id="a method, with what the constructor was handed"),
    ],
)  # fmt: skip
def test_a_state_begins_as_its_constructor_has_it(initial: str, again: str) -> None:
    given = initial.partition("(")[2].rstrip(")") if "begin" in initial else "wide"
    memory = rewritten(
        FADING,
        ("__init__(self)", f"__init__(self, {given})"),
        ("self.mem = None", f"self.mem = {initial}"),
        ("x if self.mem is None else ", ""),
        ("    def forward", "    def begin(self, n):\n        return torch.zeros(n, 3)\n\n    def forward"),
        ("fading =", "wide = 4\nfading ="),
        ("Memory())", "Memory(wide))"),
    )
    steps = STEPS.replace("spiking", "fading")
    run = run_cells(START, memory, steps)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule == "detach"  # what it loses on the way is lost to every iteration
    found = [fix for fix in run.diagnosis.fixes if fix.rule == "reset_state"]
    assert [(fix.title, fix.gradients) for fix in found] == [(again, "different")]


CARRIED = """
    def train(batches):
        state, other = torch.zeros(4, 3), 0.5
        for x in batches:
            state = torch.tanh(net[0](x) + state)
            loss = state.pow(2).mean() * other
            loss.backward()
    train(torch.randn(3, 4, 2))
    """


def test_what_only_the_constructor_computes_is_no_state_that_begins_anew() -> None:
    once = """
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.log_scale = nn.Parameter(torch.zeros(1))
                self.scale = self.log_scale.exp()
            def forward(self, x):
                return x * self.scale
        scaled = Scaled()
        opt = torch.optim.SGD(scaled.parameters(), lr=0.1)
        """
    loop = "for x in torch.randn(3, 4):\n    scaled(x).sum().backward()\n    opt.step()"
    run = run_cells(START, once, loop)
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes] == ["recompute"]


BALANCED = """
    class Balance:
        def step(self, losses):
            self.each(losses)
        def each(self, losses):
            for loss in losses:
                loss.backward(retain_graph=False)
                for p in net.parameters():
                    p.grad = p.grad / p.grad.norm()
    balance = Balance()
    for _ in range(2):
        opt.zero_grad()
        out = net(x)
        losses = [out.exp().mean(), out.pow(2).mean()]
        balance.step(losses)
        opt.step()
    """


def test_a_graph_is_kept_for_losses_that_a_function_of_its_own_sends_back_one_by_one() -> None:
    fix = fix_by("retain", START, BALANCED)
    assert (fix.gradients, fix.title) == ("same", "loss.backward(retain_graph=True)")


LAZY = """
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.known = None
        def norm(self):
            GUARD
        def forward(self, x):
            return x * self.norm()
    scaled = Scaled()
    opt = torch.optim.SGD(scaled.parameters(), lr=0.1)
    """


@pytest.mark.parametrize(
    "guard",
    [
        pytest.param("if self.known is None:\n                self.known = self.scale.exp()\n            return self.known", id="set where it is missing"),
        pytest.param("if self.known is not None:\n                return self.known\n            self.known = self.scale.exp()\n            return self.known", id="given where it is there"),
    ],
)  # fmt: skip
def test_what_is_computed_where_there_is_nothing_yet_is_no_reset(guard: str) -> None:
    loop = "for x in torch.randn(3, 4):\n    scaled(x).sum().backward()\n    opt.step()"
    run = run_cells(START, LAZY.replace("GUARD", guard), loop)
    assert run.diagnosis is not None
    assert not any("norm()" in fix.title for fix in run.diagnosis.fixes)
    assert "scaled.known = None" in [fix.title for fix in run.diagnosis.fixes]


RECURRENT = """
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.h = nn.GRUCell(2, 2), None
        def cut(self):
            if self.h is not None:
                self.h = self.h.detach()
        def forward(self, x):
            self.h = self.cell(x, self.h)
            return self.h
    model = Recurrent()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    """


def test_a_reset_may_ask_whether_there_is_a_state() -> None:
    loop = "for x in torch.randn(3, 4, 2):\n    opt.zero_grad()\n    model(x).sum().backward()\n    opt.step()"
    run = run_cells(START, RECURRENT, loop)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].title == "model.cut()"


def test_a_name_begins_as_the_line_ahead_of_the_loop_has_it() -> None:
    both = CARRIED.replace("state, other = torch.zeros(4, 3), 0.5", "other = 0.5\n        state = torch.zeros(4, 3)")
    for cell, offered in ((CARRIED, False), (both, True)):
        run = run_cells(START, "net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())", cell)
        assert run.diagnosis is not None
        found = [fix.title for fix in run.diagnosis.fixes if fix.rule == "reset_state"]
        assert found == (["state = torch.zeros(4, 3)"] if offered else [])


def test_a_gradient_that_a_loss_is_made_from_is_meant_to_be_part_of_the_graph() -> None:
    run = run_cells(START, FORCES)
    assert run.diagnosis is not None
    assert [(f.rule, f.gradients, f.title) for f in run.diagnosis.fixes if f.rule == "retain"] == [
        ("retain", "different", "forces = torch.autograd.grad(energy, x, create_graph=True)[0]"),
        ("retain", "same", "forces = torch.autograd.grad(energy, x, retain_graph=True)[0]"),
    ]


SHARPNESS = """
    for _ in range(2):
        loss = net(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            moves = [0.5 * p.grad / p.grad.norm() for p in net.parameters()]
            for p, move in zip(net.parameters(), moves):
                p.add_(move)
        opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves):
                p.sub_(move)
        opt.step()
        opt.zero_grad()
    """


def test_a_backward_after_the_weights_were_moved_gets_a_forward_of_its_own() -> None:
    run = run_cells(START, SHARPNESS)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.rule == "recompute"
    assert first.cells[2].count("loss = net(x).pow(2).mean()\n    loss.backward()") == 1
    assert "retain" not in [fix.rule for fix in run.diagnosis.fixes]


def test_two_losses_that_a_helper_sends_back_keep_the_graph_in_the_helper() -> None:
    helper = """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
        def back(loss):
            loss.backward()
        """
    fix = fix_by("retain", helper, "y = net(torch.ones(3, 2))\nback(y[:, 0].pow(2).mean())\nback(y.exp().mean())")
    assert fix.cells == {1: rewritten(helper, ("backward()", "backward(retain_graph=True)"))}
    assert fix.gradients == "same"


FILLED = """
    for i in range(3):
        table[0, i] = x[0]
        table[0].pow(2).sum().backward()
    """


def test_a_table_that_is_filled_from_iteration_to_iteration_is_named_and_cut_off_although_nothing_was_saved() -> None:
    run = run_cells("import torch\ntable = torch.zeros(2, 3)\nx = torch.ones(3, requires_grad=True)", FILLED)
    assert run.diagnosis is not None
    conflict = run.diagnosis.conflicts[0]
    assert [place and place.line for place in (conflict.changed, conflict.saved, conflict.needed)] == [2, 2, 3]
    first = run.diagnosis.fixes[0]
    assert first.cells == {2: rewritten(FILLED, ("sum().backward()", "sum().backward()\n    table = table.detach()"))}
    assert first.gradients == "truncated"


def test_a_table_that_each_iteration_creates_anew_is_not_named_beside_what_is_needed_again() -> None:
    cell = """
        for i in range(3):
            table = torch.zeros(2, 3)
            table[0, i] = x[0]
            total = total + (table[0] * x).sum()
            total.backward()
        """
    run = run_cells("import torch\ntotal = 0\nx = torch.ones(3, requires_grad=True)", cell)
    assert run.diagnosis is not None
    assert [c.saved and c.saved.line for c in run.diagnosis.conflicts] == [4]


@pytest.mark.parametrize("shared", ["2 * (x + w)", "(x + w) / 3"])
def test_what_two_losses_share_may_save_a_number_alone(shared: str) -> None:
    start = f"import torch\nx, w = torch.ones(2), torch.ones(2, requires_grad=True)\nz = {shared}\na, b = (z**2).sum(), (z**3).sum()"
    run = run_cells(start, "a.backward()\nprint(w.grad)\nb.backward()")
    assert run.diagnosis is not None
    (clash, *_), (fix, *_) = run.diagnosis.conflicts, run.diagnosis.fixes
    assert clash.saved is not None and clash.saved.text == f"z = {shared}"
    assert fix.cells == {2: "a.backward(retain_graph=True)\nprint(w.grad)\nb.backward()"}
    assert fix.gradients == "same"


def test_a_factor_that_torch_holds_as_a_plain_number_may_be_gone_through_again() -> None:
    start = "import torch\ny = torch.ones(4, requires_grad=True)\nz = torch.trapezoid(y, dx=0.5)\na, b = z + 1, z + 2"
    run = run_cells(start, "a.backward()\nb.backward()\nloss = y.exp().sum()\nloss.backward()\nloss.backward()")
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule == "one_backward"
    assert all("a.backward()\nb.backward()" in fix.cells[2] for fix in run.diagnosis.fixes)


def test_items_under_keys_that_are_no_names_are_no_obstacle() -> None:
    start = "import torch\nw, losses = torch.ones(2, requires_grad=True), {}"
    cell = 'losses["a"] = w.exp().sum()\nlosses[0, 1] = w.sin().sum()\nlosses[0, 1].backward()\nlosses[0, 1].backward()'
    assert "retain" in rules(start, cell)


def test_what_is_no_longer_trained_is_no_fix_however_long_the_loop() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net, head, x = nn.Linear(3, 3), nn.Linear(3, 1), torch.randn(4, 3)
        opts = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (net, head)]
        feats = net(x).tanh()
        """
    cell = """
        for i in range(30):
            loss = head(feats).square().mean()
            for opt in opts:
                opt.zero_grad()
            loss.backward()
            for opt in opts:
                opt.step()
        """
    run = run_cells(start, cell)
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert all("feats = feats.detach()\nfor i" not in fix.cells.get(2, "") for fix in run.diagnosis.fixes)


@pytest.mark.parametrize(
    "filled",
    [
        pytest.param("self.h.copy_(torch.tanh(self.h + x))", id="written in place"),
        pytest.param('setattr(self, "h", torch.tanh(self.h + net[0].bias.sum() * x))', id="by setattr"),
    ],
)
def test_a_state_may_begin_anew_however_it_is_set(filled: str) -> None:
    keeps = f"""
        class Keeps(nn.Module):
            def __init__(self):
                super().__init__()
                self.w, self.h = nn.Parameter(torch.ones(3)), torch.zeros(3)
            def forward(self, x):
                x = self.w * x
                {filled}
                return self.h
        keeps = Keeps()
        """
    run = run_cells(START, keeps, "for x in torch.randn(3, 3):\n    keeps(x).sum().backward()")
    assert run.diagnosis is not None
    assert "keeps.h = torch.zeros(3)" in [fix.title for fix in run.diagnosis.fixes]


def test_a_graph_that_a_step_leaves_alone_may_be_kept_past_it() -> None:
    fix = fix_by("retain", START, MULTIPLIER)
    assert fix.cells == {2: rewritten(MULTIPLIER, ("(-penalty).backward()", "(-penalty).backward(retain_graph=True)"))}
    assert fix.gradients == "same"


def test_a_graph_may_be_kept_for_the_update_of_another_cell() -> None:
    actor = """
        actor, critic = nn.Linear(2, 3), nn.Linear(3, 1)
        a_opt, c_opt = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (actor, critic))
        features = actor(x).tanh()
        score = features.log_softmax(1)[:, 0]
        value = critic(features)[:, 0]
        """
    update = "c_opt.zero_grad()\n(value - 1).pow(2).mean().backward(); c_opt.step()"
    cell = "advantage = 1 - value\na_opt.zero_grad()\n(score * advantage).mean().backward()\na_opt.step()"
    first, *_ = fixes(START, actor, update, cell)
    kept = update.replace("backward()", "backward(retain_graph=True)")
    assert first.cells == {3: f"{kept}\nvalue = value.detach()"}
    assert (first.gradients, first.changes) == ("truncated", ("In[3] trains once more",))


def test_a_part_that_needs_its_own_old_value_is_not_repeated() -> None:
    assert not [fix.title for fix in fixes(START, MULTIPLIER) if "penalty.detach()" in fix.cells[2]]
