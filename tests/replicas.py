"""Replicas and kernels for tests: copies of one interpreter that has torch, where people wait for one to start.

To start an interpreter and import what a session has imported takes seconds; a worker of pytest does it once. The copy
holds nothing of the tests': its parent never ran one.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

from inplace_magic.sandbox import replica

from . import large_pages

started = replica._started  # without a detour
# It is no child of the session, which has none that it does not know of.
_SERVER = "import os; os.fork() and os._exit(0); import sys; sys.path[:] = {path!r}; from tests.replicas import serve; serve({descriptor})"
_server: socket.socket | None = None


class Copy:
    """A process that is nobody's child here, with what is asked of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid, self._handle = pid, os.pidfd_open(pid)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def poll(self) -> int | None:
        """None while it runs. How it ended only its parent knows."""
        return 0 if self._handle < 0 or select.select([self._handle], [], [], 0)[0] else None

    def wait(self) -> int:
        if self._handle >= 0:
            select.select([self._handle], [], [])
            os.close(self._handle)
            self._handle = -1
        return 0


def copied(pipe: Connection, carrier: int) -> Any:
    """Stands in for ``replica._started``."""
    request = {
        "folder": replica.current_folder() or os.path.abspath(os.sep),
        "environment": dict(os.environ),
        "modules": [name for name in list(sys.modules) if name.startswith("torch.")],
    }
    return Copy(_copied(request, pipe.fileno(), carrier))


class Kernel(Copy):
    """Stands in for the `subprocess.Popen` by which jupyter_client starts a kernel."""

    stdout = stderr = None

    def __init__(self, command: list[str], *, env: dict[str, str], cwd: str | None, **streams: Any) -> None:
        arguments = command[command.index("ipykernel_launcher") :]
        request = {"folder": cwd or os.getcwd(), "environment": env, "kernel": arguments}
        request["modules"] = ["ipykernel.kernelapp"]
        super().__init__(_copied(request))
        self.stdin = io.BytesIO()


def _copied(request: dict[str, Any], *given: int) -> int:
    """The number of a new copy, which gets these descriptors as well."""
    data = json.dumps(request | {"path": [entry for entry in sys.path if isinstance(entry, str)]}).encode()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGALRM])  # a question has its answer
    try:
        server = _started_server()
        socket.send_fds(server, [len(data).to_bytes(8, "little")], given)
        server.sendall(data)
        return int.from_bytes(_received(server, 8), "little")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started_server() -> socket.socket:
    global _server
    if _server is None:
        _server, theirs = socket.socketpair()
        path = [entry for entry in sys.path if isinstance(entry, str)]
        code = _SERVER.format(path=path, descriptor=theirs.fileno())
        nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with theirs:
            subprocess.run([sys.executable, "-c", code], pass_fds=[theirs.fileno()], check=True, **nothing)
        atexit.register(_server.close)
    return _server


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


# ---- in the process that is copied -----------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Its whole life, until the other end is closed."""
    from inplace_magic.sandbox.replica.server import import_contained
    from inplace_magic.sandbox.replica.shells import interactive_shell

    assert interactive_shell
    import_contained(["IPython.core.interactiveshell", "inplace_magic.record.requests"])
    signal.signal(signal.SIGCHLD, _reap)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with socket.socket(fileno=descriptor) as session:
        while True:
            head, given, _, _ = socket.recv_fds(session, 8, 2)
            if not head:
                return
            request = json.loads(_received(session, int.from_bytes(head, "little")))
            sys.path[:] = request["path"]
            import_contained(name for name in request["modules"] if name not in sys.modules)
            large_pages.use()
            on_its_own, done = os.pipe()
            pid = os.fork()
            if pid == 0:
                session.detach()
                os.close(descriptor)
                os.setsid()
                os.close(on_its_own), os.close(done)
                _become(request, *given)
            for one in (*given, done):
                os.close(one)
            os.read(on_its_own, 1)  # until it has a group: signals may be sent to that
            os.close(on_its_own)
            session.sendall(pid.to_bytes(8, "little"))


def _reap(number: int, frame: Any) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(request: dict[str, Any], *given: int) -> None:
    """Never returns."""
    from inplace_magic.sandbox import threads

    try:
        threads._SESSION = os.getpid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        if "kernel" in request:
            _serve_a_notebook(request["kernel"])
        else:
            from inplace_magic.sandbox.replica.server import main

            main(*given, os.getppid())
    finally:
        os._exit(1)


def _serve_a_notebook(arguments: list[str]) -> None:
    from ipykernel.kernelapp import launch_new_instance

    sys.argv = arguments
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    sys.path.insert(0, "")
    launch_new_instance()
