"""What CPython tells of itself (audit events), judged: an effect outside of a rerun is refused before it happens."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable
from typing import Any

from . import refused as r
from .run import Run

__all__ = ["JUDGES", "name_of", "process_clause", "shown"]

Judge = Callable[[Run, tuple[Any, ...]], None]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_AF_UNIX = 1
_DEVICES = frozenset("/dev/" + name for name in ["null", "zero", "full", "random", "urandom"])


def name_of(path: object) -> str:
    """A path argument as text."""
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        return str(path)


def shown(name: str) -> str:
    return name if len(name) <= 60 else "…" + name[-59:]


# Files.


def _opens(run: Run, args: tuple[Any, ...]) -> None:
    path, mode, flags = args
    if isinstance(path, int):
        return
    name = name_of(path)
    _special(run, name)
    writes = any(c in mode for c in "wax+") if isinstance(mode, str) else False
    if writes or (isinstance(flags, int) and flags & _WRITING):
        _changed(run, "writes the file", name)


def _special(run: Run, name: str) -> None:
    """A device, a pipe or a socket is one and the same for everybody."""
    try:
        kind = _stat(name).st_mode
    except (OSError, ValueError):
        return
    if stat.S_ISCHR(kind) and os.path.realpath(name) not in _DEVICES:
        run.refuse(r.RefusedFile, f"opens the device {shown(name)!r}", name)
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        run.refuse(r.RefusedFile, f"opens the pipe {shown(name)!r}", name)


_stat = os.stat


def _changed(run: Run, clause: str, path: object, dir_fd: object = -1) -> None:
    name = name_of(path)
    if name == os.devnull or isinstance(path, int):
        return
    if isinstance(dir_fd, int) and dir_fd >= 0 and not os.path.isabs(name):
        name = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
    if not run.files.is_private(os.path.abspath(name)):
        run.refuse(r.RefusedFile, f"{clause} {shown(name_of(path))!r}", name_of(path))


def _path(clause: str, which: int = 0, dir_fd: int | None = None) -> Judge:
    def judge(run: Run, args: tuple[Any, ...]) -> None:
        _changed(run, clause, args[which], args[dir_fd] if dir_fd is not None else -1)

    return judge


# Processes.


def process_clause(name: object) -> str:
    return f"starts a process {shown(os.path.basename(name_of(name)))!r}"


def _starts(run: Run, name: object) -> None:
    run.refuse(r.RefusedProcess, process_clause(name), name_of(name))


def _popen(run: Run, args: tuple[Any, ...]) -> None:
    executable, argv = args[0], args[1]
    if isinstance(argv, str | bytes):
        words = name_of(argv).split()
    else:
        words = [name_of(word) for word in argv or ()]
        if len(words) > 2 and words[1] in ("-c", "/c"):
            words = words[2].split()
    _starts(run, words[0] if words else executable)


def _command(run: Run, args: tuple[Any, ...]) -> None:
    words = name_of(args[0]).split()
    _starts(run, words[0] if words else "")


def _forks(run: Run, args: tuple[Any, ...]) -> None:
    """A DataLoader's workers, and other children by multiprocessing, take the guard along."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(__package__):
        frame = frame.f_back
    if frame.f_globals.get("__name__") != "multiprocessing.popen_fork":
        run.refuse(r.RefusedFork, "forks the process")


def _signals(run: Run, args: tuple[Any, ...]) -> None:
    pid, number = args[0], args[1]
    if number == 0:
        return
    if pid == run.pid == os.getpid() and number in (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGHUP):
        raise r.EndOfRun
    if pid != os.getpid() and (pid <= 0 or pid in run.inherited or not _descends(pid, run.pid)):
        run.refuse(r.RefusedSignal, f"sends a signal to process {pid}")


def _descends(pid: int, ancestor: int) -> bool:
    """Whether a process is a child, or a child's child, of the run."""
    if not os.path.isdir("/proc/self"):
        known = sys.modules.get("multiprocessing.process")
        return known is not None and any(child.pid == pid for child in known._children)
    for _ in range(8):
        if pid == ancestor:
            return True
        try:
            with open(f"/proc/{pid}/stat") as text:
                pid = int(text.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


# Connections.


def _connects(run: Run, args: tuple[Any, ...]) -> None:
    family = getattr(args[0], "family", None)
    if family == _AF_UNIX:
        _service(run, args[1])
    else:
        run.refuse(r.RefusedConnection, "opens a network connection")


def _service(run: Run, address: object) -> None:
    """A socket that the run made itself, as a DataLoader's workers do to hand over descriptors, is let through."""
    name = name_of(address)
    try:
        ours = bool(name) and name[0] != "\0" and _stat(name).st_mtime >= run.since - 1
    except OSError:
        return  # there is none: the error of the operating system is the answer
    if not ours or not run.files.is_private(os.path.abspath(name)):
        run.refuse(r.RefusedConnection, f"talks to the service {shown(name)!r}")


def _binds(run: Run, args: tuple[Any, ...]) -> None:
    if getattr(args[0], "family", None) != _AF_UNIX:
        run.refuse(r.RefusedConnection, "opens a network connection")
    name = name_of(args[1])
    if name[:1] == "\0" or not run.files.is_private(os.path.abspath(name)):
        run.refuse(r.RefusedConnection, f"offers the service {shown(name)!r}")


def _looks_up(run: Run, args: tuple[Any, ...]) -> None:
    run.refuse(r.RefusedName, "opens a network connection")


def _refuses(kind: type[r.Refused], what: str) -> Judge:
    return lambda run, args: run.refuse(kind, what)


JUDGES: dict[str, Judge] = {
    "open": _opens,
    "os.remove": _path("removes the file", dir_fd=1),
    "os.rename": _path("renames the file", dir_fd=2),
    "os.mkdir": _path("makes the folder", dir_fd=2),
    "os.rmdir": _path("removes the folder", dir_fd=1),
    "os.chmod": _path("changes the file", dir_fd=2),
    "os.chown": _path("changes the file", dir_fd=3),
    "os.chflags": _path("changes the file"),
    "os.utime": _path("changes the file", dir_fd=3),
    "os.truncate": _path("shortens the file"),
    "os.link": _path("links the file", 1, dir_fd=3),
    "os.symlink": _path("links the file", 1, dir_fd=2),
    "os.setxattr": _path("changes the file"),
    "os.removexattr": _path("changes the file"),
    "subprocess.Popen": _popen,
    "os.system": _command,
    "os.startfile": _command,
    "os.startfile/2": _command,
    "os.exec": _command,
    "os.posix_spawn": _command,
    "os.spawn": lambda run, args: _starts(run, args[1]),
    "pty.spawn": lambda run, args: _starts(run, args[0][0] if isinstance(args[0], list | tuple) else args[0]),
    "os.fork": _forks,
    "os.forkpty": _refuses(r.RefusedFork, "starts a process in a terminal"),
    "os.kill": _signals,
    "os.killpg": lambda run, args: _signals(run, (-args[0], args[1])),
    "socket.connect": _connects,
    "socket.bind": _binds,
    "socket.sendto": _connects,
    "socket.sendmsg": lambda run, args: _connects(run, args) if args[1] is not None else None,
    "socket.getaddrinfo": _looks_up,
    "socket.gethostbyname": _looks_up,
    "socket.gethostbyaddr": _looks_up,
    "socket.getnameinfo": _looks_up,
    "webbrowser.open": _refuses(r.RefusedProcess, "opens a web page"),
    "builtins.breakpoint": _refuses(r.RefusedQuestion, "starts the debugger"),
    "builtins.input": _refuses(r.RefusedQuestion, "asks for input"),
    "syslog.syslog": _refuses(r.RefusedFile, "writes to the system's log"),
    "winreg.CreateKey": _refuses(r.RefusedFile, "changes the registry"),
    "winreg.DeleteKey": _refuses(r.RefusedFile, "changes the registry"),
    "winreg.DeleteValue": _refuses(r.RefusedFile, "changes the registry"),
    "winreg.SetValue": _refuses(r.RefusedFile, "changes the registry"),
}
