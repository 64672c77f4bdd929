"""Figures as ratios of two things that were measured in turns, over several rounds."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..cells import new_shell, run_in
from .cells import FAILURES, RUNS, SMALL


@dataclass
class Figure:
    """One line of the table: what was measured, what it came to, what it should be at most, and what bounds it."""

    name: str
    value: float
    target: float | None
    unit: str
    bound: str
    more: dict[str, float] = field(default_factory=dict)


def best(rounds: int, *works: Callable[[], float]) -> list[float]:
    """The least that each of the works returned, one after the other in each round."""
    found = [float("inf")] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            gc.collect()
            found[i] = min(found[i], work())
    return found


def ratios(rounds: int, *works: Callable[[], float]) -> list[float]:
    """What each of the later works returned over what the first did, in the same round: the median of all rounds.

    A core that runs faster for a moment favours one of them, and then one round only.
    """
    found: list[list[float]] = [[] for _ in works[1:]]
    for _ in range(rounds):
        base, *others = best(1, *works)
        for one, other in zip(found, others):
            one.append(other / base)
    return [statistics.median(one) for one in found]


def some(named: dict[str, Any], quick: bool) -> list[tuple[str, Any]]:
    """What is measured, by its names; the first of it alone, to see that it runs."""
    return list(named.items())[: 1 if quick else None]


def processor(work: Callable[[], Any]) -> float:
    """Seconds of processor time, which a busy machine does not change."""
    start = time.process_time()
    work()
    return time.process_time() - start


# ---- being loaded -----------------------------------------------------------------------------------------------

_LOAD = """
import sys, time
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config(); config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
start = time.process_time()
shell.run_line_magic("load_ext", "inplace_magic")
print(time.process_time() - start)
assert "torch" not in sys.modules and "rich" not in sys.modules
"""


def loading(quick: bool) -> Iterator[Figure]:
    def once() -> float:
        out = subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True, check=True)
        return 1000 * float(out.stdout)

    (seconds,) = best(1 if quick else 7, once)
    yield Figure("%load_ext, torch not imported", seconds, 30, "ms", "importing nine small modules of ours")


def cells(quick: bool) -> Iterator[Figure]:
    """A cell that does not fail, in the same shell with the extension loaded and not."""
    import torch

    for label, prepare in (
        ("10 names", {f"name{i}": i for i in range(10)}),
        ("10,000 names", {f"name{i}": i for i in range(10_000)}),
        ("1 GB of tensors", {f"tensor{i}": torch.zeros(2**20 if quick else 2**25) for i in range(8)}),
    ):
        shell = new_shell()
        shell.run_line_magic("unload_ext", "inplace_magic")
        shell.user_ns.update(prepare)
        times = 20 if quick else 300

        def run(shell: Any = shell, times: int = times) -> float:
            found = []
            for _ in range(times):
                start = time.perf_counter()
                shell.run_cell("value = 1")
                found.append(time.perf_counter() - start)
            return min(found)

        def loaded(shell: Any = shell, run: Callable[[], float] = run) -> float:
            shell.run_line_magic("load_ext", "inplace_magic")
            return run()

        def bare(shell: Any = shell, run: Callable[[], float] = run) -> float:
            shell.run_line_magic("unload_ext", "inplace_magic")
            return run()

        with_it, without = best(1 if quick else 5, loaded, bare)
        more = {"loaded_us": 1e6 * with_it, "bare_us": 1e6 * without}
        yield Figure(
            f"a cell that does not fail, {label}",
            1e6 * (with_it - without),
            100,
            "µs",
            "two events, nothing is looked through",
            more,
        )
    yield Figure("large tensors kept alive by the extension", _kept_alive(), 0, "tensors", "no record holds a tensor")


def _kept_alive() -> int:
    """Of a tensor deleted in a cell and one that a diagnosed failure left behind, how many are still there."""
    shell = new_shell()
    run_in(shell, ["import torch\nbig = torch.zeros(2**20)"])
    references = [weakref.ref(shell.user_ns["big"])]
    run_in(shell, ["del big"])
    run_in(shell, ["w = torch.ones(2**20, requires_grad=True)\ny = w.exp()\ny += 1\ny.sum().backward()"])
    references.append(weakref.ref(shell.user_ns["y"]))
    sys.last_value = sys.last_traceback = sys.last_exc = None  # type: ignore[assignment]  # Python's own hold on it
    run_in(shell, ["w = y = None"])
    gc.collect()
    return sum(reference() is not None for reference in references)


def _deep(work: Callable[[], Any], frames: int = 20) -> Any:
    """Does the work as far down as a notebook's cell runs."""
    return work() if frames == 0 else _deep(work, frames - 1)


# ---- the recorded rerun ------------------------------------------------------------------------------------------


def recording(quick: bool) -> Iterator[Figure]:
    import torch

    from inplace_magic.record.plan import ReplayPlan, StopRule
    from inplace_magic.record.replay import record
    from inplace_magic.session.run_cell import replay_cell
    from inplace_magic.source.document import CellSource
    from inplace_magic.source.sources import Sources

    torch.set_num_threads(1)
    anomalies = []
    for name, ((setup, text), steps, target, small) in some(RUNS, quick):
        shell = new_shell()
        texts = {1: setup.lstrip(), 2: text.format(n=2 if quick else steps).lstrip()}
        sources = Sources({n: CellSource(n, t, shell.transform_cell) for n, t in texts.items()}, {}, 2)
        replay_cell(shell, sources.cells[1])

        def plain(shell: Any = shell, sources: Any = sources) -> float:
            return processor(lambda: _deep(lambda: replay_cell(shell, sources.cells[2])))

        def recorded(shell: Any = shell, sources: Any = sources) -> float:
            return processor(lambda: _deep(lambda: record(shell, sources, ReplayPlan((2,)), StopRule(600))))

        def anomaly(check_nan: bool, plain: Callable[[], float] = plain) -> float:
            with torch.autograd.set_detect_anomaly(True, check_nan=check_nan):
                return plain()

        plain(), recorded()
        to_plain, to_anomaly, to_usual = (
            1 / ratio
            for ratio in ratios(1 if quick else 11, recorded, plain, partial(anomaly, False), partial(anomaly, True))
        )
        yield Figure(
            f"recorded rerun against plain, {name}",
            to_plain,
            target,
            "×",
            "a call into Python for each torch call and each saved tensor",
        )
        anomalies.append(
            Figure(
                f"recorded rerun against anomaly mode, {name}",
                to_anomaly,
                0.4 if small else 1.0,
                "×",
                "anomaly mode formats a traceback for each node, of a stack as deep as a notebook's",
            )
        )
        anomalies.append(
            Figure(
                f"… as people switch it on, {name}",
                to_usual,
                0.4 if small else 1.0,
                "×",
                "set_detect_anomaly(True) looks for nan in every gradient as well",
            )
        )
    yield from anomalies


# ---- the watched run ---------------------------------------------------------------------------------------------


def watching(quick: bool) -> Iterator[Figure]:
    """A training cell under %%autograd_check against the plain one; then with the watch ended after one backward."""
    import torch

    from inplace_magic import watch
    from inplace_magic.session.run_cell import replay_cell
    from inplace_magic.source.document import CellSource
    from inplace_magic.source.sources import Sources

    torch.set_num_threads(1)
    for name, ((setup, text), steps, _, _) in some(RUNS, quick):
        shell = new_shell()
        texts = {1: setup.lstrip(), 2: text.format(n=2 if quick else steps).lstrip()}
        sources = Sources({n: CellSource(n, t, shell.transform_cell) for n, t in texts.items()}, {}, 2)
        replay_cell(shell, sources.cells[1])

        def watched(backwards: int | None = None, shell: Any = shell, sources: Any = sources) -> float:
            with watch.watching(sources, shell.user_ns, backwards):
                return processor(lambda: replay_cell(shell, sources.cells[2]))

        def plain(shell: Any = shell, sources: Any = sources) -> float:
            return processor(lambda: replay_cell(shell, sources.cells[2]))

        def ended(watched: Callable[..., float] = watched) -> float:
            return watched(1)

        plain(), watched()
        all_of_it, only_one = ratios(1 if quick else 7, plain, watched, ended)
        target = {"conv net": 2.0}.get(name, 4.0)
        yield Figure(
            f"watched run against plain, {name}", all_of_it, target, "×", "as the recorder, and a node is looked at"
        )
        yield Figure(
            f"watched for one backward, then left, {name}", only_one, 1.1, "×", "one backward of all is watched"
        )


# ---- from the error to the report -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reported:
    """Seconds of a failing cell alone; with its report: until the lines, the first verified fix, the whole; its fixes."""

    plain: float
    lines: float
    first_fix: float
    whole: float
    fixes: int


def diagnoses(quick: bool) -> Iterator[Figure]:
    """Each round in a process of its own: torch keeps some failed graphs, and a session that fills up is a larger one."""
    spawning = multiprocessing.get_context("spawn")
    with spawning.Pool(1, maxtasksperchild=1) as processes:
        for name, (setup, text, size) in some(FAILURES, quick):
            size = max(1, size // 40) if quick else size
            cells = tuple(part.replace("{n}", str(size)) for part in (setup, text))
            rounds = processes.starmap(_diagnosis, [cells] * (1 if quick else 5), chunksize=1)
            plain = min(one.plain for one in rounds)
            for what, target, bound in (
                ("lines", 1.6, "one recorded run up to the failure"),
                ("first_fix", 4, "one run of it past the failure, and as it would be accepted, on two cores"),
                ("whole", 5, "for each further fix tried, two runs past the failure"),
            ):
                seconds = min(getattr(one, what) for one in rounds)
                yield Figure(
                    f"from the error to the {'report' if what == 'whole' else what.replace('_', ' ')}, {name}",
                    max(0.0, seconds - plain - 0.1) / plain,
                    target,
                    "reruns",
                    bound,
                    {"plain_s": plain, "fixes": rounds[0].fixes},
                )


def _diagnosis(setup: str, text: str) -> _Reported:
    import torch

    torch.set_num_threads(1)
    _wall(*SMALL, enabled=True)  # what is imported for a first failure
    plain = min(_wall(setup, text, enabled=False)[0] for _ in range(2))  # torch's own first calls take longer
    whole, lines, first_fix, diagnosis = _wall(setup, text, enabled=True)
    return _Reported(plain, lines, first_fix, whole, len(diagnosis.fixes) if diagnosis is not None else 0)


def _wall(setup: str, text: str, enabled: bool) -> tuple[float, float, float, Any]:
    """Seconds of the cell with its report, seconds until its lines and its first fix were known, and the diagnosis."""
    from inplace_magic.show import Showing

    told: list[tuple[float, int]] = []

    def publish(self: Showing, found: Any) -> None:
        told.append((time.perf_counter(), len(found.fixes)))
        original(self, found)

    shell = new_shell()
    run_in(shell, [setup.lstrip()])
    shell.run_line_magic("config", f"InplaceMagic.enabled = {enabled}")
    original, Showing.publish = Showing.publish, publish  # type: ignore[method-assign]
    start = time.perf_counter()
    run = run_in(shell, [text.lstrip()])
    end = time.perf_counter()
    Showing.publish = original  # type: ignore[method-assign]
    # What a round leaves behind, which is mostly the graph in the traceback, would make the next one's session larger.
    run_in(shell, ["%reset -f", "1 / 0"])
    lines = min((at for at, _ in told), default=end)
    first_fix = min((at for at, fixes in told if fixes), default=end)
    return end - start, lines - start, first_fix - start, run.diagnosis


# ---- a copy of the process --------------------------------------------------------------------------------------


def copying(quick: bool) -> Iterator[Figure]:
    """The cost of a copied process that does nothing, from the call to its answer, beside so many tensors."""
    import torch

    from inplace_magic.sandbox import fork, may_fork

    if may_fork.why_not() is not None:
        return
    tensors: list[Any] = []
    for gigabytes in (0, 0.1) if quick else (0, 1, 10):
        if gigabytes * 1e9 > 0.7 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            return
        while sum(tensor.nbytes for tensor in tensors) < gigabytes * 1e9:
            tensors.append(torch.ones(25_000_000))
        (seconds,) = best(1 if quick else 5, lambda: _seconds(lambda: fork.run(int, 60)))
        what = (
            "the table of pages is copied, and given back" if gigabytes else "starting, answering and ending a process"
        )
        yield Figure(f"a copy of the process beside {gigabytes:g} GB of tensors", 1000 * seconds, None, "ms", what)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# ---- memory ------------------------------------------------------------------------------------------------------

_MEMORY = """
import sys
sys.path.insert(0, {root!r})
import torch
torch.set_num_threads(1)
from tests.cells import new_shell, run_in
shell = new_shell()
shell.run_line_magic("config", "InplaceMagic.enabled = {enabled}")
run_in(shell, ['''{setup}'''])
run = run_in(shell, ['''{cell}'''])
assert (run.diagnosis is not None and len(run.diagnosis.fixes) > 0) == {enabled}
print("done", flush=True)
sys.stdin.readline()
"""
_LARGE = (
    """
import torch, torch.nn as nn
net = nn.Sequential(*[m for _ in range({n}) for m in (nn.Linear(1024, 1024), nn.ReLU())])
opt = torch.optim.Adam(net.parameters())
x = torch.randn(16, 1024)
net(x).sum().backward()
opt.step()
""",
    """
for step in range(3):
    opt.zero_grad()
    h = torch.sigmoid(net(x))
    h += 1
    h.sum().backward()
    opt.step()
""",
)


_OVERWRITTEN = (
    """
import torch, torch.nn as nn
net = nn.Sequential(*[m for _ in range({n}) for m in (nn.Linear(1024, 1024), nn.ReLU())])
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
x = torch.randn(16, 1024)
net(x).sum().backward()
opt.step()
""",
    """
for step in range(3):
    opt.zero_grad()
    h = torch.sigmoid(net(x).repeat(4096, 1))
    if step == 1:
        h += 1
    h.sum().backward()
    opt.step()
""",
)
# Batches whose activations weigh much more than the model; the write comes between a step of the optimizer and the next.
_ACTIVATIONS = (
    """
import torch, torch.nn as nn
net = nn.Sequential(*[m for _ in range({n}) for m in (nn.Linear(64, 64), nn.Tanh())])
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
x = torch.randn(2**18, 64)
net(x).sum().backward()
opt.step()
""",
    """
for step in range(3):
    opt.zero_grad()
    h = net(x)
    if step == 1:
        h += 1
    h.sum().backward()
    opt.step()
""",
)


def memory(quick: bool) -> Iterator[Figure]:
    if not os.path.exists("/proc/self/smaps_rollup"):
        return
    size = 2 if quick else 96
    plain, after_plain = _peak(_LARGE, size, False, quick)
    peak, after = _peak(_LARGE, size, True, quick)
    yield Figure(
        f"peak memory of a diagnosis, {size * 1024 * 1025 / 1e6:.0f} M parameters and Adam",
        peak / plain,
        1.3,
        "×",
        "a copy of the process shares all pages but those that the rerun writes: gradients, and the optimizer's if it steps",
        {"plain_mb": plain / 2**20},
    )
    yield Figure("memory kept after it", after / after_plain, 1.1, "×", "modules of ours and of rich")
    if quick:
        return
    size = 48
    plain, _ = _peak(_OVERWRITTEN, size, False)
    peak, _ = _peak(_OVERWRITTEN, size, True)
    yield Figure(
        f"peak memory of a diagnosis, {size * 1024 * 1025 / 1e6:.0f} M parameters with momentum and a large activation",
        peak / plain,
        1.5,
        "×",
        "what is saved and overwritten is kept once",
        {"plain_mb": plain / 2**20},
    )
    size = 12
    plain, _ = _peak(_ACTIVATIONS, size, False)
    peak, _ = _peak(_ACTIVATIONS, size, True)
    yield Figure(
        f"peak memory of a diagnosis, all but a little of it {size * 2 * 2**26 / 1e6:.0f} MB of activations",
        peak / plain,
        None,
        "×",
        "the session holds the failed run's graph while the copy makes its own",
        {"plain_mb": plain / 2**20},
    )


def _peak(cells: tuple[str, str], size: int, enabled: bool, quick: bool = False) -> tuple[float, float]:
    """(the most that a process and its copies held together, what the process holds in the end), in bytes."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    setup, cell = cells
    script = _MEMORY.format(root=root, enabled=enabled, setup=setup.replace("{n}", str(size)), cell=cell)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        peaks: list[float] = [0.0]
        with _watched(process.pid, peaks, 0.1 if quick else 0.005):
            assert process.stdout is not None and process.stdout.readline() == "done\n"
        left = _held(process.pid)
        process.communicate("\n")
    return peaks[0], left


@contextmanager
def _watched(pid: int, peaks: list[float], every_s: float) -> Iterator[None]:
    over = threading.Event()

    def look() -> None:
        while not over.wait(every_s):
            peaks[0] = max(peaks[0], sum(_held(one) for one in (pid, *_children(pid))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(number) for number in file.read().split()]
    except OSError:
        return []


def _held(pid: int) -> float:
    """A process's part of what it shares with others, and all of the rest."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(1024.0 * int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0.0


# ---- growth ------------------------------------------------------------------------------------------------------

_GROWING = """
import torch
w = torch.ones(10, requires_grad=True)
globals().update({f"name{i}": [i] for i in range(NAMES)})
"""
_GROWS = """
for step in range(STEPS + 2):
    h = w * 1
    for _ in range(OPERATIONS):
        h = torch.sin(h)
    if step >= STEPS:
        h = torch.sigmoid(h)
        h += 1
    h.sum().backward()
"""


def growth(quick: bool) -> Iterator[Figure]:
    """Ten times as much of something: the time from the error to the report against ten times that of the tenth."""
    base = {"STEPS": 100, "OPERATIONS": 100, "NAMES": 1000}
    if quick:
        base = {"STEPS": 5, "OPERATIONS": 5, "NAMES": 10}

    def seconds(sizes: dict[str, int]) -> float:
        setup, text = _GROWING, _GROWS
        for name, size in sizes.items():
            setup, text = setup.replace(name, str(size)), text.replace(name, str(size))
        *_, diagnosis = _wall(setup, text, enabled=True)
        return float(diagnosis.seconds)

    grown = {"STEPS": "iterations before the failure", "OPERATIONS": "operations", "NAMES": "names"}
    for name, what in some(grown, quick):
        more = base | {name: 10 * base[name]}
        small, large = best(1 if quick else 3, lambda: seconds(base), lambda more=more: seconds(more))  # type: ignore[misc]
        yield Figure(f"ten times the {what}", large / small, 10, "×", "each is looked at once in each run")


def write(figures: list[Figure], path: str) -> None:
    with open(path, "w") as file:
        json.dump([vars(figure) for figure in figures], file, indent=1)
