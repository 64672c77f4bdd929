"""A fault of ours costs one line; the user's traceback, error and session stand."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from inplace_magic.transforms import registry
from tests.cells import run_cells, run_in
from tests.fingerprints import Fingerprint
from tests.sandboxes import SANDBOXES, needs_fork, needs_replica

SETUP = "import torch\nw = torch.ones(3, requires_grad=True)\nkept = [1, 2]"
BODY = "x = w.exp()\nx += 1\nx.sum().backward()"


class Fault(Exception):
    pass


def boom(*args: Any, **kwargs: Any) -> Any:
    raise Fault("a fault of ours,\nin two lines")


STAGES = [
    pytest.param("inplace_magic.pipeline", "diagnose", id="the pipeline"),
    pytest.param("inplace_magic.pipeline", "conflicts", id="the explanation"),
    pytest.param("inplace_magic.pipeline", "relevant", id="the choice of conflicts"),
    pytest.param("inplace_magic.show", "Showing.finish", id="the display"),
    pytest.param("inplace_magic.report.text", "render", id="the report's text"),
    pytest.param("inplace_magic.sandbox", "Sandbox.closed", id="the door"),
    pytest.param("inplace_magic.sandbox", "Sandbox.run", id="the sandbox"),
]


@pytest.mark.parametrize(("module", "name"), STAGES)
def test_one_line_says_so_and_all_else_stands(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_cells(SETUP)
    put_a_fault(monkeypatch, module, name)
    failed = run_in(done.shell, [BODY])
    assert isinstance(failed.error, RuntimeError) and "modified by an inplace operation" in str(failed.error)
    ours = [line for line in failed.output.splitlines() if line.startswith("inplace_magic")]
    assert len(ours) == 1 and "Fault" in ours[0]
    assert run_in(done.shell, ["assert kept == [1, 2]\ny = 1"]).error is None
    monkeypatch.undo()
    assert "broke the backward pass" in run_in(done.shell, [BODY]).output


@pytest.mark.parametrize(
    ("module", "name"),
    [
        pytest.param("inplace_magic.record.replay", "run", id="the replay"),
        pytest.param("inplace_magic.record.recorder", "Recorder.__enter__", id="the recorder"),
        pytest.param("inplace_magic.gradients.backward", "digest", id="the gradients"),
    ],
)
def test_a_fault_inside_the_copy_leaves_the_report_without_a_rerun(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_cells(SETUP)
    owner: Any = importlib.import_module(module)
    *path, attribute = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, attribute, boom)
    failed = run_in(done.shell, [BODY])
    assert isinstance(failed.error, RuntimeError)
    assert "broke the backward pass" in failed.output
    assert failed.diagnosis is not None and not any(fix.verified for fix in failed.diagnosis.fixes)


def test_a_transformation_that_crashes_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(problem: Any) -> Any:
        raise Fault

    monkeypatch.setattr(registry, "passed_over", lambda name: None)
    monkeypatch.setitem(registry.TRANSFORMS, crashes, frozenset({"modified"}))
    done = run_cells(SETUP, BODY)
    assert done.diagnosis is not None and done.diagnosis.fixes[0].cells == {
        2: BODY.strip().replace("x += 1", "x = x + 1")
    }


@pytest.mark.parametrize(("door", "said"), [("telling", "you stopped it"), ("run", "Interrupted")])
def test_ctrl_c_while_we_work_is_not_an_error_of_the_session(
    monkeypatch: pytest.MonkeyPatch, door: str, said: str
) -> None:
    from inplace_magic.sandbox import Sandbox

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    done = run_cells(SETUP)
    monkeypatch.setattr(Sandbox, door, interrupted)
    failed = run_in(done.shell, [BODY])
    assert isinstance(failed.error, RuntimeError)
    assert said in " ".join(failed.output.split())


# ---- every stage, in both rooms, and the session as it was ------------------------------------------------------------

MUCH = """
import torch
from torch import nn
w = torch.ones(3, requires_grad=True)
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True))
adam = torch.optim.Adam(net.parameters())
net(torch.randn(4, 3)).sum().backward(); adam.step()
items, table = [1, [2]], {"a": w}
"""
FAIL = "items.append(3); net(torch.randn(4, 3)).sum().backward(); adam.step()\nx = w.exp()\nx += 1\nx.sum().backward()"
# Where a fault is put: (module, name). What follows it must be a report, with or without fixes, or one line of ours.
EVERYWHERE = [
    ("inplace_magic.session.history", "Session.sources"),
    ("inplace_magic.pipeline", "diagnose"),
    ("inplace_magic.reproduce", "_plans"),
    ("inplace_magic.reproduce", "_told"),
    ("inplace_magic.reproduce", "Reproduction.rerun"),
    ("inplace_magic.pipeline", "_Inquiry._bench"),
    ("inplace_magic.pipeline", "look"),
    ("inplace_magic.pipeline", "conflicts"),
    ("inplace_magic.pipeline", "Problem"),
    ("inplace_magic.pipeline", "Diagnosis"),
    ("inplace_magic.sandbox.work", "contained"),
    ("inplace_magic.sandbox.work", "make_private"),
    ("inplace_magic.sandbox.side_effects.containment", "replacements"),
    ("inplace_magic.sandbox.side_effects.containment", "_hook"),
    ("inplace_magic.record.replay", "prepare"),
    ("inplace_magic.record.run_cells", "replay_cell"),
    ("inplace_magic.record.replay", "Names"),
    ("inplace_magic.record.replay", "records_of"),
    ("inplace_magic.record.recorder", "Recorder.__init__"),
    ("inplace_magic.record.recorder", "Recorder.__enter__"),
    ("inplace_magic.record.recorder", "Recorder.__exit__"),
    ("inplace_magic.record.recorder", "Recorder.around_backward"),
    ("inplace_magic.gradients.backward", "GradientTrace.__init__"),
    ("inplace_magic.gradients.backward", "GradientTrace.passes"),
    ("inplace_magic.session.run_cell", "compile_cell"),
    ("inplace_magic.verify.composing", "propose"),
    ("inplace_magic.verify.composing", "try_out"),
    ("inplace_magic.verify.effect", "compare"),
    ("inplace_magic.record.requests", "listen"),
    ("inplace_magic.report.text", "render"),
    ("inplace_magic.show", "show"),
    ("inplace_magic.extension", "Extension.remember"),
    ("inplace_magic.extension", "Extension._offer"),
]
OF_ONE_SANDBOX = {
    "fork": [
        ("inplace_magic.sandbox.fork", "_fork"),
        ("inplace_magic.sandbox.fork", "Child.outcome"),
        ("inplace_magic.sandbox.fork", "set_apart"),
        ("inplace_magic.sandbox.fork", "hush"),
    ],
    "replica": [
        ("inplace_magic.sandbox.replica.place", "pickled"),
        ("inplace_magic.sandbox.replica", "_started"),
        ("inplace_magic.sandbox.replica", "Replica.next_answer"),
        ("inplace_magic.sandbox.replica", "Task.outcome"),
    ],
}


def put_a_fault(monkeypatch: pytest.MonkeyPatch, module: str, dotted: str) -> None:
    owner: Any = importlib.import_module(module)
    *path, name = dotted.split(".")
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, name, boom)


def fail_with(room: str, put: Any) -> tuple[Any, list[str]]:
    """The failing cell with a fault in place: what came of it, and what differs right after our handler."""
    done = run_cells("%load_ext inplace_magic", f"%config InplaceMagic.sandbox = '{room}'", MUCH)
    shell, looks = done.shell, []

    def look(result: Any) -> None:
        looks.append(Fingerprint(shell.user_ns, shell=shell))

    callbacks = shell.events.callbacks["post_run_cell"]
    callbacks.insert(0, look)
    callbacks.append(lambda result: look(result))
    put()
    failed = run_in(shell, [FAIL])
    del callbacks[0], callbacks[-1]
    return failed, list(looks[0].differences(looks[1]))


@pytest.mark.parametrize(
    ("room", "module", "name"),
    [
        pytest.param(room, *place, marks=marks, id=f"{room}: {place[0].removeprefix('inplace_magic.')}.{place[1]}")
        for room, marks in (("fork", needs_fork), ("replica", needs_replica))
        # A fault that is put into this process does not come into another interpreter.
        for place in (*(EVERYWHERE if room == "fork" else ()), *OF_ONE_SANDBOX[room])
    ],
)
def test_a_fault_anywhere_leaves_the_session_as_it_was(
    room: str, module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, differs = fail_with(room, lambda: put_a_fault(monkeypatch, module, name))
    monkeypatch.undo()
    assert isinstance(failed.error, RuntimeError) and "modified by an inplace operation" in str(failed.error)
    assert differs == []
    traceback, headline = failed.output.find("RuntimeError"), failed.output.find("In-place change broke")
    ours = [line for line in failed.output.splitlines() if line.startswith("inplace_magic")]
    assert traceback >= 0 and (headline < 0 or traceback < headline)
    assert len(ours) == 1 if headline < 0 else len(ours) <= 1
    assert "Traceback" not in "".join(failed.output.splitlines()[1:]).replace(
        "Traceback (most recent call last)", "", 1
    )
    after = run_in(failed.shell, ["assert items[-1] == 3 and len(items) == 3\n" + FAIL])
    assert "broke the backward pass" in after.output and after.diagnosis is not None


@pytest.mark.parametrize("room", SANDBOXES)
def test_every_rule_may_crash(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.load()
    monkeypatch.setattr(registry, "passed_over", lambda name: None)
    families = frozenset().union(*registry.TRANSFORMS.values())
    failed, differs = fail_with(room, lambda: monkeypatch.setattr(registry, "TRANSFORMS", {boom: families}))
    assert differs == [] and failed.diagnosis is not None and failed.diagnosis.fixes == ()
    assert failed.diagnosis.changed is not None and "Fault" not in failed.output


class Refusing(dict[int, str]):
    """A place for rewritten texts that takes none."""

    update = boom


def test_accepting_that_fails_half_way_takes_back_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_cells(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = nn.Linear(3, 3)\n    def forward(self, x):\n        x = torch.sigmoid(self.a(x))\n        x += 1\n"
        "        return x",
        "net = Net(); code = Net.forward.__code__",
        "net(torch.ones(3)).sum().backward()",
    )
    assert done.diagnosis is not None and done.diagnosis.fixes
    monkeypatch.setattr(done.shell._inplace_magic_extension.session, "texts", Refusing())
    accepted = run_in(done.shell, ["%autograd_fix --live"])
    assert isinstance(accepted.error, Fault)
    after = run_in(done.shell, ["assert Net.forward.__code__ is code"])
    assert after.error is None
