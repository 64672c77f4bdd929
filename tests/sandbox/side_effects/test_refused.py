"""Real attempts to reach outside of a process that has no files of its own: refused; everything else, untouched."""

# ruff: noqa: SIM115

from __future__ import annotations

import builtins
import getpass
import io
import logging
import multiprocessing
import os
import queue
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import types
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import numpy as np
import pytest
import torch

from inplace_magic.sandbox import side_effects
from inplace_magic.sandbox.side_effects import EndOfRun, Refused, contained, ended_by
from inplace_magic.sandbox.side_effects import run as runs
from tests.cells import new_shell


@pytest.fixture(autouse=True)
def workshop(tmp_path, monkeypatch):
    """A folder with one file and one folder, to be found as it was."""
    monkeypatch.chdir(tmp_path)
    Path("old.txt").write_text("old")
    Path("sub").mkdir()
    yield
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old.txt", "sub"]
    assert Path("old.txt").read_text() == "old"
    assert Path("old.txt").stat().st_mode & 0o777 == 0o644


def _connect():
    with socket.socket() as s:
        s.connect(("127.0.0.1", 9))


def _bind():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))


def _sendto():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", ("127.0.0.1", 9))


def _cause(attempt):
    try:
        attempt()
    except urllib.error.URLError as error:
        raise error.reason from error


def _os_open(name, flags):
    os.close(os.open(name, flags))


REFUSED = {
    "open to write": (lambda: open("out.csv", "w"), "writes the file 'out.csv'"),
    "open to append": (lambda: open("old.txt", "a"), "writes the file 'old.txt'"),
    "open to create": (lambda: open("out.csv", "x"), "writes the file 'out.csv'"),
    "open to update": (lambda: open("old.txt", "r+b"), "writes the file 'old.txt'"),
    "a path object": (lambda: Path("out.csv").write_text("x"), "writes the file 'out.csv'"),
    "a name in bytes": (lambda: open(b"out.csv", "wb"), "writes the file 'out.csv'"),
    "touch": (lambda: Path("out.csv").touch(), "writes the file 'out.csv'"),
    "os.open to write": (lambda: _os_open("old.txt", os.O_WRONLY), "writes the file 'old.txt'"),
    "os.open to create": (lambda: _os_open("out.csv", os.O_CREAT), "writes the file 'out.csv'"),
    "os.open to truncate": (lambda: _os_open("old.txt", os.O_RDONLY | os.O_TRUNC), "writes the file 'old.txt'"),
    "torch.save": (lambda: torch.save(torch.ones(2), "model.pt"), "writes the file 'model.pt'"),
    "torch.save, non-ascii": (lambda: torch.save(torch.ones(2), "modèle.pt"), "writes the file 'modèle.pt'"),
    "torch.save, old format": (
        lambda: torch.save(torch.ones(2), "model.pt", _use_new_zipfile_serialization=False),
        "writes the file 'model.pt'",
    ),
    "np.save": (lambda: np.save("a.npy", np.ones(2)), "writes the file 'a.npy'"),
    "np.tofile": (lambda: np.ones(2).tofile("a.bin"), "writes the file 'a.bin'"),
    "np.memmap": (lambda: np.memmap("a.bin", mode="w+", shape=(2,)), "writes the file 'a.bin'"),
    "remove": (lambda: os.remove("old.txt"), "removes the file 'old.txt'"),
    "unlink": (lambda: Path("old.txt").unlink(), "removes the file 'old.txt'"),
    "rename": (lambda: os.rename("old.txt", "new.txt"), "renames the file 'old.txt'"),
    "replace": (lambda: os.replace("old.txt", "new.txt"), "renames the file 'old.txt'"),
    "mkdir": (lambda: os.mkdir("new"), "makes the folder 'new'"),
    "makedirs": (lambda: os.makedirs("new/er"), "makes the folder 'new'"),
    "rmdir": (lambda: os.rmdir("sub"), "removes the folder 'sub'"),
    "chmod": (lambda: os.chmod("old.txt", 0o600), "changes the file 'old.txt'"),
    "chown": (lambda: os.chown("old.txt", -1, -1), "changes the file 'old.txt'"),
    "utime": (lambda: os.utime("old.txt", (0, 0)), "changes the file 'old.txt'"),
    "truncate": (lambda: os.truncate("old.txt", 0), "shortens the file 'old.txt'"),
    "link": (lambda: os.link("old.txt", "new.txt"), "links the file 'new.txt'"),
    "symlink": (lambda: os.symlink("old.txt", "new.txt"), "links the file 'new.txt'"),
    "shutil.copy": (lambda: shutil.copy("old.txt", "new.txt"), "writes the file 'new.txt'"),
    "shutil.move": (lambda: shutil.move("old.txt", "new.txt"), "writes the file 'new.txt'"),
    "shutil.rmtree": (lambda: shutil.rmtree("sub"), "removes the folder 'sub'"),
    "shutil.make_archive": (lambda: shutil.make_archive("a", "zip", "sub"), "writes the file 'a.zip'"),
    "a temporary file": (lambda: tempfile.TemporaryFile(), "writes the file"),
    "a temporary folder": (lambda: tempfile.mkdtemp(), "makes the folder"),
    "subprocess": (lambda: subprocess.run(["ls", "-l"]), "starts a process 'ls'"),
    "subprocess, shell": (lambda: subprocess.run("/bin/ls -l", shell=True), "starts a process 'ls'"),
    "os.posix_spawn": (lambda: os.posix_spawn("/bin/ls", ["ls"], {}), "starts a process 'ls'"),
    "os.exec": (lambda: os.execv("/bin/ls", ["ls"]), "starts a process 'ls'"),
    "os.fork": (os.fork, "forks the process"),
    "os.forkpty": (os.forkpty, "starts a process in a terminal"),
    "os.kill": (lambda: os.kill(os.getppid(), 15), f"sends a signal to process {os.getppid()}"),
    "spawned multiprocessing": (
        lambda: multiprocessing.get_context("spawn").Process(target=print, name="worker").start(),
        "starts a process 'worker'",
    ),
    "connect": (_connect, "opens a network connection"),
    "bind": (_bind, "opens a network connection"),
    "sendto": (_sendto, "opens a network connection"),
    "look up a host": (lambda: socket.getaddrinfo("localhost", 80), "opens a network connection"),
    "urlopen": (lambda: _cause(lambda: urllib.request.urlopen("http://localhost/")), "opens a network connection"),
    "sqlite": (lambda: sqlite3.connect("a.db"), "writes the file 'a.db'"),
    "webbrowser": (lambda: webbrowser.open("about:blank"), "opens a web page"),
    "input": (lambda: input("?"), "asks for input"),
    "getpass": (lambda: getpass.getpass(), "asks for input"),
    "stdin": (lambda: sys.stdin.readline(), "asks for input"),
    "stdin, iterated": (lambda: next(sys.stdin), "asks for input"),
    "breakpoint": (lambda: breakpoint(), "starts the debugger"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    attempt, clause = REFUSED[name]
    with contained() as attempts, pytest.raises(Refused) as caught:
        attempt()
    assert caught.value.what.startswith(clause)
    assert attempts.first is not None
    assert isinstance(caught.value, OSError) and caught.value.strerror


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        pytest.param(lambda: os.waitstatus_to_exitcode(os.system("ls -l")), 127, id="os.system"),
        pytest.param(lambda: subprocess.getstatusoutput("ls -l"), (127, ""), id="getstatusoutput"),
        pytest.param(lambda: subprocess.getoutput("ls -l"), "", id="getoutput"),
        pytest.param(lambda: new_shell().getoutput("ls -l"), [], id="files = !ls"),
    ],
)
def test_a_command_of_the_shell_is_not_found(ask, answer):
    with contained() as attempts:
        assert ask() == answer
    assert attempts.first == "starts a process 'ls'"


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda: os._exit(3), id="os._exit"),
        pytest.param(lambda: os.abort(), id="os.abort"),
        pytest.param(lambda: os.kill(os.getpid(), signal.SIGKILL), id="killing oneself"),
    ],
)
def test_leaving_the_process_is_the_end_of_the_run(leave):
    with pytest.raises(EndOfRun), contained():
        leave()


def _load_saved(path):
    torch.save({"w": torch.ones(2)}, path)
    return lambda: torch.load(path)


def _load_npy(path):
    np.save(path, np.ones(2))
    return lambda: np.load(path)


def _memory_database():
    connection = sqlite3.connect(":memory:")
    connection.execute("select 1")
    connection.close()


def _write_nowhere():
    with open(os.devnull, "w") as nowhere:
        print("x", file=nowhere)


def _talk_by_socket():
    a, b = socket.socketpair()
    with a, b:
        a.sendall(b"x")
        assert b.recv(1) == b"x"


def _import_new(folder):
    (folder / "fresh_module.py").write_text("value = 3")

    def attempt():
        sys.path.insert(0, str(folder))
        try:
            import fresh_module

            assert fresh_module.value == 3
        finally:
            sys.path.pop(0)
            sys.modules.pop("fresh_module", None)
        assert not (folder / "__pycache__").exists()

    return attempt


def _thread():
    done: queue.Queue[int] = queue.Queue()
    threading.Thread(target=lambda: done.put(1)).start()
    assert done.get(timeout=5) == 1


ALLOWED = {
    "print": lambda elsewhere: lambda: print("hello"),
    "read a file": lambda elsewhere: lambda: Path("old.txt").read_text(),
    "list a folder": lambda elsewhere: lambda: os.listdir("."),
    "import": _import_new,
    "torch.load": lambda elsewhere: _load_saved(elsewhere / "m.pt"),
    "np.load": lambda elsewhere: _load_npy(elsewhere / "a.npy"),
    "torch.save into memory": lambda elsewhere: lambda: torch.save(torch.ones(2), io.BytesIO()),
    "write nowhere": lambda elsewhere: _write_nowhere,
    "a database in memory": lambda elsewhere: _memory_database,
    "a pair of sockets": lambda elsewhere: _talk_by_socket,
    "a data: address": lambda elsewhere: lambda: urllib.request.urlopen("data:,x").close(),
    "is that process alive?": lambda elsewhere: lambda: os.kill(os.getppid(), 0),
    "a thread": lambda elsewhere: _thread,
    "change the environment": lambda elsewhere: lambda: os.environ.pop("HOME_OF_NOBODY", None),
    "log": lambda elsewhere: lambda: logging.getLogger("x").error("said"),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name, tmp_path_factory):
    attempt = ALLOWED[name](tmp_path_factory.mktemp("elsewhere"))
    with contained() as attempts:
        attempt()
    assert attempts.first is None


def test_everything_is_back_afterwards():
    before = (builtins.input, getpass.getpass, sys.stdin, sys.dont_write_bytecode, os.system)
    methods = {name: vars(socket.socket).get(name) for name in ("send", "sendall")}
    with pytest.raises(Refused), contained():
        open("out.csv", "w")
    assert before == (builtins.input, getpass.getpass, sys.stdin, sys.dont_write_bytecode, os.system)
    assert methods == {name: vars(socket.socket).get(name) for name in ("send", "sendall")}
    with open("out.csv", "w") as f:
        f.write("x")
    os.remove("out.csv")


def test_the_first_attempt_is_remembered_when_the_cell_swallows_it():
    with contained() as attempts:
        try:
            open("first.csv", "w")
        except:  # noqa: E722
            pass
        with pytest.raises(Refused):
            open("second.csv", "w")
    assert attempts.first == "writes the file 'first.csv'"


def test_a_program_handles_it_as_an_error_of_the_operating_system():
    with contained() as attempts:
        with pytest.raises(FileNotFoundError):
            subprocess.run(["git", "status"])
        with pytest.raises(ConnectionRefusedError):
            _connect()
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo("localhost", 80)
        with pytest.raises(EOFError):
            input()
        with pytest.raises(PermissionError):
            open("out.csv", "w")
        with pytest.raises(ProcessLookupError):
            os.kill(os.getppid(), signal.SIGTERM)
    assert attempts.first == "starts a process 'git'"


def test_a_run_of_wandb_is_played_without_its_service(monkeypatch):
    """In another process such a run attaches itself to the service before anything else (wandb 0.31)."""
    said = []

    class Run:
        def log(self, values):
            package._attach(run=self)
            self._log(values)

        def finish(self):
            self._finish()

        def _log(self, values):
            said.append(values)

        def _finish(self):
            said.append("finish")

    package, module = types.ModuleType("wandb"), types.ModuleType("wandb.sdk.wandb_run")
    package._attach = lambda run: said.append("attach")
    module.Run = Run
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_run", module)
    run = Run()
    with contained() as attempts:
        run.log({"loss": 1})
        run.finish()
    assert said == [] and attempts.first is None
    run.log({"loss": 2})
    run.finish()
    assert said == ["attach", {"loss": 2}, "finish"]


def test_what_ended_a_run_is_known_through_other_errors():
    def attempt():
        try:
            subprocess.run(["git", "status"])
        except OSError as error:
            raise RuntimeError("no git") from error

    with contained(), pytest.raises(RuntimeError) as caught:
        attempt()
    assert ended_by(caught.value) and not ended_by(RuntimeError("no git")) and not ended_by(None)


def test_nested_runs_report_to_the_outer_one():
    with contained() as outer:
        with contained() as inner, pytest.raises(Refused):
            open("out.csv", "w")
        with pytest.raises(Refused):
            input()
    assert (inner.first, outer.first) == ("writes the file 'out.csv'",) * 2


def test_threads_that_were_there_before_go_on(tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    jobs: queue.Queue = queue.Queue()
    results: queue.Queue = queue.Queue()

    def work():
        for name in iter(jobs.get, None):
            try:
                (elsewhere / name).write_text("x")
                helper = threading.Thread(target=lambda: (elsewhere / "helper").write_text("x"))
                helper.start()
                helper.join()
                results.put("written")
            except BaseException as e:
                results.put(e)

    bystander = threading.Thread(target=work, daemon=True)
    bystander.start()
    with contained() as attempts:
        jobs.put("theirs")
        assert results.get(timeout=5) == "written"
        assert (elsewhere / "helper").exists()
        own = threading.Thread(target=lambda: jobs.put("again") or _swallow(lambda: open("mine", "w")))
        own.start()
        own.join()
        assert results.get(timeout=5) == "written"
    jobs.put(None)
    bystander.join()
    assert attempts.first == "writes the file 'mine'"


def _swallow(attempt):
    try:
        attempt()
    except Refused:
        pass


class Squares(torch.utils.data.Dataset):
    def __init__(self, spoils=False):
        self.spoils = spoils

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if self.spoils:
            open("from_a_worker.txt", "w")
        return torch.tensor(float(i * i))


def in_a_child(job, timeout=60.0):
    """The outcome of job() contained in a forked child: (result, first attempt)."""
    receive, send = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)
            with contained() as attempts:
                try:
                    outcome = job()
                except BaseException as e:
                    outcome = repr(e)
            send.send((outcome, attempts.first))
        finally:
            os._exit(0)
    try:
        assert receive.poll(timeout), "the child hangs"
        return receive.recv()
    finally:
        receive.close()
        send.close()
        os.waitpid(pid, 0)


def test_dataloader_workers_in_a_forked_child():
    def job():
        loader = torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2)
        return sum(batch.sum().item() for batch in loader)

    assert in_a_child(job) == (140.0, None)


def test_a_worker_that_writes_is_stopped_and_known():
    def job():
        loader = torch.utils.data.DataLoader(Squares(spoils=True), num_workers=1, timeout=20)
        return sum(batch.sum().item() for batch in loader)

    outcome, first = in_a_child(job)
    assert "Permission denied" in str(outcome)
    assert first == "writes the file 'from_a_worker.txt'"


def test_in_a_child_every_thread_is_contained():
    def job():
        thread = threading.Thread(target=lambda: _swallow(lambda: open("out.csv", "w")))
        thread.start()
        thread.join()

    assert in_a_child(job) == (None, "writes the file 'out.csv'")


def test_an_optimizer_can_be_made_for_the_first_time(tmp_path_factory):
    """In a fresh process: making one imports what makes torch's cache folder."""
    cache = tmp_path_factory.mktemp("cache") / "new"
    code = (
        "import torch; from inplace_magic.sandbox.side_effects import contained, make_private; make_private('scratch')\n"
        "with contained() as a: torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.1).step()\n"
        "assert a.first is None"
    )
    package = Path(side_effects.__file__).parents[3]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache), "PYTHONPATH": str(package)}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path_factory.mktemp("place"), check=True)


def test_a_module_of_the_persons_own_makes_no_folder(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "makes_a_folder.py").write_text("import os; os.makedirs('runs')")
    monkeypatch.syspath_prepend(folder)
    with contained(), pytest.raises(Refused):
        import makes_a_folder  # noqa: F401


def test_the_hook_is_quick_when_nothing_is_contained():
    with contained():
        pass
    assert runs.current is None
    start = time.process_time()
    for _ in range(100_000):
        id(start)  # an audited call
    assert time.process_time() - start < 1, "some 0.02 s, whatever else is at work"
