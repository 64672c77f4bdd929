"""Keeps a rerun from having effects outside the process: files, processes, the network, questions to the person.

An audit hook sees what CPython itself does; a short table of replacements covers the native libraries that open files
without telling Python, and the talk that would only repeat itself (logging, event files), which is muted. Reading, and
what a DataLoader's workers need, stay possible.

Whose effects count: every thread's, except those of threads that were there before. The threads in which autograd runs
a backward on an accelerator are not known to ``threading`` and therefore count, wherever they were started.
"""

from __future__ import annotations

import builtins
import io
import mmap
import os
import sys
import sysconfig
import tempfile
import threading
import types
import urllib.parse
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

__all__ = ["Attempts", "Blocked", "guarded"]


class Blocked(BaseException):
    """A cell tried to reach outside the process. A BaseException, so that ``except Exception`` does not swallow it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Attempts:
    """What was refused. ``first`` is kept even when the cell, or a worker process forked by it, swallowed the error."""

    def __init__(self) -> None:
        # Anonymous shared memory, so that the clause of a forked DataLoader worker arrives here as well.
        self._memory: mmap.mmap | None = mmap.mmap(-1, 1024)
        self._first: str | None = None

    @property
    def first(self) -> str | None:
        if self._memory is None:
            return self._first
        size = int.from_bytes(self._memory[:2], "little")
        return self._memory[2 : 2 + size].decode(errors="replace") if size else None

    def note(self, what: str) -> None:
        if self._memory is None or self.first is not None:
            return
        text = what.encode(errors="replace")[:1000]
        self._memory[2 : 2 + len(text)] = text
        self._memory[:2] = len(text).to_bytes(2, "little")

    def close(self) -> None:
        """Give the shared memory back; ``first`` stays readable."""
        if self._memory is not None:
            self._first = self.first
            self._memory.close()
            self._memory = None


class _Room:
    """One rerun under way: whom it concerns and what it has refused."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.attempts = Attempts()
        current = threading.current_thread()
        self._bystanders = weakref.WeakSet(t for t in threading.enumerate() if t is not current)

    def concerns_me(self) -> bool:
        if os.getpid() != self.pid:
            return True
        # Not current_thread(): that would invent an entry for a thread of autograd's.
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        return thread is None or thread not in self._bystanders

    def let_pass(self, thread: threading.Thread) -> None:
        self._bystanders.add(thread)

    def refuse(self, what: str) -> NoReturn:
        self.attempts.note(what)
        raise Blocked(what)


_room: _Room | None = None
_hooked = False


@contextmanager
def guarded() -> Iterator[Attempts]:
    """While active, effects outside the process raise `Blocked` in every thread but those that existed before."""
    global _room
    _install_hook()
    outer, room = _room, _Room()
    with ExitStack() as undo:
        undo.callback(room.attempts.close)
        for owner, name, replacement in _replacements():
            _replace(undo, owner, name, replacement)
        _room = room
        try:
            yield room.attempts
        finally:
            _room = outer
            if outer is not None and room.attempts.first is not None:
                outer.attempts.note(room.attempts.first)


def replaced() -> Iterator[tuple[Any, str]]:
    """What `guarded` replaces, as (owner, name), for whoever puts things back where an interrupt came in between."""
    yield sys.modules[__name__], "_room"
    for owner, name, _ in _replacements():
        yield owner, name


def _install_hook() -> None:
    global _hooked
    tempfile.gettempdir()  # finds a place by writing a file, once; better now than inside
    if not _hooked:
        sys.addaudithook(_hook)  # can never be removed: hence one for the life of the process
        _hooked = True


def _hook(event: str, args: tuple[Any, ...]) -> None:
    room = _room
    if room is None:
        return
    judge = _JUDGES.get(event)
    if judge is None or not room.concerns_me():
        return
    what = judge(args)
    if what is not None:
        room.refuse(what)


# Each judge gets an audit event's arguments and returns the clause of a refusal, or None.

_Judge = Callable[[tuple[Any, ...]], "str | None"]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_AF_UNIX = 1  # passing file descriptors among DataLoader workers


def _opens(args: tuple[Any, ...]) -> str | None:
    path, mode, flags = args
    if isinstance(path, int):
        return None
    writes = any(c in mode for c in "wax+") if isinstance(mode, str) else False
    if not writes and not (isinstance(flags, int) and flags & _WRITING):
        return None
    return _on_path("writes the file", path)


def _on_path(clause: str, path: Any, dir_fd: Any = -1) -> str | None:
    name = _name(path)
    return None if _is_harmless(name, dir_fd) else f"{clause} {_shown(name)!r}"


def _name(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        return str(path)


def _shown(name: str) -> str:
    return name if len(name) <= 60 else "…" + name[-59:]


def _is_harmless(name: str, dir_fd: Any) -> bool:
    """Nowhere, or what multiprocessing needs to hand a batch to its parent."""
    if name == os.devnull:
        return True
    if isinstance(dir_fd, int) and dir_fd >= 0 and not os.path.isabs(name):
        name = os.path.join(os.path.realpath(f"/proc/self/fd/{dir_fd}"), name)
    path = os.path.abspath(name)
    if path.startswith(("/dev/shm/torch_", "/dev/shm/sem.")):
        return True
    below = os.path.relpath(path, tempfile.gettempdir()) if os.path.isabs(path) else ""
    return below.startswith("pymp-") and ".." not in below


def _path(clause: str, which: int = 0, dir_fd: int | None = None) -> _Judge:
    def judge(args: tuple[Any, ...]) -> str | None:
        return _on_path(clause, args[which], args[dir_fd] if dir_fd is not None else -1)

    return judge


def _makes_folder(args: tuple[Any, ...]) -> str | None:
    """No harm: a folder that is there (makedirs with exist_ok), and what torch's optimizers do on first use, which is to
    import a module that makes its (empty) cache folder.
    """
    path, _, dir_fd = args
    if dir_fd == -1 and os.path.isdir(path):
        return None
    return None if _library_is_imported() else _on_path("makes the folder", args[0], args[2])


def _library_is_imported() -> bool:
    """Whether we are called from within an import, by code of an installed library."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in (__name__, "os", "pathlib", "pathlib._local"):
        frame = frame.f_back
    places = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    if frame is None or not frame.f_code.co_filename.startswith(places):
        return False
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _always(what: str) -> _Judge:
    return lambda args: what


def _popen(args: tuple[Any, ...]) -> str:
    executable, argv = args[0], args[1]
    if isinstance(argv, str | bytes):
        words = _name(argv).split()
    else:
        words = [_name(word) for word in argv or ()]
        if len(words) > 2 and words[1] in ("-c", "/c"):
            words = words[2].split()
    return _process(words[0] if words else executable)


def _process(name: Any) -> str:
    return f"starts a process {_shown(os.path.basename(_name(name)))!r}"


def _command(args: tuple[Any, ...]) -> str:
    words = _name(args[0]).split()
    return _process(words[0] if words else "")


def _forks(args: tuple[Any, ...]) -> str | None:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return None if frame.f_globals.get("__name__") == "multiprocessing.popen_fork" else "forks the process"


def _signals(args: tuple[Any, ...]) -> str | None:
    pid, signal = args[0], args[1]
    own = {os.getpid()}
    if "multiprocessing.process" in sys.modules:
        own |= {child.pid for child in sys.modules["multiprocessing.process"]._children}
    return None if signal == 0 or pid in own else f"sends a signal to process {pid}"


def _reaches(args: tuple[Any, ...]) -> str | None:
    return None if getattr(args[0], "family", None) == _AF_UNIX else "opens a network connection"


def _requests(args: tuple[Any, ...]) -> str | None:
    scheme = urllib.parse.urlsplit(_name(args[0])).scheme
    return None if scheme in ("file", "data") else "opens a network connection"


def _database(args: tuple[Any, ...]) -> str | None:
    name = _name(args[0])
    inside = name in ("", ":memory:") or name.startswith("file::memory:") or "mode=memory" in name
    return None if inside or "mode=ro" in name else f"opens a database {_shown(name)!r}"


_NETWORK = [
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.gethostbyaddr",
    "socket.getnameinfo",
    "http.client.connect",
    "smtplib.connect",
    "smtplib.send",
    "ftplib.connect",
    "ftplib.sendcmd",
    "imaplib.open",
    "imaplib.send",
    "poplib.connect",
    "poplib.putline",
    "nntplib.connect",
    "nntplib.putline",
    "telnetlib.Telnet.open",
    "telnetlib.Telnet.write",
]

_JUDGES: dict[str, _Judge] = {
    "open": _opens,
    "os.remove": _path("removes the file", dir_fd=1),
    "os.rename": _path("renames the file", dir_fd=2),
    "os.mkdir": _makes_folder,
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
    "shutil.chown": _path("changes the file"),
    "shutil.copyfile": _path("writes the file", 1),
    "shutil.copymode": _path("changes the file", 1),
    "shutil.copystat": _path("changes the file", 1),
    "shutil.copytree": _path("writes the folder", 1),
    "shutil.make_archive": _path("writes the file"),
    "shutil.move": _path("moves the file"),
    "shutil.rmtree": _path("removes the folder", dir_fd=1),
    "shutil.unpack_archive": _path("unpacks the file"),
    "subprocess.Popen": _popen,
    "os.system": _command,
    "os.startfile": _command,
    "os.startfile/2": _command,
    "os.exec": _command,
    "os.posix_spawn": _command,
    "os.spawn": lambda args: _process(args[1]),
    "pty.spawn": lambda args: _process(args[0][0] if isinstance(args[0], list | tuple) else args[0]),
    "os.fork": _forks,
    "os.forkpty": _always("starts a process in a terminal"),
    "os.kill": _signals,
    "os.killpg": _signals,
    "socket.connect": _reaches,
    "socket.bind": _reaches,
    "socket.sendto": _reaches,
    "socket.sendmsg": _reaches,
    "urllib.Request": _requests,
    "sqlite3.connect": _database,
    "webbrowser.open": _always("opens a web page"),
    "builtins.breakpoint": _always("starts the debugger"),
    "builtins.input": _always("asks for input"),
    "syslog.syslog": _always("writes to the system's log"),
    "resource.setrlimit": _always("changes the limits of the process"),
    "sys.addaudithook": _always("installs an audit hook"),
    "winreg.CreateKey": _always("changes the registry"),
    "winreg.DeleteKey": _always("changes the registry"),
    "winreg.DeleteValue": _always("changes the registry"),
    "winreg.SetValue": _always("changes the registry"),
} | dict.fromkeys(_NETWORK, _always("opens a network connection"))


# Replacements: what the audit hook is not told of.

_Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def _mine() -> _Room | None:
    return _room if _room is not None and _room.concerns_me() else None


def _refusing(what: str) -> _Wrapper:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            if room := _mine():
                room.refuse(what)
            return original(*args, **kwargs)

        return refused

    return wrap


def _muting(original: Callable[..., Any]) -> Callable[..., Any]:
    def muted(*args: Any, **kwargs: Any) -> Any:
        return None if _mine() else original(*args, **kwargs)

    return muted


def _writing(which: int, mode: int | None = None) -> _Wrapper:
    """For a native writer: argument `which` is a path or an open buffer, argument `mode` (if any) starts with r to read."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, **kwargs: Any) -> Any:
            room = _mine()
            target = args[which] if len(args) > which else next(iter(kwargs.values()), None)
            if (
                room is not None
                and isinstance(target, str | bytes | os.PathLike)
                and not _only_reads(args, kwargs, mode)
            ):
                what = _on_path("writes the file", target)
                if what is not None:
                    room.refuse(what)
            return original(*args, **kwargs)

        return checked

    return wrap


def _only_reads(args: tuple[Any, ...], kwargs: dict[str, Any], mode: int | None) -> bool:
    if mode is None:
        return False
    return bool((args[mode] if len(args) > mode else kwargs.get("mode", "r")) == "r")


def _sending(original: Callable[..., Any]) -> Callable[..., Any]:
    def send(sock: Any, *args: Any, **kwargs: Any) -> Any:
        room = _mine()
        if room is not None and sock.family != _AF_UNIX:
            room.refuse("sends over the network")
        return original(sock, *args, **kwargs)

    return send


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    """A forked child takes the guard along; a fresh interpreter does not, and is only let through for a DataLoader."""

    def start(process: Any) -> Any:
        room = _mine()
        method = getattr(process, "_start_method", None) or sys.modules["multiprocessing"].get_start_method()
        loads = getattr(getattr(process, "_target", None), "__module__", "") == "torch.utils.data._utils.worker"
        if room is not None and method != "fork" and not loads:
            room.refuse(_process(getattr(process, "name", "python")))
        return original(process)

    return start


def _following(original: Callable[..., Any]) -> Callable[..., Any]:
    """A thread that is started by one that does not concern us does not concern us either."""

    def start(thread: threading.Thread) -> None:
        room = _room
        if room is not None and not room.concerns_me():
            room.let_pass(thread)
        original(thread)

    return start


# Only what is already imported is replaced: a rerun imports what the first run did.
_TABLE: tuple[tuple[str, str, _Wrapper], ...] = (
    ("threading", "Thread.start", _following),
    ("webbrowser", "open", _refusing("opens a web page")),
    ("getpass", "getpass", _refusing("asks for input")),
    ("multiprocessing.process", "BaseProcess.start", _starting),
    ("socket", "socket.send", _sending),
    ("socket", "socket.sendall", _sending),
    ("ssl", "SSLSocket.send", _sending),
    ("ssl", "SSLSocket.sendall", _sending),
    ("torch._C", "PyTorchFileWriter", _writing(0)),
    ("torch.jit", "RecursiveScriptModule.save", _writing(1)),
    ("safetensors.torch", "serialize_file", _writing(1)),
    ("safetensors.numpy", "serialize_file", _writing(1)),
    ("h5py", "File.__init__", _writing(1, mode=2)),
    ("pyarrow.parquet", "ParquetWriter.__init__", _writing(1)),
    ("cv2", "imwrite", _writing(0)),
    ("cv2", "VideoWriter", _writing(0)),
    ("logging", "Logger.callHandlers", _muting),
    ("tensorboard.summary.writer.event_file_writer", "EventFileWriter.add_event", _muting),
    ("wandb.sdk.wandb_run", "Run._log", _muting),
)


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    yield builtins, "input", _refusing("asks for input")(builtins.input)
    yield sys, "stdin", _Deaf(sys.stdin)
    yield sys, "dont_write_bytecode", True
    for module, dotted, wrap in _TABLE:
        owner: Any = sys.modules.get(module)
        *parents, name = dotted.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        original = getattr(owner, name, None) if owner is not None else None
        if original is not None:
            yield owner, name, wrap(original)


_ABSENT = object()


def _replace(undo: ExitStack, owner: Any, name: str, replacement: Any) -> None:
    """Set owner.name, and on the way out put back what stood there, or nothing if it was inherited."""
    before = owner.__dict__.get(name, _ABSENT)

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
        if room := _mine():
            room.refuse("asks for input")
        return getattr(self._original, method)(*args)
