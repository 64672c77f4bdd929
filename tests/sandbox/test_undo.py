"""The session after a rerun in the process is the session before it; where it cannot be, the rerun is declined.

INPLACE_MAGIC_EXAMPLES sets how many cells the property test composes, INPLACE_MAGIC_SEED repeats a run.
"""

from __future__ import annotations

import collections
import gc
import os
import random
import signal
import sys
import textwrap
import time
import types
import warnings

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from inplace_magic.gradients.backward import GradientTrace
from inplace_magic.record.recorder import Recorder
from inplace_magic.record.silent.events import REFERENCE
from inplace_magic.record.silent.stream import EventStream
from inplace_magic.record.watcher import Watcher
from inplace_magic.sandbox.undo import CopyOnWrite, Declined, UndoLog, undone
from inplace_magic.sandbox.undo.objects import is_own_module
from inplace_magic.source.document import Sources
from tests.composing import CELLS, SETUP, statement
from tests.fingerprints import Fingerprint
from tests.seeds import SEED

EXAMPLES = int(os.environ.get("INPLACE_MAGIC_EXAMPLES", "150"))
INTERRUPTS = 200


def session(setup=""):
    namespace = {"__name__": "__main__", "__builtins__": __builtins__}
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    exec(compile(SETUP + textwrap.dedent(setup), "<session>", "exec"), namespace)
    return types.SimpleNamespace(user_ns=namespace)


def rerun(shell, cell):
    """Run the cell in the room; returns the log and what the cell raised."""
    code = compile(textwrap.dedent(cell), "<cell>", "exec")
    raised = None
    with undone(shell, code=[code]) as log:
        if log.declined is None:
            try:
                with CopyOnWrite(log):
                    exec(code, shell.user_ns)
            except (Exception, Declined) as e:
                raised = e
    return log, raised


@pytest.fixture(autouse=True)
def as_found():
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CELLS)
def test_as_it_was(name):
    """And the fingerprint notices when the same cell is run outside the room."""
    shell = session()
    before = Fingerprint(shell.user_ns)
    cell = CELLS[name] + "\nraise KeyError('the failure')"
    log, raised = rerun(shell, cell)
    assert (log.declined, log.lost, type(raised)) == (None, [], KeyError), (log.declined, log.lost, raised)
    assert list(before.differences(Fingerprint(shell.user_ns))) == []

    again = Fingerprint(shell.user_ns)
    with undone(types.SimpleNamespace(user_ns={})), pytest.raises(KeyError):
        exec(compile(cell, "<cell>", "exec"), shell.user_ns)
        pytest.fail("the cell is made to fail")
    noticed = next(again.differences(Fingerprint(shell.user_ns)), None) is not None
    assert noticed or name in SURROUNDINGS_ONLY


SURROUNDINGS_ONLY = frozenset(
    [
        "random",
        "numpy random",
        "torch random",
        "grad mode",
        "anomaly",
        "autocast",
        "default dtype",
        "default device",
        "deterministic",
        "threads",
        "precision",
        "print options",
        "warnings",
        "stdout",
        "path",
        "last error",
        "environment",
        "folder",
        "recursion limit",
        "signal",
    ]
)

DECLINED = {
    "generator": ("stream = (i for i in range(3))", "next(stream)", "stream leads to the generator '<genexpr>', which"),
    "generator within": ("box = [iter(bump, 99), (i for i in [1])]", "next(box[1])", "box leads to"),
    "iterator": ("stream = iter([1, 2, 3])", "next(stream)", "stream leads to a list_iterator, which would be used up"),
    "zip": ("stream = zip([1], [2])", "list(stream)", "stream leads to a zip, which would be used up"),
    "generator of a function": (
        "stream = (i for i in [1])\ndef take(): return next(stream)",
        "take()",
        "take leads to the generator",
    ),
    "cached function": ("@functools.cache\ndef slow(n): return n", "slow(2)", "slow leads to a cached function"),
    "history written": ("", "pred.mul_(2)", "writes in place into a tensor with a history from before"),
    "history detached": ("", "pred.detach_()", "writes in place into a tensor with a history from before"),
    "gradient retained": ("", "pred.retain_grad()", "writes in place into a tensor with a history from before"),
    "graph used up": ("", "loss.backward()", "runs backward through a graph from before, which would use it up"),
    "graph used up by grad": ("", "torch.autograd.grad(loss, w)", "runs backward through a graph from before"),
    "script module": (
        "scripted = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))",
        "scripted(x)",
        "scripted leads to",
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", DECLINED)
def test_declined(name):
    setup, cell, clause = DECLINED[name]
    shell = session(setup)
    before = Fingerprint(shell.user_ns)
    log, raised = rerun(shell, cell)
    assert log.declined is not None and clause in log.declined, (log.declined, raised)
    assert log.lost == []
    assert list(before.differences(Fingerprint(shell.user_ns))) == []


def test_a_generator_that_the_code_cannot_reach_is_no_reason():
    shell = session("stream = (i for i in range(3))")
    log, _ = rerun(shell, "x.add_(1)")
    assert log.declined is None
    assert next(shell.user_ns["stream"]) == 0


FREQUENT = """
import argparse, dataclasses, datetime, decimal, enum, logging, operator, pathlib, queue, re, threading, uuid, weakref
held = [
    pathlib.Path("/x"), datetime.datetime.now(datetime.timezone.utc), re.compile("x"), re.match("x", "x"),
    decimal.Decimal(1), uuid.uuid4(), torch.device("cpu"), torch.float32, torch.Size([1]), torch.finfo(torch.float32),
    operator.itemgetter(1), np.float32(1), np.dtype("f4"), np.add, np.random.RandomState(1), np.ma.array([1, 2]),
    enum.Enum("E", "A B").A, dataclasses.make_dataclass("D", ["a"])([1]), collections.namedtuple("P", "a b")([1], 2),
    threading.Lock(), threading.Event(), threading.local(), weakref.ref(net), weakref.WeakKeyDictionary({net: 1}),
    KeyError("x"), logging.getLogger("x"), collections.Counter("abc"), collections.ChainMap({1: 2}), queue.Queue(),
    argparse.Namespace(a=1), random.SystemRandom(), memoryview(buffer), loss.grad_fn, np, torch, F,
    torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(3)), shuffle=True, num_workers=2),
    nn.LSTM(2, 2), nn.TransformerEncoderLayer(4, 2), nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    torch.distributions.Normal(0.0, 1.0), torch.optim.lr_scheduler.OneCycleLR(sgd, 0.1, 10),
    torch.ones(2, dtype=torch.complex64).conj(), torch.ones(2, device="meta"), torch.ones(2).untyped_storage(),
    torch.sparse_csr_tensor([0, 1], [0], [1.0]), torch.optim.swa_utils.AveragedModel(net),
    torch.optim.LBFGS(net.parameters()), torch.nn.utils.rnn.pack_sequence([torch.ones(2)]),
]
with torch.inference_mode(): held.append(torch.ones(3))
"""


@pytest.mark.filterwarnings("ignore")
def test_what_notebooks_hold_is_no_reason():
    log, raised = rerun(session(FREQUENT), "held; x.add_(1)")
    assert (log.declined, log.lost, raised) == (None, [], None)


def test_a_module_of_the_persons_own(tmp_path, monkeypatch):
    (tmp_path / "own_module.py").write_text(
        "calls = []\ndef call():\n    global last\n    last = 1\n    calls.append(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shell = session("import own_module")
    log, _ = rerun(shell, "own_module.call()")
    own = shell.user_ns["own_module"]
    del sys.modules["own_module"]
    assert (log.declined, own.calls, hasattr(own, "last")) == (None, [], False)


def test_whose_a_module_is():
    assert [is_own_module(name) for name in ("__main__", __name__, "torch", "os", "sys", "inplace_magic.sandbox")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.usefixtures("no_gc_callbacks")
def test_an_interrupt_at_any_moment():
    """Of the rerun, of taking stock before it or of putting back after it."""
    shell = session()
    before = Fingerprint(shell.user_ns)
    code = compile(
        "for i in range(30):\n  x.add_(1); items.append(i); net(torch.rand(5, 4)).sum().backward()", "<c>", "exec"
    )
    chance = random.Random(SEED)
    seen = 0
    handler = signal.signal(signal.SIGALRM, lambda *a: signal.raise_signal(signal.SIGINT))
    for _ in range(INTERRUPTS):
        log = None
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.03))
        try:
            with undone(shell, code=[code]) as log, CopyOnWrite(log):
                try:
                    log.interrupts.go_on()
                    exec(code, shell.user_ns)
                finally:
                    log.interrupts.hold()
        except KeyboardInterrupt:
            seen += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert log is None or log.lost == []  # None: interrupted ahead of the cell
    gc.collect()
    signal.signal(signal.SIGALRM, handler)
    assert list(before.differences(Fingerprint(shell.user_ns))) == []
    assert seen > INTERRUPTS // 3


def test_names_asked_for_at_run_time_put_everything_within_reach():
    log, _ = rerun(session("stream = (i for i in range(3))"), "next(globals()['stream'])")
    assert log.declined is not None


def test_figures(monkeypatch):
    """New ones are closed, with whatever draws them."""
    open_figures = [1]
    plt = types.SimpleNamespace(get_fignums=lambda: list(open_figures), close=open_figures.remove)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plt)
    monkeypatch.setitem(sys.modules, "matplotlib", types.SimpleNamespace(rcParams={"size": 1}))
    with undone(session()) as log:
        open_figures.append(2)
        sys.modules["matplotlib"].rcParams["size"] = 2
    assert (log.lost, open_figures, sys.modules["matplotlib"].rcParams) == ([], [1], {"size": 1})


def test_a_retained_graph_can_be_run_through_again():
    shell = session()
    before = Fingerprint(shell.user_ns)
    log, raised = rerun(shell, "loss.backward(retain_graph=True)")
    assert (log.declined, raised) == (None, None)
    assert list(before.differences(Fingerprint(shell.user_ns))) == []
    shell.user_ns["loss"].backward()


def test_a_large_array_within_reach_is_declined(monkeypatch):
    monkeypatch.setattr("inplace_magic.sandbox.undo.walk.MAX_BYTES", 1000)
    shell = session("big = np.zeros(1000)")
    assert "big leads to more than" in rerun(shell, "big[0] = 1")[0].declined
    assert rerun(shell, "bare.add_(1)")[0].declined is None


def test_too_many_objects_are_declined(monkeypatch):
    monkeypatch.setattr("inplace_magic.sandbox.undo.walk.MAX_OBJECTS", 1000)
    assert "more than 1,000 objects" in rerun(session("many = [[] for _ in range(2000)]"), "many")[0].declined


def test_a_file_is_put_back_where_it_was_read(tmp_path):
    (tmp_path / "lines.txt").write_text("one\ntwo\nthree\n")
    shell = session(f"lines = open({str(tmp_path / 'lines.txt')!r}); lines.readline()")
    log, _ = rerun(shell, "assert lines.readline() == 'two\\n'; lines.read()")
    assert (log.declined, log.lost) == (None, [])
    with shell.user_ns["lines"] as lines:
        assert lines.readline() == "two\n"


def test_a_file_open_to_be_written_is_declined(tmp_path):
    shell = session(f"out = open({str(tmp_path / 'out.txt')!r}, 'w')")
    log, _ = rerun(shell, "out.write('x')")
    shell.user_ns["out"].close()
    assert "open to be written" in log.declined
    assert (tmp_path / "out.txt").read_text() == ""


def test_a_running_thread_of_the_session_is_declined():
    shell = session(
        "import threading\nstop = threading.Event()\ndef wait(): stop.wait(20)\nthread = threading.Thread(target=wait, name='mine')\nthread.start()"
    )
    log, _ = rerun(shell, "x.add_(1)")
    shell.user_ns["stop"].set()
    shell.user_ns["thread"].join()
    assert log.declined == "thread 'mine' of this session is running"


def test_an_interrupt_goes_through_and_everything_is_back():
    shell = session()
    before = Fingerprint(shell.user_ns)
    with pytest.raises(KeyboardInterrupt), undone(shell) as log, CopyOnWrite(log):
        exec("x.add_(1); items.clear(); raise KeyboardInterrupt", shell.user_ns)
    assert list(before.differences(Fingerprint(shell.user_ns))) == []


@pytest.mark.parametrize(
    "listener",
    [
        lambda: GradientTrace(Sources({}, {}, None)).listening(),
        lambda: Recorder(Sources({}, {}, None)),
        lambda: EventStream(Sources({}, {}, None), REFERENCE),
        lambda: Watcher(Sources({}, {}, None)),
        lambda: CopyOnWrite(UndoLog()),
    ],
    ids=["gradients", "recorder", "hidden writes", "watcher", "copies on write"],
)
def test_a_listener_that_an_interrupt_left_on_is_taken_off(listener):
    shell = session()
    before = Fingerprint(shell.user_ns)
    left_on = listener()
    with pytest.raises(KeyboardInterrupt), undone(shell):
        left_on.__enter__()
        raise KeyboardInterrupt
    assert list(before.differences(Fingerprint(shell.user_ns))) == []


def test_an_interrupt_on_the_way_back_waits(monkeypatch):
    shell = session()
    before = Fingerprint(shell.user_ns)
    real = torch.UntypedStorage.copy_

    def interrupted(self, *args):
        signal.raise_signal(signal.SIGINT)
        return real(self, *args)

    with pytest.raises(KeyboardInterrupt), undone(shell) as log, CopyOnWrite(log):
        exec("x.add_(1); whole.add_(1); items.clear()", shell.user_ns)
        monkeypatch.setattr(torch.UntypedStorage, "copy_", interrupted)
    monkeypatch.undo()
    assert list(before.differences(Fingerprint(shell.user_ns))) == []


def test_a_storage_is_copied_once_and_only_when_written():
    shell = session("big = torch.zeros(1000, 1000); other = torch.zeros(1000, 1000)")
    with undone(shell) as log, CopyOnWrite(log):
        exec("big[0] = 1; big.add_(1); big.view(-1)[5] = 2; other.sum()", shell.user_ns)
        copied = [s.size for s in log._tensors._storages.values() if s.copy is not None]
    assert copied == [4_000_000]


def test_a_write_that_nobody_announced_is_admitted():
    shell = session()
    with undone(shell) as log:
        exec("x.add_(1)", shell.user_ns)
    assert log.lost == ["a tensor was written without notice"]


def test_the_saved_history_still_runs_backward():
    """The version goes back as well, so a graph from before finds what it saved."""
    shell = session("held = x.clone().requires_grad_(); out = held.exp().sum()")
    with undone(shell) as log, CopyOnWrite(log):
        exec("with torch.no_grad(): held.mul_(2)", shell.user_ns)
    shell.user_ns["out"].backward()
    assert torch.equal(shell.user_ns["held"].grad, shell.user_ns["held"].detach().exp())


def test_the_shell_of_ipython():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        shell.run_cell("a = [1]", store_history=True)
        shell.run_cell("a", store_history=True)
        before = Fingerprint(shell.user_ns)
        numbers = (shell.execution_count, list(shell.history_manager.input_hist_raw), vars(shell.displayhook).copy())
        with undone(shell) as log, CopyOnWrite(log):
            shell.run_cell("a.append(2); b = 3; a", store_history=True)
        assert log.lost == []
        assert list(before.differences(Fingerprint(shell.user_ns))) == []
        assert numbers == (
            shell.execution_count,
            list(shell.history_manager.input_hist_raw),
            vars(shell.displayhook),
        )
    finally:
        InteractiveShell.clear_instance()


def test_linear_in_the_number_of_objects():
    def seconds(n):
        shell = types.SimpleNamespace(user_ns={"many": [[i] for i in range(n)]})
        start = time.perf_counter()
        with undone(shell):
            pass
        return time.perf_counter() - start

    seconds(1000)
    assert min(seconds(80_000) for _ in range(3)) < 16 * max(min(seconds(10_000) for _ in range(3)), 0.002)


# ---------------------------------------------------------------------------------------------------------------------
# Cells put together at random.

FAILURES = (
    "raise KeyError('the failure')",
    "z = x.clone().requires_grad_().exp(); z += 1; z.sum().backward()",
    "w += 1",
    "1 / 0",
)
tally: collections.Counter[str] = collections.Counter()


@hypothesis.seed(SEED)
@hypothesis.settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
)
@hypothesis.given(st.lists(statement, min_size=1, max_size=8), st.sampled_from(FAILURES))
def compose(statements, failure):
    cell = "\n".join([*statements, failure, "raise KeyError('if all else went well')"])
    shell = session()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = Fingerprint(shell.user_ns)
        log, raised = rerun(shell, cell)
        after = Fingerprint(shell.user_ns)
    tally[log.declined or "rerun"] += 1
    assert raised is not None or log.declined, "the cell is made to fail"
    assert log.lost == [], cell
    assert list(before.differences(after)) == [], cell


def test_composed_cells(capsys):
    try:
        compose()
    finally:
        with capsys.disabled():
            print(f"\nseed {SEED}: {dict(tally)}")
