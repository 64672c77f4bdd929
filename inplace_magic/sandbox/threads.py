"""What waits for other threads, in a copy of the process, which has only the one that made it.

A pool that existed gets new workers of its own when it is first used. Whoever waits for a thread that is not there would
wait until the limit: that ends at once, with a clause that says so.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .side_effects import refuse_wait

_SESSION = os.getpid()  # the process that imported this

_POOLS = (
    ("concurrent.futures.thread", "ThreadPoolExecutor", ("submit",), "_revive_threads"),
    ("concurrent.futures.process", "ProcessPoolExecutor", ("submit", "map"), "_revive_processes"),
    ("multiprocessing.pool", "Pool", ("_check_running",), "_revive_pool"),
)


@contextmanager
def without_others() -> Iterator[None]:
    """While active, in a copy: pools work, and waiting for a thread that is not there is refused."""
    if os.getpid() == _SESSION:
        yield
        return
    seen: set[int] = set()  # pools that were given workers, and those that were made since
    with ExitStack() as undo:
        _replace(undo, threading.Condition, "wait", _waiting(threading.Condition.wait))
        for module, name, methods, revive in _POOLS:
            owner = getattr(sys.modules.get(module), name, None)
            if owner is None:
                continue
            _replace(undo, owner, "__init__", _noted(owner.__init__, seen))
            for method in methods:
                _replace(undo, owner, method, _revived(getattr(owner, method), globals()[revive], seen))
        loaders = sys.modules.get("torch.utils.data.dataloader")
        if loaders is not None:
            _replace(undo, loaders.DataLoader, "__iter__", _own_workers(loaders.DataLoader.__iter__))
            drawing = loaders._MultiProcessingDataLoaderIter
            _replace(undo, drawing, "__init__", _born_here(drawing.__init__))
            _replace(undo, drawing, "_next_data", _drawn(drawing._next_data))
        yield


def _replace(undo: ExitStack, owner: Any, name: str, replacement: Any) -> None:
    before = getattr(owner, name)
    undo.callback(setattr, owner, name, before)
    setattr(owner, name, replacement)


def _alone() -> bool:
    """Whether no other thread of Python's is there that could wake this one."""
    me = threading.current_thread()
    return not any(thread is not me and thread.is_alive() for thread in threading.enumerate()) and not threading._limbo  # type: ignore[attr-defined]


def _waiting(plain: Callable[..., bool]) -> Callable[..., bool]:
    def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
        if timeout is None and _alone():
            refuse_wait("waits for another thread, which a copy of the process does not have")
        return plain(condition, timeout)

    return wait


# ---- pools ----------------------------------------------------------------------------------------------------------


def _noted(plain: Callable[..., None], seen: set[int]) -> Callable[..., None]:
    def __init__(pool: Any, *args: Any, **kwargs: Any) -> None:
        seen.add(id(pool))
        plain(pool, *args, **kwargs)

    return __init__


def _revived(plain: Callable[..., Any], revive: Callable[[Any], None], seen: set[int]) -> Callable[..., Any]:
    def used(pool: Any, *args: Any, **kwargs: Any) -> Any:
        if id(pool) not in seen:
            seen.add(id(pool))
            revive(pool)
        return plain(pool, *args, **kwargs)

    return used


_LET_GO: list[Any] = []  # of the session's pools: what would end its workers if it were collected


def _revive_threads(pool: Any) -> None:
    if not pool._shutdown:
        _again(pool, pool._max_workers, pool._thread_name_prefix, pool._initializer, pool._initargs)


def _revive_processes(pool: Any) -> None:
    if not pool._shutdown_thread:
        _again(pool, pool._max_workers, pool._mp_context, pool._initializer, pool._initargs)


def _revive_pool(pool: Any) -> None:
    if getattr(pool, "_state", None) == "RUN":
        _again(pool, pool._processes, pool._initializer, pool._initargs)


def _again(pool: Any, *args: Any) -> None:
    _LET_GO.append(dict(vars(pool)))
    type(pool).__init__(pool, *args)


# ---- DataLoaders ----------------------------------------------------------------------------------------------------


def _own_workers(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A loader whose workers persist starts others: those it has are the session's."""

    def __iter__(loader: Any) -> Any:
        kept = loader._iterator
        if kept is not None and getattr(kept, "_born", None) != os.getpid():
            _LET_GO.append(kept)
            loader._iterator = None
        return plain(loader)

    return __iter__


def _born_here(plain: Callable[..., None]) -> Callable[..., None]:
    def __init__(iterator: Any, *args: Any, **kwargs: Any) -> None:
        iterator._born = os.getpid()
        plain(iterator, *args, **kwargs)

    return __init__


def _drawn(plain: Callable[..., Any]) -> Callable[..., Any]:
    def _next_data(iterator: Any) -> Any:
        if getattr(iterator, "_born", None) != os.getpid():
            refuse_wait("goes on with a DataLoader's iterator, whose workers belong to the session")
        return plain(iterator)

    return _next_data
