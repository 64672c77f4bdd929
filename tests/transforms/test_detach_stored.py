"""What is stored iteration after iteration is stored without its history, in whatever container."""

from __future__ import annotations

from pathlib import Path

import pytest

from inplace_magic.message import kind_of, message

from ..cells import run_cells
from .trying import fix_by, fixes, rewritten, rules

RULE = "detach"
START = """
    import torch
    from collections import defaultdict, deque
    from torch import nn
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
APPENDED = """
    class Bank:
        def __init__(self):
            self.rows = deque([torch.zeros(3)], maxlen=4)
        def push(self, row):
            self.rows.append(row)
    bank = Bank()
    """
EXTENDED = """
    class Bank:
        def __init__(self):
            self.rows = defaultdict(list, a=[torch.zeros(3)])
        def push(self, row):
            self.rows["a"].extend([row])
    bank = Bank()
    """
ASSIGNED = """
    class Bank:
        def __init__(self):
            self.rows = {0: torch.zeros(3)}
        def push(self, row):
            self.rows[len(self.rows)] = row + 1
    bank = Bank()
    """
ITERATIONS = """
    for x in torch.randn(3, 3):
        row = net(x).tanh()
        rows = bank.rows
        rows = rows["a"] if "a" in rows else rows.values() if isinstance(rows, dict) else rows
        loss = (row * sum(rows)).sum() + row.sum()
        bank.push(row)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("bank", "changes"),
    [
        pytest.param(APPENDED, ("append(row)", "append(row.detach())"), id="a deque"),
        pytest.param(EXTENDED, ("extend([row])", "extend([row.detach()])"), id="lists in a defaultdict"),
        pytest.param(ASSIGNED, ("= row + 1", "= (row + 1).detach()"), id="an item of a dict"),
    ],
)
def test_is_put_there_without_its_history(bank: str, changes: tuple[str, str]) -> None:
    fix = fix_by(RULE, START, bank, ITERATIONS)
    assert fix.cells == {2: rewritten(bank, changes)}
    assert fix.gradients == "truncated"


LATEST = """
    class Mixer:
        def __init__(self):
            self.seen = []
        def __call__(self, out):
            self.seen = [*self.seen[-2:], out]
            return sum(self.seen)
    mixer = Mixer()
    """
MIXED = """
    for x in torch.randn(4, 3):
        out = net(x)
        loss = mixer(out).square().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_the_name_of_this_iterations_value_is_not_cut_for_that_of_the_last_one() -> None:
    """``out`` held the old value once, and is another tensor by now."""
    fix = fix_by(RULE, START, LATEST, MIXED)
    new = "opt.step()\n    mixer.seen = [h.detach() for h in mixer.seen]"
    assert fix.cells == {3: rewritten(MIXED, ("opt.step()", new))}
    diagnosis = run_cells(START, LATEST, MIXED).diagnosis
    assert diagnosis is not None and diagnosis.conflicts[0].changed is not None
    assert diagnosis.conflicts[0].changed.cell == 2


def test_what_is_stored_without_a_history_is_left_alone() -> None:
    cut = APPENDED.replace("append(row)", "append(row.detach())")
    assert run_cells(START, cut, ITERATIONS).diagnosis is None
    other = ITERATIONS.replace("loss.backward()", "loss.backward(); loss.backward()")
    assert RULE not in rules(START, cut, other)


def test_an_object_that_kept_the_failed_graph_is_changed_once() -> None:
    keeps = """
        class Leak(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("v", torch.zeros(3))
                self.tau = nn.Parameter(torch.tensor(0.5))
            def reset(self):
                for buffer in self.buffers():
                    buffer.zero_()
            def forward(self, x):
                self.v = self.tau * self.v + x
                return self.v
        model = nn.Sequential(net, Leak())
        """
    loop = """
        for step in range(3):
            model[1].reset()
            loss = model(torch.ones(3)).square().sum()
            loss.backward()
        """
    fix = fix_by(RULE, START, keeps, loop)
    assert [change.text for change in fix.live] == ["model[1].v = model[1].v.detach()"]


def test_every_read_of_a_kept_value_in_a_line_is_cut() -> None:
    means = """
        class Means:
            def __init__(self):
                self.mean = torch.zeros(3)
            def update(self, x, known):
                self.mean = 0.9 * self.mean + 0.1 * (x.mean(0) if known else self.mean)
                return self.mean
        means = Means()
        """
    loop = """
        for step in range(3):
            loss = means.update(net(torch.ones(2, 3)), step < 9).square().sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fix_by(RULE, START, means, loop)
    new = "0.9 * self.mean.detach() + 0.1 * (x.mean(0) if known else self.mean.detach())"
    assert new in fix.cells[2]


ROWS = """
    class Rows:
        def __init__(self):
            self.rows, self.at = torch.zeros(4, 3), 0
        def push(self, row):
            if self.at == 4:
                self.at = 0
                self.rows[0] = row
            else:
                self.rows[self.at] = row
            self.at += 1
    bank = Rows()
    """
COMPARED = """
    for step in range(3):
        z = net(torch.ones(3))
        bank.push(z)
        loss = (z @ bank.rows.T).square().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_rows_of_a_tensor_that_is_kept_are_cut_once_the_step_is_done() -> None:
    fix = fix_by(RULE, START, ROWS, COMPARED)
    assert "bank.rows = bank.rows.detach()" in fix.cells[3]


def test_rows_that_a_network_is_trained_by_are_cut_after_the_step() -> None:
    updated = COMPARED.replace("z = net(torch.ones(3))", "z = torch.ones(3)").replace("push(z)", "push(net(z))")
    fix = fix_by(RULE, START, ROWS, updated)
    assert "bank.rows = bank.rows.detach()" in fix.cells[3]


KEEPS_ITS_STATE = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head, self.state = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 1), None
        def forward(self, x):
            out, self.state = self.rnn(x, self.state)
            return self.head(out[:, -1])
    model, data = Model(), torch.randn(3, 2, 5, 3)
    opt = torch.optim.Adam(model.parameters())
    """
TRAIN = """
    def train_epoch():
        total = 0
        for x in data:
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
            total += loss.item()
        return total
    for epoch in range(2): print(train_epoch())
    """


def test_a_state_of_several_tensors_that_begins_as_none_is_cut_in_the_inner_loop() -> None:
    fix = fix_by(RULE, START, KEEPS_ITS_STATE, TRAIN)
    assert fix.gradients == "truncated"
    line = "model.state = tuple(h.detach() for h in model.state)"
    assert fix.cells == {3: rewritten(TRAIN, ("opt.step()\n", f"opt.step()\n        {line}\n"))}


def test_the_model_cuts_it_where_a_library_has_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "site-packages" / "fits_models.py"
    library.parent.mkdir()
    library.write_text(
        "def fit(model, data, opt):\n"
        "    for x in data:\n"
        "        opt.zero_grad(); model(x).pow(2).mean().backward(); opt.step()\n"
    )
    monkeypatch.syspath_prepend(library.parent)
    fix = fix_by(RULE, START, KEEPS_ITS_STATE, "from fits_models import fit\nfit(model, data, opt)")
    line, cut = "out, self.state = self.rnn(x, self.state)", "self.state = tuple(h.detach() for h in self.state)"
    assert fix.cells == {2: rewritten(KEEPS_ITS_STATE, (line, f"{line}\n        {cut}"))}


REPLAY = """
    import random
    from collections import namedtuple
    random.seed(0)
    enc = nn.Linear(3, 3)
    opt = torch.optim.SGD([*net.parameters(), *enc.parameters()], lr=0.1)
    Step = namedtuple("Step", "state action reward")
    steps = []
    """
SAMPLED = """
    for t in range(12):
        state = enc(torch.randn(3)).tanh()
        {put}
        if len(steps) >= 4:
            chosen = random.sample(steps, 2)
            q = net(torch.stack([{read} for one in chosen]))
            loss = (q.max(1)[0] - torch.tensor([{reward} for one in chosen])).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """


@pytest.mark.parametrize(
    ("put", "read", "reward", "cut"),
    [
        pytest.param("steps.append((state, t, 0.5))", "one[0]", "one[2]", "steps = [(state[0].detach(), state[1], state[2]) for state in steps]", id="a tuple"),
        pytest.param("steps.append({'s': state, 't': t, 'r': 0.5})", "one['s']", "one['r']", "steps.append({'s': state.detach(), 't': t, 'r': 0.5})", id="a dict"),
        pytest.param("steps.append(Step(state, t, 0.5))", "one.state", "one.reward", "steps.append(Step(state.detach(), t, 0.5))", id="a named tuple"),
    ],
)  # fmt: skip
def test_of_what_a_replay_memory_keeps_the_parts_with_a_history_are_cut(
    put: str, read: str, reward: str, cut: str
) -> None:
    run = run_cells(START, REPLAY, SAMPLED.format(put=put, read=read, reward=reward))
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes if fix.rule == "reset_accumulator"] == []  # no memory is emptied
    assert cut in run.diagnosis.fixes[0].cells[3]


TRANSITIONS = """
    for episode in range(3):
        state = enc(torch.randn(3)).tanh()
        for _ in range(4):
            following = enc(torch.randn(3)).tanh()
            steps.append((state, 0.5, following))
            state = following
        states, rewards, _ = zip(*steps[1::2])
        loss = (net(torch.stack(states)).max(1)[0] - torch.tensor(rewards)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_so_is_a_memory_whose_items_share_a_state_with_the_next() -> None:
    run = run_cells(START, REPLAY, TRANSITIONS)
    assert run.diagnosis is not None
    assert "reset_accumulator" not in [fix.rule for fix in run.diagnosis.fixes]
    cuts = [fix for fix in run.diagnosis.fixes if fix.rule == "detach"]
    assert "steps = [(state[0].detach(), state[1], state[2].detach()) for state in steps]" in cuts[0].cells[3]


def test_of_two_cuts_the_one_comes_first_that_leaves_the_backwards_ahead_of_the_conflict_as_they_are() -> None:
    """What is put into the bank is read in the same iteration, too: put there without its history it would train less."""
    bank = """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        class Bank:
            def __init__(self):
                self.means = {}
            def update(self, z, k):
                mean = z.mean(0)
                if k in self.means:
                    mean = 0.8 * self.means[k] + 0.2 * mean
                self.means[k] = mean
        bank = Bank()
        """
    cell = """
        for x in torch.randn(4, 5, 3):
            z = net(x)
            bank.update(z, "a")
            loss = (z - bank.means["a"]).pow(4).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    assert fixes(bank, cell)[0].title == "mean = 0.8 * self.means[k].detach() + 0.2 * mean"


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        pytest.param(
            "def step(x):\n    step.state = cell(x, step.state)\n    return step.state[0]\nstep.state = start()",
            "step.state = cell(x, tuple(h.detach() for h in step.state))",
            id="an attribute of a function",
        ),
        pytest.param(
            "def step(x, kept=[start()]):\n    h, c = cell(x, kept[0])\n    kept[0] = h, c\n    return h",
            ".detach()",
            id="the default of an argument",
        ),
    ],
)
def test_a_state_that_a_function_keeps_is_cut(define: str, expected: str) -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        cell = nn.LSTMCell(2, 3)
        opt = torch.optim.SGD(cell.parameters(), lr=0.1)
        def start():
            return torch.zeros(4, 3), torch.zeros(4, 3)
        """
    loop = "for x in torch.randn(3, 4, 2):\n    loss = step(x).pow(2).mean()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()"
    run = run_cells(start, define, loop)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("detach", "truncated")
    assert expected in first.diff


BUFFER = """
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor([-1.0, 0.0]))
        def forward(self, x):
            out, scale = net(x).exp(), self.scale[0]
            if scale < 0:
                self.scale[0] = out.mean() + 1
                scale = self.scale[0].clone().detach()
            return out / scale
    norm = Norm()
    """
BATCHES = """
    for x in torch.randn(3, 4, 3):
        opt.zero_grad()
        norm(x).mean().backward()
        opt.step()
    """


def test_a_buffer_keeps_values_alone() -> None:
    first = fixes(START, BUFFER, BATCHES)[0]
    assert first.cells == {2: rewritten(BUFFER, ("= out.mean() + 1", "= (out.mean() + 1).detach()"))}


@pytest.mark.parametrize("items", [2, 9])
def test_an_item_of_a_dict_that_gives_it_as_an_attribute_is_found(items: int) -> None:
    define = f"""
        class Batch(dict):
            __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__
        batch = Batch({{f"k{{i}}": torch.ones(3) for i in range({items})}})
        batch.memory = torch.zeros(3, 3)
        """
    loop = """
        for i in range(3):
            loss = net(batch.memory[i].clone()).tanh().sum()
            opt.zero_grad()
            loss.backward()
            if i < 2: batch.memory[i + 1] = net(batch.memory[i].clone()).tanh()
            opt.step()
        """
    fix = fix_by(RULE, START, define, loop)
    assert fix.cells == {3: rewritten(loop, ("loss = net(batch.memory[i].", "loss = net(batch.memory[i].detach()."))}


LEARNED = """
    rates = nn.Linear(1, 1, bias=False)
    opt = torch.optim.SGD(rates.parameters(), lr=0.01)
    class Weights:
        def __init__(self):
            self.values = [torch.ones(3, requires_grad=True), torch.ones(1, requires_grad=True)]
    class Learner:
        def __init__(self, net):
            self.net = net
        def step(self, grads):
            new = []
            for i, (w, g) in enumerate(zip(self.net.values, grads)):
                new.append(w - rates.weight[0, 0] * g)
            self.net.values = new
    weights = Weights()
    learner = Learner(weights)
    """
LEARN = """
    for x in torch.randn(4, 5, 3):
        loss = (x @ weights.values[0] + weights.values[1]).pow(2).mean()
        for w in weights.values: w.retain_grad()
        opt.zero_grad()
        loss.backward()
        grads = [w.grad.clone() for w in weights.values]
        opt.step()
        learner.step(grads)
    """


def test_items_of_what_another_object_keeps_are_cut_by_the_name_that_a_loop_gives_them() -> None:
    fix = fix_by(RULE, START, LEARNED, LEARN)
    assert fix.cells == {2: rewritten(LEARNED, ("append(w - ", "append(w.detach() - "))}


def test_a_cut_ahead_of_a_use_says_that_it_takes_from_the_same_step_and_one_of_the_old_value_does_not() -> None:
    norm = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean, self.var = torch.zeros(4), torch.ones(4)
            def forward(self, x):
                self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
                self.var = 0.9 * self.var + 0.1 * x.var(0)
                return (x - self.mean) / (self.var + 1e-5).sqrt()
        net = nn.Sequential(nn.Linear(3, 4), Norm(), nn.ReLU(), nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """
    cell = """
        for _ in range(3):
            loss = net(torch.randn(8, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    said = {fix.title: [kind_of(change) for change in fix.changes] for fix in fixes(norm, cell)}
    assert said["self.mean = 0.9 * self.mean.detach() + 0.1 * x.mean(0)"] == []
    assert said["self.mean = self.mean.detach()"] == ["change_cuts_within"]


def test_a_moving_average_is_cut_behind_the_update() -> None:
    policy = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Policy:
            def __init__(self):
                self.net, self.avg = nn.Linear(2, 1), 0.0
            def score(self, x):
                reward = self.net(x).mean()
                self.avg = 0.9 * self.avg + 0.1 * reward
                return reward - self.avg
        policy = Policy()
        opt = torch.optim.SGD(policy.net.parameters(), lr=0.1)
        """
    cell = """
        for i in range(3):
            loss = policy.score(torch.ones(3, 2) * i)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    first = fixes(policy, cell)[0]
    assert (first.title, first.gradients, first.changes) == ("policy.avg = policy.avg.detach()", "truncated", ())


def test_a_state_that_a_closure_keeps_in_a_list_is_cut_where_it_is_set() -> None:
    define = """
        rnn = nn.LSTM(3, 3)
        def stateful(model):
            memory = [None]
            def predict(x):
                y, memory[0] = model(x, memory[0])
                return y
            return predict
        predict = stateful(rnn)
        """
    loop = """
        for x in torch.randn(3, 2, 1, 3):
            predict(x).square().sum().backward()
        """
    fix = fix_by(RULE, START, define, loop)
    line = "y, memory[0] = model(x, memory[0])"
    behind = f"{line}\n        memory[0] = tuple(h.detach() for h in memory[0])"
    assert fix.cells == {2: rewritten(define, (line, behind))}


@pytest.mark.parametrize(
    ("keep", "loop", "change"),
    [
        pytest.param(
            """
            class Window:
                def __init__(self): self.values = []
                def __call__(self, value):
                    self.values.append(value)
                    self.values = self.values[-3:]
                    return sum(self.values) / len(self.values)
            smooth = Window()
            """,
            "loss = score(x); level = smooth(loss)",
            ("self.values.append(value)", "self.values.append(value.detach())"),
            id="an object that is called",
        ),
        pytest.param(
            """
            class Window:
                def __init__(self): self.values = []
                def __call__(self, value):
                    self.values.append(value)
                    last = self.values[-3:]
                    return sum(last) / len(last)
            smooth = Window()
            """,
            "loss = score(x); level = smooth(loss)",
            ("self.values.append(value)", "self.values.append(value.detach())"),
            id="an object that takes the last of them",
        ),
        pytest.param(
            """
            def averaged():
                last, mean = deque(maxlen=3), None
                while True:
                    value = yield mean
                    last.append(value)
                    mean = torch.stack(tuple(last)).mean()
            stream = averaged()
            next(stream)
            """,
            "loss = score(x); level = stream.send(loss)",
            ("last.append(value)", "last.append(value.detach())"),
            id="a generator that is sent to",
        ),
        pytest.param(
            """
            def smoothed(function):
                kept = []
                def inner(*given):
                    raw = function(*given)
                    kept.append(raw)
                    return raw, sum(kept) / len(kept)
                return inner
            score = smoothed(score)
            """,
            "loss, level = score(x); best = loss",
            ("kept.append(raw)", "kept.append(raw.detach())"),
            id="a decorator, beside the loss",
        ),
    ],
)
def test_of_a_mean_of_kept_losses_the_loss_itself_goes_back(keep: str, loop: str, change: tuple[str, str]) -> None:
    start = """
        from collections import deque
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Linear(3, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def score(x): return net(x).square().mean()
        """
    cell = f"""
        for x in torch.randn(3, 4, 3):
            {loop}
            opt.zero_grad(); level.backward(); opt.step()
        """
    fix = fix_by(RULE, start, keep, cell)
    assert fix.cells == {2: rewritten(keep, change), 3: rewritten(cell, ("level.backward()", "loss.backward()"))}
    assert fix.gradients == "truncated"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            "return sum(self.values) / len(self.values) + 0.1 * net.weight.square().sum()", id="a term beside"
        ),
        pytest.param(
            "mean = sum(self.values) / len(self.values)\n                return mean * (-1) ** (len(self.values) - 1)",
            id="its sign",
        ),
        pytest.param("return torch.stack(self.values).max()", id="the worst of them"),
        pytest.param("first = self.values[:1]\n                return sum(first) / len(first)", id="the first of them"),
        pytest.param("some = self.values[::2]\n                return sum(some) / len(some)", id="every other one"),
        pytest.param("return 2 * value - torch.stack(self.values).mean()", id="a baseline"),
        pytest.param(
            "mean = torch.stack(self.values).mean()\n                if len(self.values) > 1: mean = mean + 0.5 * net.weight.abs().sum()\n"
            "                return mean",
            id="a term beside that comes later",
        ),
    ],
)
def test_what_a_call_gives_that_is_no_mean_of_kept_losses_is_not_lost(given: str) -> None:
    start = f"""
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Linear(3, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
        class Window:
            def __init__(self): self.values = []
            def __call__(self, value):
                self.values.append(value)
                {given}
        smooth = Window()
        """
    cell = """
        for x in torch.randn(3, 4, 3):
            loss = net(x).square().mean()
            level = smooth(loss)
            opt.zero_grad(); level.backward(); opt.step()
        """
    found = fixes(start, cell)
    assert found and not [fix.cells for fix in found if "loss.backward()" in fix.cells.get(2, "")]


def test_of_two_cuts_of_a_state_the_one_comes_first_that_leaves_each_window_its_gradients() -> None:
    define = """
        from collections import deque
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Online(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.out = nn.GRUCell(1, 4), nn.Linear(4, 1)
                self.state, self.losses = torch.zeros(1, 4), deque(maxlen=3)
                self.opt = torch.optim.SGD(self.parameters(), lr=0.1)
            def observe(self, x, y):
                self.state = self.rnn(x, self.state)
                self.losses.append((self.out(self.state) - y).square().mean())
                if len(self.losses) == 3:
                    self.update()
            def update(self):
                self.opt.zero_grad()
                sum(self.losses).backward()
                self.opt.step()
        model = Online(); xs = torch.randn(7, 1, 1)
        """
    cell = """
        for i in range(6):
            model.observe(xs[i], xs[i + 1])
        """
    found = fixes(define, cell)
    cut, text = (message("change_cuts_sooner"),), "self.state = self.state.detach()"
    assert text in found[0].cells[1] and found[0].gradients == "truncated" and cut != found[0].changes
    sooner = [fix.changes for fix in found if text.replace("self.", "model.") in fix.cells.get(2, "")]
    assert sooner == [cut]


def test_of_two_losses_that_one_object_keeps_none_is_lost() -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Linear(3, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
        class Window:
            def __init__(self): self.values = []
            def __call__(self, value):
                self.values.append(value)
                return sum(self.values) / len(self.values)
        smooth = Window()
        """
    cell = """
        for x in torch.randn(3, 4, 3):
            loss = net(x).square().mean()
            level = smooth(loss)
            other = net(x).abs().mean()
            level = smooth(other)
            opt.zero_grad(); level.backward(); opt.step()
        """
    found = fixes(start, cell)
    assert found and not [fix.cells for fix in found if "level.backward()" not in fix.cells.get(2, "level.backward()")]


@pytest.mark.parametrize(
    ("taken", "last"),
    [
        pytest.param("losses[-2:]", True, id="the last two"),
        pytest.param("losses[max(0, len(losses) - 2):]", True, id="the last two, counted"),
        pytest.param("list(losses)", True, id="all, in a list of its own"),
        pytest.param("losses[::-1]", True, id="all, the last one first"),
        pytest.param("losses[-3:-1] + [loss]", True, id="those before it, and itself"),
        pytest.param("[losses[0], losses[len(losses) // 2]]", False, id="some by their numbers"),
        pytest.param("losses[:2]", False, id="the first two"),
        pytest.param("losses[::2]", False, id="every other one"),
        pytest.param("sorted(losses, key=lambda one: -one.item())[:2]", False, id="the worst two"),
    ],
)
def test_a_mean_of_some_losses_is_the_loss_where_the_last_one_is_among_them(taken: str, last: bool) -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net, losses = nn.Linear(3, 1), []; opt = torch.optim.SGD(net.parameters(), lr=0.1)
        """
    cell = """
        for x in torch.randn(4, 4, 3):
            loss = net(x).square().mean()
            losses.append(loss)
            MEAN
            opt.zero_grad(); mean.backward(); opt.step()
        """
    for mean in (f"some = {taken}; mean = torch.stack(some).mean()", f"mean = torch.stack({taken}).mean()"):
        cut = [fix for fix in fixes(start, cell.replace("MEAN", mean)) if "loss.backward()" in fix.cells.get(2, "")]
        assert bool(cut) is last, mean
