"""The wiring into a shell: a cell's failure is seen, once, so that what was found out about it can be shown.

A failure is seen by two ways that cover for one another. The custom exception handler is a single slot that others may
take; ``post_run_cell`` misses what a magic such as ``%run`` has already printed. Whatever happens in here, the user's
own traceback has been shown before.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .families import failure_of
from .message import Language, message, said
from .report.printing import say
from .session.history import Session
from .session.next_prompt import NextPrompt
from .session.shell import IPythonShell

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .magics import InplaceMagic
    from .options import Options
    from .session.host import Accepted, Watched

_ATTRIBUTE = "_inplace_magic_extension"


class Extension:
    """One shell's extension: a Host (session/host.py) that is wired into the shell's hooks."""

    def __init__(self, shell: IPythonShell) -> None:
        self.shell = shell
        self.session = Session(shell)
        self.last: Diagnosis | None = None
        self.known: dict[str, Diagnosis] = {}
        self.accepted: list[Accepted] = []
        self.prompt = NextPrompt(shell)
        self.magics: InplaceMagic | None = None
        self.watched: Watched | None = None
        self._started: list[tuple[float, float]] = []
        self._loaded: tuple[float, float] | None = None  # when, until the next cell begins
        self._pending: BaseException | None = None
        self._traceback_before: Any = None
        self._slot_before: tuple[Any, Any] = ((), None)
        self._slot_ours: Any = None
        self._busy = False
        self._cell: int | None = None  # the one to speak of
        self._modules = 0

    # ---- loading and unloading ----------------------------------------------------------------------------------

    def load(self) -> None:
        from .magics import InplaceMagic

        self.magics = InplaceMagic(self.shell, self)
        self.shell.register_magics(self.magics)
        self.shell.events.register("pre_run_cell", self.before_cell)
        self.shell.events.register("post_run_cell", self.after_cell)
        self.shell.events.register("post_execute", self.after_silent)
        self._slot_before = (self.shell.custom_exceptions, getattr(self.shell, "CustomTB", None))
        self.shell.set_custom_exc((*self.shell.custom_exceptions, RuntimeError), self._handle)
        self._slot_ours = self.shell.CustomTB
        self._traceback_before = getattr(sys, "last_value", None)
        self._loaded = time.perf_counter(), time.thread_time()
        self._modules = len(sys.modules)
        self.session.before_now()

    def unload(self) -> None:
        shell = self.shell
        shell.events.unregister("pre_run_cell", self.before_cell)
        shell.events.unregister("post_run_cell", self.after_cell)
        shell.events.unregister("post_execute", self.after_silent)
        self.prompt.close()
        if self.magics is not None:
            for kind in ("line", "cell"):
                for name, function in list(shell.magics_manager.magics[kind].items()):
                    if getattr(function, "__self__", None) is self.magics:
                        del shell.magics_manager.magics[kind][name]
            if self.magics in shell.configurables:
                shell.configurables.remove(self.magics)
            shell.magics_manager.registry.pop(type(self.magics).__name__, None)
        if shell.CustomTB is self._slot_ours:  # else somebody has it now, and will give it back to us or not
            exceptions, handler = self._slot_before
            shell.custom_exceptions = exceptions
            if handler is None:
                del shell.CustomTB
            else:
                shell.CustomTB = handler

    # ---- seeing a failure ---------------------------------------------------------------------------------------

    def _handle(
        self, shell: IPythonShell, etype: type, value: BaseException, tb: Any, tb_offset: int | None = None
    ) -> Any:
        """The custom exception handler: shows the traceback as it would have been shown, and remembers."""
        exceptions, previous = self._slot_before
        if exceptions and isinstance(value, exceptions) and previous is not None:
            result = previous(etype, value, tb, tb_offset=tb_offset)
        else:
            result = None
            shell.showtraceback((etype, value, tb), tb_offset=tb_offset, running_compiled_code=True)
        self._pending = value
        return result

    def before_cell(self, info: Any = None) -> None:
        """``pre_run_cell``: microseconds, whatever the session holds."""
        if not self._started:
            self._loaded = None
            self._pending = None
            self._traceback_before = getattr(sys, "last_value", None)
            self.watched = None
            self._cell = None
            self._modules = len(sys.modules)
            self.prompt.forget()
        self.session.run_cells.begin(info)
        self._started.append((time.perf_counter(), time.thread_time()))

    def after_cell(self, result: Any = None) -> None:
        """``post_run_cell``: the moment to speak, when everything of the user's own has been shown."""
        if not self._started and not self._began_unseen(result):
            return
        started = self._started.pop()
        cell = self.session.run_cells.end(result)
        within = bool(self._started)
        error = result.error_in_exec if within else self._error_of(result)
        if cell is not None:
            self._cell = cell
            if self._loaded is None:
                self.session.busy[cell] = time.thread_time() - started[1]
            else:
                self.session.before_now()
            self._note_cell(cell, result, time.perf_counter() - started[0], error)
        if within:  # a cell within a cell (%%capture, %paste): when the outer one is over, it is time to speak
            self._pending = error or self._pending
            return
        self._pending = self._traceback_before = None
        failure = failure_of(error)
        if failure is not None and self._cell is not None:
            self.report(failure, self._cell)
        elif isinstance(error, Exception) and self.watched is not None and self._cell is not None:
            from .watch import explain_failure

            with self.one_line_if_it_fails():
                explain_failure(self, self._cell, self.watched, error)

    def _began_unseen(self, result: Any) -> bool:
        """Whether it is the cell that loaded us which has ended, or one around it. An empty one ends without beginning."""
        if self._loaded is None or not result.info.raw_cell.strip():
            return False
        self.session.run_cells.begin(result.info)
        self._started.append(self._loaded)
        return True

    def after_silent(self) -> None:
        """``post_execute``: the one event after what runs silently, as the text of ``ipython file.ipy`` does.

        In a kernel it is the front end that runs something silently, and nobody reads what it says.
        """
        result = self.shell.last_execution_result
        if self._started or result is None or not result.info.silent or hasattr(self.shell, "kernel"):
            return
        failure = failure_of(result.error_in_exec)
        if failure is not None:
            self.session.run_cells.begin(result.info)
            cell = self.session.run_cells.end(result)
            if cell is not None:
                self.report(failure, cell)

    def running_cell(self) -> int | None:
        """The execution count of the cell that runs now."""
        return self.session.run_cells.running()

    def _note_cell(self, cell: int, result: Any, seconds: float, error: BaseException | None) -> None:
        session, info = self.session, result.info
        session.seconds[cell] = seconds
        session.loaded[cell] = max(0, len(sys.modules) - self._modules)
        cell_id = getattr(info, "cell_id", None)
        if cell_id is not None:
            session.cell_ids[cell] = cell_id
        (session.failed.discard if error is None else session.failed.add)(cell)

    def _error_of(self, result: Any) -> BaseException | None:
        if self._pending is not None:
            return self._pending
        error: BaseException | None = getattr(result, "error_in_exec", None) or getattr(
            result, "error_before_exec", None
        )
        if error is not None:
            return error
        last = getattr(sys, "last_value", None)  # `%run` and older `%time` have printed it and gone on
        return last if last is not self._traceback_before else None

    # ---- what follows -------------------------------------------------------------------------------------------

    def report(self, error: BaseException, cell: int) -> None:
        """Diagnoses an error and shows the report. Whatever goes wrong in here costs one line, never more."""
        assert self.magics is not None
        if not self.magics.enabled or self._busy:
            return
        with self.one_line_if_it_fails():
            from .pipeline import diagnose
            from .show import Showing

            watched = self.watched.evidence if self.watched is not None else None
            with Showing(self.shell, self.language) as showing:
                found = diagnose(self.session, error, cell, self.options(), showing.tell, watched, showing.publish)
                if found is not None:
                    self.remember(found)
                    showing.finish(found)
                    self._offer(found)

    @contextlib.contextmanager
    def one_line_if_it_fails(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        except KeyboardInterrupt:
            say(self.said(message("stopped_unchanged")), sys.stderr)
        except Exception as problem:
            text = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
            say(self.said(message("failed_to_explain", problem=text)), sys.stderr)
        finally:
            self._busy = False

    def options(self) -> Options:
        """What is configured now."""
        assert self.magics is not None
        return self.magics.options()

    def remember(self, found: Diagnosis) -> None:
        self.last = found
        self.known[found.id] = found
        while len(self.known) > 20:
            del self.known[next(iter(self.known))]

    @property
    def language(self) -> Language:
        return self.magics.in_language() if self.magics is not None else "en"

    def said(self, text: str) -> str:
        """A text in the language of this shell's reports."""
        return said(text, self.language)

    def show(self, found: Diagnosis, *, whole: bool = False, number: int | None = None) -> None:
        """Shows the report of a diagnosis, with all its fixes in full, or one of its fixes."""
        from .show import show

        show(self.shell, found, self.language, whole=whole, number=number)

    def _offer(self, found: Diagnosis) -> None:
        """In a terminal the next prompt holds the rewritten cell. Never in a kernel: there it would replace the cell."""
        assert self.magics is not None
        if not self.magics.prefill or not found.fixes or not self.prompt.there:
            return
        from .show import answer

        fix = found.fixes[0]
        alone = tuple(fix.cells) == fix.run == (found.cell,) and not fix.live and not fix.files
        self.prompt.offer(fix.cells[fix.run[-1]] if alone else "%autograd_fix --run")
        held = message("prefilled_cell") if alone else "%autograd_fix --run"
        answer(self.shell, self.said(message("prefilled", text=held)))


def of_shell(shell: object) -> Extension | None:
    return getattr(shell, _ATTRIBUTE, None)


def of_current_shell() -> Extension | None:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return of_shell(shell) if shell is not None else None


def load(shell: IPythonShell) -> None:
    if of_shell(shell) is None:
        extension = Extension(shell)
        extension.load()
        setattr(shell, _ATTRIBUTE, extension)


def unload(shell: IPythonShell) -> None:
    extension = of_shell(shell)
    if extension is not None:
        delattr(shell, _ATTRIBUTE)
        extension.unload()
