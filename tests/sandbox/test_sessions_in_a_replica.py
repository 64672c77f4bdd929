"""What a session may hold so that a replica serves it: the list in docs/limits.md, each with a cell that uses it."""

from __future__ import annotations

import sqlite3
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cells import new_shell, run_in
from tests.sandboxes import needs_replica

pytestmark = needs_replica

NET = "import torch, torch.nn as nn\ntorch.manual_seed(0)\nnet, x = nn.Linear(3, 3), torch.ones(2, 3)"
ALONG = """
    import abc, collections, contextlib, contextvars, copy, dataclasses, enum, functools, logging, random, re, threading, weakref
    def maker(n):
        seen = []
        def scaled(t):
            seen.append(n)
            return t * n
        return scaled
    scaled, shift = maker(2.0), lambda t: t + 1
    added, forward = functools.partial(torch.add, alpha=2), net.forward
    class Color(enum.Enum):
        RED = 1
    class Base(abc.ABC):
        @abc.abstractmethod
        def factor(self): ...
    class Factor(Base):
        def factor(self): return 2.0
    Pair = collections.namedtuple("Pair", "a b")
    @dataclasses.dataclass
    class Bag:
        held: dict
    leaf = torch.ones(2, 3, requires_grad=True)
    bag, pair, factor = Bag({"k": [(leaf, collections.deque([x], maxlen=3))]}), Pair(1, Color.RED), Factor()
    lock, condition, semaphore = threading.RLock(), threading.Condition(), threading.Semaphore(2)
    held = threading.Lock()
    held.acquire()
    reference, known = weakref.ref(net), weakref.WeakKeyDictionary({net: 1.0})
    log = logging.getLogger("in a replica")
    log.addHandler(logging.FileHandler("a.log"))
    numbers, generator = random.Random(1), torch.Generator().manual_seed(3)
    variable = contextvars.ContextVar("variable", default=1.0)
    variable.set(3.0)
    local = threading.local()
    local.rate = 0.5
    sparse, conjugated = torch.eye(3).to_sparse(), torch.ones(2, dtype=torch.complex64).conj()
    acts = {}
    handle = net.register_forward_hook(lambda module, args, out: acts.update(out=out.detach()))
    opt = torch.optim.AdamW(net.parameters())
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=100)
    scaler, average = torch.amp.GradScaler("cpu"), torch.optim.swa_utils.AveragedModel(net)
    @contextlib.contextmanager
    def timed():
        yield 1
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
        def forward(self, x): return self.linear(x)
    old = Net()
    net(x).sum().backward(); opt.step(); plan.step(); opt.zero_grad()
"""
AGAIN = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
        def forward(self, x): return self.linear(x) * 2
    new = Net()
"""
USES_ALONG = """
    held.release()
    with lock, condition, semaphore, held, timed():
        log.warning("x")
        assert pair.b is Color.RED and not isinstance(old, Net) and isinstance(new, Net)
        h = added(forward(bag.held["k"][0][1][0]), reference()(x)) * known[net] * factor.factor() * pair.a
        h = shift(scaled(h)) @ sparse.to_dense() * conjugated.real.sum() * variable.get() * local.rate
        h = h * numbers.random() * torch.rand(1, generator=generator) + acts["out"] + old(x) + new(x)
        y = torch.exp(h * 0.01 * bag.held["k"][0][0])
    y += 1
    scaler.scale(y.sum()).backward()
    assert leaf.grad is not None
    opt.step(); plan.step(); average.update_parameters(net)
"""
MADE_AGAIN = """
    import asyncio, queue, socket, threading
    from concurrent.futures import ThreadPoolExecutor
    from torch.utils.data import DataLoader
    def batches():
        while True: yield torch.ones(2, 3)
    stream = batches()
    next(stream)
    loader = iter(DataLoader(torch.ones(8, 3), batch_size=2))
    counted = enumerate([x] * 4)
    next(loader), next(counted)
    class Writer:
        def __init__(self):
            self.waiting, self.file = queue.Queue(), open("w.log", "w")
            threading.Thread(target=self.write, daemon=True).start()
        def write(self):
            while (text := self.waiting.get()) is not None: self.file.write(text)
    writer, file = Writer(), open("w.log")
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    thread.start()
    pool, (here, there) = ThreadPoolExecutor(1), socket.socketpair()
    async def coming(): return 1.0
    hidden = net(x)
"""
USES_MADE_AGAIN = """
    writer.waiting.put("x"); file.read(); here.send(b"x"); thread.is_alive()
    y = torch.exp(net(next(stream) + next(loader) + next(counted)[1]) + hidden * pool.submit(lambda: 2.0).result())
    y += 1
    y.sum().backward()
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs dedented cells; gives what came of the last one."""
    monkeypatch.chdir(tmp_path)
    shell = new_shell()
    settings = ["%config InplaceMagic.sandbox = 'replica'", "%config InplaceMagic.fixes = 1", NET]

    def run(*cells: str) -> Any:
        *before, last = [*settings, *(textwrap.dedent(cell).strip("\n") for cell in cells)]
        for cell in before:
            done = run_in(shell, [cell])
            assert done.error is None, done.output
        return run_in(shell, [last])

    return run


def test_files_and_databases_of_the_session_stay_as_they_are(session: Any) -> None:
    """A database whose table is there by now cannot be made again: the line is named, and what stands in the way."""
    made = "import sqlite3\ndb = sqlite3.connect('runs.db')\ndb.execute('create table t (n)')"
    done = session(
        made, "db.execute('insert into t values (1)'); db.commit()\ny = net(x).exp()\ny += 1\ny.sum().backward()"
    )
    assert done.diagnosis is not None and done.diagnosis.changed is not None and done.diagnosis.changed.text == "y += 1"
    assert done.diagnosis.fixes == () and "`db` (a Connection" in " ".join(done.diagnosis.notes)
    with sqlite3.connect("runs.db") as database:
        assert database.execute("select count(*) from t").fetchone() == (1,)
    database.close()


def test_what_is_taken_along(session: Any) -> None:
    done = session(ALONG, AGAIN, USES_ALONG)
    assert done.diagnosis is not None and done.diagnosis.changed.text == "y += 1", done.output
    assert done.diagnosis.fixes and done.diagnosis.fixes[0].verified and done.diagnosis.notes == ()


def test_what_is_made_again_by_the_cells_that_made_it(session: Any) -> None:
    done = session(MADE_AGAIN, USES_MADE_AGAIN)
    run_in(done.shell, ["stop.set(); writer.waiting.put(None)", "pool.shutdown(); here.close(); there.close()"])
    for kept in (done.shell.user_ns["file"], done.shell.user_ns["writer"].file):
        kept.close()
    assert done.diagnosis is not None and done.diagnosis.changed.text == "y += 1", done.output
    assert done.diagnosis.fixes and done.diagnosis.fixes[0].verified and done.diagnosis.notes == ()


FAILS = "warnings.warn('of a cell', Own)\ny = net(x).exp()\ny += 1\ny.sum().backward()"


def test_a_module_is_imported_by_nobody_but_the_session_where_warnings_of_its_category_are_ignored(
    session: Any,
) -> None:
    Path("noisy.py").write_text("with open('imports', 'a') as f: f.write('x')\nclass Own(UserWarning): pass\n")
    done = session(
        "import sys, warnings; sys.path.insert(0, '')\nfrom noisy import Own; warnings.simplefilter('ignore', Own)",
        FAILS,
    )
    assert done.diagnosis is not None and done.diagnosis.fixes, done.output
    assert Path("imports").read_text() == "x"


def test_a_category_of_warnings_that_a_cell_defines(session: Any) -> None:
    done = session("import warnings\nclass Own(UserWarning): pass\nwarnings.simplefilter('ignore', Own)", FAILS)
    assert done.diagnosis is not None and done.diagnosis.fixes, done.output
