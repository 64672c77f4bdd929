"""A replica's own side: an interpreter that holds nothing of the session but its libraries, copied for each run.

NOTE [Copies of a replica]. To start an interpreter with torch takes a second, to copy one a hundredth of that. So one
interpreter is started for a report, imports what the session has imported, and is forked for each run; the cells and
the session's objects come only there. It never runs a backward itself, so that torch has started no thread for a device
and each copy may start its own. Where a process cannot be forked, or its copies are refused a backward all the same,
each interpreter serves one run and ends.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import importlib
import mmap
import os
import pickle
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from ...message import message
from ...session.shell import Shell
from .. import fork, may_fork
from ..lifetime import die_with, scratch_folder
from ..side_effects import contained
from ..work import preparation
from . import messages as m
from .carrier import Carrier
from .make_session import do
from .pickling import Parcel


def main(descriptor: int, carrier: int, parent: int) -> None:
    """The whole life of a replica. ``descriptor``: the connection to the session; when that is closed, this ends."""
    die_with(parent)
    fork.hush()
    _Server(Connection(descriptor), Carrier(carrier)).serve()


class _Server:
    def __init__(self, session: Connection, carrier: Carrier) -> None:
        self._session, self._carrier = session, carrier
        self._parcels: dict[int, tuple[Parcel, mmap.mmap | None]] = {}
        self._jobs: dict[int, fork.Child[Any]] = {}  # the copies at work
        self._setting: m.Setting
        self._shell: Shell
        self._forks = False

    def serve(self) -> None:
        """Never returns."""
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    ready = wait([self._session, *(job.pipe for job in self._jobs.values())])
                    if self._session in ready:  # first: a job whose end is asked for has nothing more to say
                        self._obey(pickle.loads(self._session.recv_bytes()))
                    for number in [n for n, job in self._jobs.items() if job.pipe in ready]:
                        self._pass_on(number)
            for job in self._jobs.values():
                job.end()
        finally:
            os._exit(0)

    def _obey(self, message: Any) -> None:
        if isinstance(message, m.Setting):
            self._begin(message)
        elif isinstance(message, m.Delivery):
            memory = self._carrier.mapped() if message.parcel.storages else None
            self._parcels[message.number] = message.parcel, memory
        elif isinstance(message, m.Job):
            self._start(message)
        elif isinstance(message, m.Enough) and message.number in self._jobs:
            self._jobs[message.number].enough()
        elif isinstance(message, m.End) and message.number in self._jobs:
            self._jobs.pop(message.number).end()

    def _begin(self, setting: m.Setting) -> None:
        """Imports what the session's cells and objects are going to import, contained as they would be."""
        self._setting = setting
        tempfile.tempdir = setting.surroundings.temporary  # else Python looks for one by writing there
        sys.path[:] = setting.surroundings.path
        sys.argv[:] = setting.surroundings.arguments
        failure = None
        try:
            self._shell = setting.shell()
            import_contained(setting.modules)
        except BaseException as error:
            failure = fork.clause_of(error)
        self._forks = setting.may_fork and may_fork.backward_runs_in_a_copy(setting.devices)
        self._answer(0, ("ready", self._forks) if failure is None else ("failure", failure))

    def _start(self, job: m.Job) -> None:
        if not self._forks:
            self._serve_one(job)
        try:
            child = fork.Child(lambda tell: self._work(job, tell), job.limit_s, preparation(job.allow_side_effects))
        except OSError as error:
            self._answer(job.number, ("failure", message("no_copy", problem=error.strerror)))
            return
        self._jobs[job.number] = child
        self._answer(job.number, ("begun", None))

    def _serve_one(self, job: m.Job) -> None:
        """Without a copy: this interpreter is used up by one job. Never returns."""
        prepare, scratch = preparation(job.allow_side_effects), scratch_folder()
        if prepare is not None:
            prepare(scratch)
        fork.heed_enough()
        gc.enable()
        threading.Thread(target=self._end_with_session, daemon=True).start()
        self._answer(job.number, ("begun", None))
        try:
            answer = "value", self._work(job, lambda value: self._answer(job.number, ("more", value)))
        except BaseException as error:
            answer = "failure", fork.clause_of(error)
        self._answer(job.number, answer)
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(0)

    def _end_with_session(self) -> None:
        """Waits to be told to end, or for the end of the session."""
        with contextlib.suppress(EOFError, OSError):
            while isinstance(pickle.loads(self._session.recv_bytes()), m.Enough):
                _thread.interrupt_main(fork.ENOUGH)
        os._exit(0)

    def _work(self, job: m.Job, tell: Callable[[Any], None]) -> Any:
        if job.aside and self._forks:
            fork.give_way()
        parcel, memory = self._parcels[job.parcel] if job.parcel is not None else (None, None)
        return do(job, self._setting, self._shell, parcel, memory, tell)

    def _answer(self, number: int, answer: Any) -> None:
        self._session.send_bytes(pickle.dumps((number, pickle.dumps(answer))))

    def _pass_on(self, number: int) -> None:
        job = self._jobs[number]
        try:
            data = job.pipe.recv_bytes()
        except (EOFError, OSError):
            data = pickle.dumps(("failure", message("copy_crashed")))
        self._session.send_bytes(pickle.dumps((number, data)))
        if pickle.loads(data)[0] != "more":
            self._jobs.pop(number).end()


def import_contained(names: Iterable[str]) -> None:
    """Imports modules, contained. Some make a folder for temporary files as they are imported: they get one meanwhile."""
    state, scratch = random.getstate(), scratch_folder()
    with contextlib.suppress(OSError):
        os.mkdir(scratch, 0o700)
    try:
        with contained(scratch), _new_temporary_files_below(scratch):
            for name in names:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        random.setstate(state)


@contextlib.contextmanager
def _new_temporary_files_below(folder: str) -> Iterator[None]:
    """While active, new ones are made there; what a library keeps in the usual folder is still looked for in that one."""

    def below(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(suffix: Any = None, prefix: Any = None, dir: Any = None, *args: Any, **kwargs: Any) -> Any:
            if dir is None and os.path.isdir(folder):  # a module may keep this function
                dir = folder
            return make(suffix, prefix, dir, *args, **kwargs)

        return made

    names: Any = tempfile
    makers = names.mkdtemp, names.mkstemp
    names.mkdtemp, names.mkstemp = (below(make) for make in makers)
    try:
        yield
    finally:
        names.mkdtemp, names.mkstemp = makers
