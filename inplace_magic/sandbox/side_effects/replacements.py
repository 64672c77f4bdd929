"""What stands in for a function while a rerun is under way, where CPython tells nothing of what it does.

Only what is already imported is replaced: a rerun imports what the first run did.
"""

from __future__ import annotations

import builtins
import io
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from . import refused as r
from . import run as runs
from .judges import process_clause

__all__ = ["Function", "Replacement", "find", "replace", "replacements"]

Function = Callable[..., Any]
Replacement = tuple[object, str, object]  # owner, name, what stands in
_AF_UNIX = 1
_NO_SUCH_COMMAND = 127


def _refusing(kind: type[r.Refused], what: str) -> Callable[[Function], Function]:
    def wrap(original: Function) -> Function:
        def refused(*args: Any, **kwargs: Any) -> Any:
            if run := runs.mine():
                run.refuse(kind, what)
            return original(*args, **kwargs)

        return refused

    return wrap


def _system(original: Function) -> Function:
    """As where the shell finds no such command: ``os.system`` raises nothing."""

    def system(command: Any) -> int:
        if run := runs.mine():
            _note_command(run, command)
            return _NO_SUCH_COMMAND << 8
        return int(original(command))

    return system


def _output(nothing: Any) -> Callable[[Function], Function]:
    """The same for what returns the output of a command, as ``files = !ls`` does."""

    def wrap(original: Function) -> Function:
        def output(command: Any, *args: Any, **kwargs: Any) -> Any:
            if run := runs.mine():
                _note_command(run, command)
                return nothing
            return original(command, *args, **kwargs)

        return output

    return wrap


def _note_command(run: runs.Run, command: Any) -> None:
    words = os.fsdecode(command).split() if isinstance(command, str | bytes) else list(command)
    run.attempts.note(process_clause(words[0] if words else ""))


def _leaving(original: Function) -> Function:
    """Leaving the process at once is the end of the run; a worker of the run does leave."""

    def leave(*status: int) -> Any:
        run = runs.mine()
        if run is not None and run.pid == os.getpid():
            raise r.EndOfRun
        return original(*status)

    return leave


def _sending(original: Function) -> Function:
    def send(sock: Any, *args: Any, **kwargs: Any) -> Any:
        run = runs.mine()
        if run is not None and (sock.family != _AF_UNIX or not _is_socket(sock.fileno())):
            run.refuse(r.RefusedConnection, "sends over a connection")
        return original(sock, *args, **kwargs)

    return send


def _is_socket(descriptor: int) -> bool:
    """Those that were open when the run began are not any more."""
    return descriptor < 0 or stat.S_ISSOCK(os.fstat(descriptor).st_mode)


def _starting(original: Function) -> Function:
    """A forked child takes the guard along; a fresh interpreter does not, and is only let through for a DataLoader."""

    def start(process: Any) -> Any:
        run = runs.mine()
        method = getattr(process, "_start_method", None) or sys.modules["multiprocessing"].get_start_method()
        loads = getattr(getattr(process, "_target", None), "__module__", "") == "torch.utils.data._utils.worker"
        if run is not None and method != "fork" and not loads:
            run.refuse(r.RefusedFork, process_clause(getattr(process, "name", "python")))
        return original(process)

    return start


def _following(original: Function) -> Function:
    """A thread that is started by one that does not concern us does not concern us either."""

    def start(thread: threading.Thread) -> None:
        run = runs.current
        if run is not None and not run.concerns_me():
            run.let_pass(thread)
        original(thread)

    return start


def _pausing(original: Function) -> Function:
    """An event file whose writing thread stayed in the session would take ten events and then wait for ever."""

    def write(writer: Any, *args: Any, **kwargs: Any) -> Any:
        thread = getattr(getattr(writer, "_async_writer", None), "_worker", None)
        if runs.mine() and (thread is None or not thread.is_alive()):
            return None
        return original(writer, *args, **kwargs)

    return write


def _muting(original: Function) -> Function:
    def muted(*args: Any, **kwargs: Any) -> Any:
        return None if runs.mine() else original(*args, **kwargs)

    return muted


_EVENT_FILE = "tensorboard.summary.writer.event_file_writer"
_TABLE: tuple[tuple[str, str, Callable[[Function], Function]], ...] = (
    ("os", "system", _system),
    ("subprocess", "getstatusoutput", _output((_NO_SUCH_COMMAND, ""))),
    ("IPython.utils._process_common", "process_handler", _output(None)),
    ("os", "_exit", _leaving),
    ("os", "abort", _leaving),
    ("threading", "Thread.start", _following),
    ("webbrowser", "open", _refusing(r.RefusedProcess, "opens a web page")),
    ("getpass", "getpass", _refusing(r.RefusedQuestion, "asks for input")),
    ("multiprocessing.process", "BaseProcess.start", _starting),
    ("socket", "socket.send", _sending),
    ("socket", "socket.sendall", _sending),
    ("ssl", "SSLSocket.send", _sending),
    ("ssl", "SSLSocket.sendall", _sending),
    ("torch.distributed", "TCPStore", _refusing(r.RefusedConnection, "opens a network connection")),
    ("torch.distributed.rendezvous", "TCPStore", _refusing(r.RefusedConnection, "opens a network connection")),
    (_EVENT_FILE, "EventFileWriter.add_event", _pausing),
    (_EVENT_FILE, "EventFileWriter.flush", _pausing),
    (_EVENT_FILE, "EventFileWriter.close", _pausing),
    ("wandb", "_attach", _muting),  # by which a run in another process finds its service
    ("wandb.sdk.interface.interface_sock", "InterfaceSock._publish", _muting),
    ("wandb.sdk.wandb_run", "Run._log", _muting),
    ("wandb.sdk.wandb_run", "Run._finish", _muting),
)


def replacements() -> Iterator[Replacement]:
    """What is replaced, whatever becomes of files."""
    yield builtins, "input", _refusing(r.RefusedQuestion, "asks for input")(builtins.input)
    yield sys, "stdin", _Deaf(sys.stdin)
    yield sys, "dont_write_bytecode", True
    for module, dotted, wrap in _TABLE:
        found = find(module, dotted)
        if found is not None:
            owner, name, original = found
            yield owner, name, wrap(original)


def find(module: str, dotted: str) -> tuple[Any, str, Any] | None:
    """(owner, name, what stands there) of a name in a module, if that is imported and has it."""
    owner: Any = sys.modules.get(module)
    *parents, name = dotted.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    original = getattr(owner, name, None) if owner is not None else None
    return None if original is None else (owner, name, original)


_ABSENT = object()


def replace(undo: ExitStack, owner: Any, name: str, replacement: object) -> None:
    """Set owner.name, and on the way out put back what stood there, or nothing if it was inherited."""
    before = getattr(owner, name) if name == "__defaults__" else owner.__dict__.get(name, _ABSENT)

    def restore() -> None:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    undo.callback(restore)
    setattr(owner, name, replacement)


class _Deaf(io.TextIOBase):
    """Stands in for sys.stdin: asking it is asking the person."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return int(self._ask("fileno"))

    def read(self, size: int | None = -1, /) -> str:
        return str(self._ask("read", size))

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        return str(self._ask("readline", size))

    def _ask(self, method: str, *args: Any) -> Any:
        if run := runs.mine():
            run.refuse(r.RefusedQuestion, "asks for input")
        return getattr(self._original, method)(*args)
