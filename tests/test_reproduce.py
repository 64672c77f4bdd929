"""A failure run again: what is known early is told early, and nothing of it depends on that."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inplace_magic import reproduce, sandbox
from inplace_magic.diagnosis import Diagnosis
from inplace_magic.options import Options
from inplace_magic.record import replay
from inplace_magic.sandbox import fork

from .cells import new_shell, run_in
from .sandboxes import needs_fork

SETUP = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
a, b = nn.Linear(4, 4), nn.Linear(4, 4)
opt_a, opt_b = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
x = torch.randn(3, 4)
"""
PROGRAMS = {
    "two updates": """
        for step in range(4):
            fake = a(x)
            judged = b(fake)
            loss_b = b(fake.detach()).pow(2).mean()
            loss_a = judged.mean()
            opt_b.zero_grad()
            loss_b.backward()
            opt_b.step()
            opt_a.zero_grad()
            loss_a.backward()
            opt_a.step()
    """,
    "a hidden state": """
        h = torch.zeros(3, 4)
        for step in range(5):
            h = torch.tanh(a(x) + b(h))
            opt_a.zero_grad()
            h.sum().backward()
            opt_a.step()
    """,
    "an activation": """
        for step in range(4):
            h = torch.sigmoid(a(x))
            h += 1
            opt_a.zero_grad()
            h.sum().backward()
            opt_a.step()
    """,
    "a leaf, and no optimizer": """
        for step in range(4):
            loss = a(x).pow(2).sum()
            loss.backward()
            a.weight -= 0.1 * a.weight.grad
            a.weight.grad.zero_()
    """,
    "nothing after the failure": """
        h = torch.sigmoid(a(x))
        h += 1
        h.sum().backward()
    """,
}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every cell counts as a long one. Gives whether there was more to come, for each answer of a copy."""
    monkeypatch.setattr(replay, "SHORT_WORK", 0)
    monkeypatch.setattr(replay, "EARLY_WORK", 0)
    monkeypatch.setattr(sandbox, "_cores", lambda: 2)
    more: list[bool] = []
    plain: Callable[..., Any] = fork.Child.outcome

    def outcome(*args: Any) -> Any:
        answer = plain(*args)
        more.append(answer.more)
        return answer

    monkeypatch.setattr(fork.Child, "outcome", outcome)
    return more


def report(cell: str, *setup: str) -> dict[str, Any]:
    shell = new_shell()
    cells = [SETUP, *setup, cell]
    diagnosis = run_in(shell, [textwrap.dedent(text).strip("\n") for text in cells]).diagnosis
    assert diagnosis is not None
    return {k: v for k, v in diagnosis.to_dict().items() if k not in ("id", "seconds")}


@needs_fork
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_report_is_the_same_wherever_the_rest_of_the_rerun_goes_on(
    name: str, hurried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = report(PROGRAMS[name])
    lines, rest = hurried[0], hurried[1:]
    assert lines and any(rest) == (name != "nothing after the failure")
    hurried.clear()
    monkeypatch.setattr(sandbox, "_cores", lambda: 1)
    assert report(PROGRAMS[name]) == beside
    assert not any(hurried)
    assert beside["fixes"]


@pytest.mark.usefixtures("hurried")
@needs_fork
def test_a_rerun_that_ends_at_an_effect_after_the_failure_has_told_what_it_saw() -> None:
    cell = f"{PROGRAMS['an activation'].rstrip()}\n            import os; os.fork()"
    found = report(cell)
    assert found["conflicts"][0]["changed"]["line"] == 3
    assert found["fixes"]


@pytest.mark.usefixtures("hurried")
@needs_fork
def test_a_file_written_after_the_failure_is_written_by_no_rerun(tmp_path: Path) -> None:
    cell = f"{PROGRAMS['an activation'].rstrip()}\n            open({str(tmp_path / 'log')!r}, 'a').write('a step')"
    found = report(cell)
    assert found["conflicts"][0]["changed"]["line"] == 3
    assert found["fixes"] and not found["notes"]
    assert not (tmp_path / "log").exists()


@pytest.mark.all_fixes
@pytest.mark.usefixtures("hurried")
def test_a_step_that_goes_behind_the_end_of_a_proof_is_not_called_the_same() -> None:
    """Both later losses add to the gradients that the moved step uses, which is seen only by whoever waits for it."""
    setup = """
        nets = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]

        def update(losses):
            for opt, loss in zip(opts, losses):
                opt.zero_grad()
                loss.backward(retain_graph=True)
                opt.step()
    """
    cell = """
        for step in range(3):
            h = a(x)
            h2 = torch.relu(h) @ a.weight
            losses = [net(h2).pow(2).mean() for net in nets]
            opt_a.zero_grad()
            h2.mean().backward(retain_graph=True)
            opt_a.step()
            update(losses)
    """
    fixes = {fix["rule"]: fix["gradients"] for fix in report(cell, setup)["fixes"]}
    assert fixes["detach"] == "same" and fixes.get("move_step") != "same"


LOAD = "%load_ext inplace_magic"
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 5, batch_first=True)
        self.hidden = None
    def forward(self, x):
        y, self.hidden = self.gru(x, self.hidden)
        return y.mean()
model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for one in torch.randn(3, 2, 3, 4):
    loss = model(one)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
CACHE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.kernel = nn.Parameter(torch.randn(4, 4)), None
    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.linalg.matrix_exp(self.weight)
        return (x @ self.kernel).mean()
model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def loaded_in_a_cell(*cells: str, earlier: float = 0.0) -> tuple[Any, Diagnosis | None]:
    """The session, and what is said, where the first cell loads the extension, as people do. ``earlier``: its cost."""
    shell = new_shell()
    shell.run_line_magic("unload_ext", "inplace_magic")
    run_in(shell, [LOAD])
    session = shell._inplace_magic_extension.session
    session.earlier = earlier
    return session, run_in(shell, list(cells)).diagnosis


def test_a_session_whose_first_cell_loads_the_extension_is_run_again_from_the_top() -> None:
    session, _ = loaded_in_a_cell(SETUP, MODEL, LOOP)
    plans = reproduce._plans(session, session.sources(4), 4, Options())
    assert plans[0].fresh and plans[0].cells == (1, 2, 3, 4)


def test_what_ran_before_the_extension_was_loaded_costs_at_most_what_the_process_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, _ = loaded_in_a_cell(SETUP)
    monkeypatch.setattr(time, "process_time", lambda: 1000.0)
    session.before_now()
    assert 500 < session.cost_of((1, 2)) < 1001
    assert session.cost_of((2,)) < 500
    monkeypatch.setattr(time, "process_time", lambda: 0.5)
    session.before_now()
    assert session.cost_of((1, 2)) < 0.5


@pytest.mark.parametrize("devices", [(), ("cuda",)], ids=str)
def test_the_start_of_a_device_does_not_keep_a_session_from_being_run_from_the_top(
    devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = loaded_in_a_cell(SETUP, MODEL, LOOP)
    session.busy[2] = 2.5
    monkeypatch.setattr(reproduce, "devices_in_use", lambda: devices)
    plans = reproduce._plans(session, session.sources(4), 4, Options())
    assert plans[0].fresh == bool(devices)
    session.busy[3] = 60.0
    plans = reproduce._plans(session, session.sources(4), 4, Options())
    assert not plans[0].fresh


def test_no_cut_of_what_is_none_at_first_where_the_session_holds_a_later_value() -> None:
    _, found = loaded_in_a_cell(SETUP, MODEL, LOOP, earlier=1e9)
    assert found is not None and found.fixes
    assert found.fixes[0].title == "model.hidden = model.hidden.detach()"
    assert not [fix.title for fix in found.fixes if "self.hidden.detach()" in fix.title]


def test_a_model_is_not_made_anew_where_the_fix_runs_without_that() -> None:
    shell = new_shell()
    run_in(shell, [SETUP, CACHE])
    shell._inplace_magic_extension.session.busy[2] = 3.0  # then it is not run from the top
    found = run_in(shell, [LOOP]).diagnosis
    assert found is not None and "if self.kernel is None" in found.fixes[0].title
    assert {fix.run for fix in found.fixes} == {(3,)}


def test_where_the_session_is_too_dear_what_changed_a_value_in_a_cell_of_its_own_is_found() -> None:
    made = "import torch\ns = torch.ones(3, requires_grad=True)\na = s.clone()\nout = a * a"
    _, found = loaded_in_a_cell(made, "other = torch.ones(2)", "a.add_(2)", "out.sum().backward()", earlier=1e9)
    assert found is not None and found.changed is not None and found.changed.cell == 4
    assert found.fixes


ENVIRONMENT = """
import torch, torch.nn as nn
torch.manual_seed(0)
start, policy = nn.Linear(4, 4), nn.Linear(4, 2)
class Env:
    def __init__(self): self.s = torch.zeros(4)
    def reset(self): self.s = torch.zeros(4) + start.bias
    def step(self, a):
        v = torch.tanh(self.s)
        self.s[:2] += v[:2] * a
        self.s[2:] = v[2:] - a
        return (self.s * v).sum()
env = Env()
"""


def test_what_changed_an_object_runs_again_with_what_made_it_and_no_gradient_is_cut_off_instead() -> None:
    rollout = "total = sum(env.step(policy(env.s.detach())) for _ in range(4))"
    found = run_in(new_shell(), [ENVIRONMENT, "env.reset()", rollout, "total.backward()"]).diagnosis
    assert found is not None and found.fixes
    assert {fix.run for fix in found.fixes} == {(1, 2, 3, 4)}
    assert not any(fix.live for fix in found.fixes)


def test_the_data_is_not_made_again_where_only_a_model_carries_the_failed_graph() -> None:
    data = "import torch, torch.nn as nn\ntorch.manual_seed(0)\nx = torch.randn(8, 3)"
    shell = new_shell()
    run_in(shell, [data, CACHED_WEIGHT, "net = Net()", "net(x).sum().item(); net.cache = None"])
    shell._inplace_magic_extension.session.busy[1] = 3.0
    planned: list[tuple[int, ...]] = []
    record = reproduce.Reproduction._record
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            reproduce.Reproduction,
            "_record",
            lambda self, plan, ours: planned.append(plan.cells) or record(self, plan, ours),
        )
        found = run_in(shell, ["for _ in range(2):\n    net(x).sum().backward()"]).diagnosis
    assert found is not None and found.fixes and found.changed is not None
    assert planned[-1] == (3, 4, 5)


CACHED_WEIGHT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.cache = nn.Parameter(torch.ones(3, 1)), None
    def forward(self, x):
        if self.cache is None:
            self.cache = self.weight.exp()
        return x @ self.cache
"""


STATEFUL = """
import torch, torch.nn as nn
torch.manual_seed(0)
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(4, 8), nn.Linear(8, 4)
    def forward(self, x, state=None):
        y, state = self.rnn(x, state)
        return self.out(y), state
model = M()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        opt.zero_grad()
        model(torch.randn(6, 2, 4))[0].pow(2).mean().backward()
        opt.step()
"""


LOOP_OF_STATES = """
state = None
for _ in range(4):
    out, state = model(torch.randn(6, 2, 4), state)
    opt.zero_grad()
    out.pow(2).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(["train(3)", LOOP_OF_STATES], id="a few in an earlier cell"),
        pytest.param(["train(30)", LOOP_OF_STATES], id="many in an earlier cell"),
        pytest.param([f"train(30)\n{LOOP_OF_STATES}"], id="many ahead of it in its own cell"),
    ],
)
def test_what_carries_the_graph_is_named_however_many_backwards_came_before(cells: list[str]) -> None:
    shell = new_shell()
    found = run_in(shell, [STATEFUL, *cells]).diagnosis
    assert found is not None and found.changed is not None and "out, state = model" in found.changed.text
    assert "state = tuple(h.detach() for h in state)" in found.fixes[0].diff


REPLAY = """
import random
import torch, torch.nn as nn
torch.manual_seed(0); random.seed(0)
enc, qnet = nn.Linear(3, 4), nn.Linear(4, 2)
opt = torch.optim.SGD([*enc.parameters(), *qnet.parameters()], lr=0.1)
class Replay:
    def __init__(self):
        self.buf = []
    def push(self, *item):
        self.buf.append(item)
"""
PLAY = """
for t in range(40):
    h = enc(torch.randn(1, 3))
    replay.push(h, torch.randn(1))
"""
LEARN = """
for _ in range(4):
    h, r = zip(*random.sample(replay.buf, 8))
    loss = (qnet(torch.cat(h)).max(1)[0] - torch.cat(r)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_what_an_earlier_cell_has_collected_is_kept_and_cut_off_where_it_is() -> None:
    shell = new_shell()
    run_in(shell, [REPLAY, "replay = Replay()", PLAY])
    shell._inplace_magic_extension.session.busy[3] = 3.0
    replay = shell.user_ns["replay"]
    found = run_in(shell, [LEARN]).diagnosis
    assert found is not None and found.fixes
    assert found.fixes[0].run == (4,)
    assert "is also applied to 40 existing objects" in str(found)
    assert run_in(shell, ["%autograd_fix --run"]).error is None
    assert shell.user_ns["replay"] is replay and len(replay.buf) == 40
    assert not any(h.requires_grad for h, _ in replay.buf)


CACHED = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.edge, self.lin, self.kept = nn.Parameter(torch.ones(3, 3)), nn.Linear(3, 3), None
    def forward(self, x):
        if self.kept is None:
            self.kept = torch.sigmoid(self.edge)
        return self.lin(self.kept @ x).mean()
"""
ADDED = """
model.kept = None
opt.add_param_group({"params": [model.edge]})
for _ in range(3):
    loss = model(torch.ones(3, 3))
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_cell_that_cannot_be_run_twice_is_not_run_and_nothing_is_made_anew_for_its_sake() -> None:
    shell = new_shell()
    made = "model = Graph()\nopt = torch.optim.SGD(model.lin.parameters(), lr=0.1)"
    run_in(shell, [CACHED, made, "before = model.lin.weight.detach().clone()"])
    shell._inplace_magic_extension.session.busy[2] = 3.0
    model = shell.user_ns["model"]
    found = run_in(shell, [ADDED]).diagnosis
    assert found is not None and found.fixes
    assert {fix.run for fix in found.fixes} == {(4,)}
    assert all("more than one parameter group" in fix.once for fix in found.fixes)
    done = run_in(shell, ["%autograd_fix --run"])
    assert done.error is None and "Nothing was run" in done.output
    assert shell.user_ns["model"] is model and len(shell.user_ns["opt"].param_groups) == 2
    again = "for _ in range(2):\n    model.kept = None\n    model(torch.ones(3, 3)).backward()"
    assert run_in(shell, [again]).error is None
