"""What every test may rely on."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from inplace_magic import torch_private
from inplace_magic.sandbox import process_memory, replica, unseen
from inplace_magic.source.location import user_stack
from inplace_magic.transforms import registry

from . import cells, large_pages, replicas

torch.set_num_threads(1)  # as many workers as cores run side by side
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # its grammar takes seconds; jsonschema does without
# Dozens of interpreters import the package, each of which would compile it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if hasattr(os, "pidfd_open"):
    replica._started = replicas.copied  # also for fixtures of a module
    if find_spec("jupyter_client") is not None:
        import jupyter_client.launcher

        jupyter_client.launcher.Popen = replicas.Kernel
_OF_FIXES = {"transforms", "verify"}  # folders
_ORIGINALS = [(owner, name, vars(owner).get(name)) for owner, name in torch_private.patched()]


def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores: one of them waits, mostly."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from .sharing import Scheduling

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Nothing of what is loaded is garbage, and to look for some would take longer than to load it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _OF_FIXES & set(item.path.parts):
            item.add_marker("all_fixes")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: a collection of garbage that went through it would copy it into each copy of the process."""
    unseen._hook_lists()  # looked for among what may be garbage
    gc.collect()
    gc.freeze()
    large_pages.use()


@pytest.fixture(autouse=True)
def copies_are_cheap() -> None:
    large_pages.use()


@pytest.fixture(autouse=True)
def first_fix_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a fix ends with the first one, for each of the others takes reruns that most tests have no use for."""
    if request.node.get_closest_marker("all_fixes") is None:
        monkeypatch.setattr(cells, "fixes", 1)


@pytest.fixture(autouse=True)
def short_tracebacks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython takes longer over a traceback with its lines in colour than a small cell takes; tests/shell has them."""
    if "shell" not in request.path.parts:
        monkeypatch.setattr(cells, "tracebacks", "Minimal")


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """A run that was put into the background begins with Ctrl-C ignored; here it interrupts, as in a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def no_gc_callbacks() -> Iterator[None]:
    """For interrupts at random moments.

    Ctrl-C within a garbage collection callback, such as hypothesis', is swallowed by Python. It is then shown by a
    hook of pytest's that parses, and if the collection came within ``ast.parse`` that one fails: "AST constructor
    recursion depth mismatch" (CPython 3.11). People's sessions have neither.
    """
    callbacks, gc.callbacks[:] = list(gc.callbacks), []
    yield
    gc.callbacks[:] = callbacks


@pytest.fixture(autouse=True)
def torch_sees() -> Iterator[None]:
    """A switch of torch's, or a function of ours in torch, left by a test would make others fail, who knows where."""
    yield
    left = torch._C._len_torch_function_stack(), torch._C._is_torch_function_enabled(), torch.is_grad_enabled()
    assert left == (0, True, True)
    assert [name for owner, name, value in _ORIGINALS if vars(owner).get(name) is not value] == []


@pytest.fixture(autouse=True)
def nobody_traces() -> Iterator[None]:
    """A watch yields to a debugger: beside a tracer that a test has left, it names no line."""
    before = sys.gettrace(), threading.gettrace()
    yield
    assert (sys.gettrace(), threading.gettrace()) == before


@pytest.fixture(autouse=True)
def no_thread_stays_in_the_users_code() -> Iterator[None]:
    """Beside a thread in the user's own code a watch names no line for memory that no call of torch's writes."""
    before = set(threading.enumerate())
    yield
    stay = []
    for thread in set(threading.enumerate()) - before:
        thread.join(5 if _runs_user_code(thread) else 0)
        if thread.is_alive() and _runs_user_code(thread):
            stay.append(thread.name)
    assert stay == []


def _runs_user_code(thread: threading.Thread) -> bool:
    return bool(user_stack(sys._current_frames().get(thread.ident or 0)))


@pytest.fixture(autouse=True)
def no_transformation_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """People get the other fixes where one of our rules crashes; here it is an error."""

    def raised(name: str) -> None:
        raise AssertionError(f"{name} crashed") from sys.exc_info()[1]

    monkeypatch.setattr(registry, "passed_over", raised)


@pytest.fixture(autouse=True)
def own_interpreter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests with this mark wait for an interpreter that imports torch, as people do."""
    if request.node.get_closest_marker("own_interpreter") is not None:
        monkeypatch.setattr(replica, "_started", replicas.started)
        if "jupyter_client.launcher" in sys.modules:
            monkeypatch.setattr("jupyter_client.launcher.Popen", subprocess.Popen)


@pytest.fixture(autouse=True)
def a_small_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much this very process has come to hold; what differs in a large session is tested on its own."""
    monkeypatch.setattr(process_memory, "own_bytes", lambda: 0)


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """What another test has compiled in this process is no part of a session."""
    yield
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None:
        utils.counters.clear()
