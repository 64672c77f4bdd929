"""What surrounds a session's objects: random states, torch's switches, the interpreter's and the shell's own state."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from .. import side_effects
from . import private
from .containers import restore_dict, restore_list

Restore = Callable[[], Any]


def capture(shell: Any) -> list[Restore]:
    """The ways back, to be taken in this order."""
    return [way for part in _PARTS for way in part(shell)]


def restore(ways: list[Restore]) -> Iterator[str]:
    for way in ways:
        try:
            way()
        except Exception as e:
            yield f"{getattr(way, '__name__', 'a setting')}: {e}"


def own_thread(namespace: dict[str, Any]) -> str | None:
    """The name of a running thread that runs code of the session: what it does meanwhile must not be undone."""
    for thread in threading.enumerate():
        work = getattr(thread, "_target", None) or getattr(type(thread), "run", None)
        if thread is not threading.current_thread() and getattr(work, "__globals__", None) is namespace:
            return thread.name
    return None


def _setting(read: Callable[[], Any], write: Callable[[Any], Any]) -> Restore:
    """Write only where it changed: some writers start things."""
    before = read()

    def back() -> None:
        if read() != before:
            write(before)

    back.__name__ = getattr(write, "__name__", "a setting")
    return back


def _attribute(owner: Any, name: str) -> Iterator[Restore]:
    def read() -> Any:  # of a class what lies in it: asking for a method would make a new object each time
        return vars(owner).get(name, missing) if isinstance(owner, type) else getattr(owner, name, missing)

    missing = object()
    before = read()

    def back() -> None:
        now = read()
        if now is before:
            return
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    back.__name__ = name
    yield back


def _contents(container: list[Any] | dict[Any, Any]) -> Iterator[Restore]:
    """A list or dict, by what it holds."""
    if isinstance(container, list):
        yield partial(restore_list, container, list(container))
    else:
        yield partial(restore_dict, container, list(container.items()))


# Interpreter.


def _interpreter(shell: Any) -> Iterator[Restore]:
    for name in ("stdout", "stderr", "stdin", "displayhook", "excepthook", "unraisablehook", "path", "argv"):
        yield from _attribute(sys, name)
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        yield from _attribute(sys, name)
    yield from _contents(sys.path)
    yield from _contents(sys.argv)
    yield _setting(sys.getrecursionlimit, sys.setrecursionlimit)
    yield _setting(os.getcwd, os.chdir)
    yield _setting(sys.gettrace, sys.settrace)
    yield _environment()
    if threading.current_thread() is threading.main_thread():
        for number in signal.valid_signals() - {signal.SIGINT}:  # that one is seen to at the very end
            if signal.getsignal(number) is not None:
                yield _setting(partial(signal.getsignal, number), partial(signal.signal, number))


def _environment() -> Restore:
    before = dict(os.environ)

    def environment() -> None:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return environment


def _warnings(shell: Any) -> Iterator[Restore]:
    for name in ("showwarning", "_showwarnmsg_impl", "formatwarning", "filters"):
        yield from _attribute(warnings, name)
    filters: Any = warnings.filters
    before = list(filters)

    def warning_filters() -> None:
        if list(filters) != before:
            warnings.resetwarnings()  # also tells the interpreter that its caches are stale
            filters[:] = before

    yield warning_filters


# torch.


def _modes(shell: Any) -> Iterator[Restore]:
    yield from private.stacks()
    for owner, name in (*private.patched(), *side_effects.replaced()):
        yield from _attribute(owner, name)
    for hooks in private.step_hooks():
        yield from _contents(hooks)
    yield _setting(torch.is_grad_enabled, torch.set_grad_enabled)
    anomaly = torch.is_anomaly_check_nan_enabled
    yield _setting(lambda: (torch.is_anomaly_enabled(), anomaly()), lambda v: torch.set_anomaly_enabled(*v))
    for device in ("cpu", *_accelerators()):
        yield _setting(partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device))
        yield _setting(partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device))
    yield _setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled)
    yield _setting(torch.get_default_dtype, torch.set_default_dtype)
    yield _setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1]),
    )
    yield from _attribute(torch.utils.deterministic, "fill_uninitialized_memory")
    yield _setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)
    yield _setting(torch.is_warn_always_enabled, torch.set_warn_always)
    for name in ("enabled", "benchmark", "deterministic"):
        yield _setting(partial(getattr, torch.backends.cudnn, name), partial(setattr, torch.backends.cudnn, name))
    yield _setting(torch.get_num_threads, torch.set_num_threads)
    options = private.print_options()
    if options is not None:
        yield from _contents(vars(options))


def _accelerators() -> list[str]:
    """Kinds of devices in use. A kind that was not started is not asked: asking could start it."""
    kinds = [kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_initialized()]
    return kinds + (["mps"] if torch.backends.mps.is_available() else [])


def _numpy() -> Any:
    return sys.modules.get("numpy")


def _numpy_settings(shell: Any) -> Iterator[Restore]:
    np = _numpy()
    if np is not None:
        yield _setting(np.geterr, lambda before: np.seterr(**before))
        yield _setting(np.get_printoptions, lambda before: np.set_printoptions(**before))


def _random(shell: Any) -> Iterator[Restore]:
    """Comes last: an import made on the way back may draw."""
    yield _state(random.getstate, random.setstate)
    np = _numpy()
    if np is not None:
        yield _state(np.random.get_state, np.random.set_state)
    yield _state(torch.get_rng_state, torch.set_rng_state)
    for kind in _accelerators():
        if kind == "mps":
            yield _state(torch.mps.get_rng_state, torch.mps.set_rng_state)
            continue
        for generator in getattr(torch, kind).default_generators:  # its state lies on the host: no synchronisation
            yield _state(generator.get_state, generator.set_state)


def _state(read: Callable[[], Any], write: Callable[[Any], Any]) -> Restore:
    before = read()

    def random_state() -> None:
        write(before)

    return random_state


# The shell, and figures.


def _shell(shell: Any) -> Iterator[Restore]:
    for owner in (shell, getattr(shell, "displayhook", None)):
        if owner is not None and not isinstance(owner, types.SimpleNamespace):
            yield from _contents(vars(owner))
            if "_trait_values" in vars(owner):
                yield from _contents(vars(owner)["_trait_values"])
    for name in ("user_ns_hidden", "ast_transformers", "input_transformers_post", "input_transformers_cleanup"):
        container = getattr(shell, name, None)
        if isinstance(container, list | dict):
            yield from _contents(container)
    for callbacks in getattr(getattr(shell, "events", None), "callbacks", {}).values():
        yield from _contents(callbacks)
    yield from _history(getattr(shell, "history_manager", None))


def _history(history: Any) -> Iterator[Restore]:
    if history is None:
        return
    for name in ("input_hist_parsed", "input_hist_raw", "output_hist", "output_hist_reprs", "dir_hist"):
        if isinstance(getattr(history, name, None), list | dict):
            yield from _contents(getattr(history, name))
    for name in ("_i", "_ii", "_iii", "_i00"):
        yield from _attribute(history, name)


def _figures(shell: Any) -> Iterator[Restore]:
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return
    before = set(plt.get_fignums())

    def figures() -> None:
        for number in set(plt.get_fignums()) - before:
            plt.close(number)

    yield figures
    import matplotlib

    parameters = dict(matplotlib.rcParams)
    yield _setting(lambda: dict(matplotlib.rcParams), lambda _: dict.update(matplotlib.rcParams, parameters))


_PARTS = (_interpreter, _warnings, _modes, _numpy_settings, _shell, _figures, _random)
