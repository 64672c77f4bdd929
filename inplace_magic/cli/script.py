"""Runs a script as Python would; if it fails, its failure is looked into."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from typing import Any

from ..diagnosis import Diagnosis, shown_path
from ..families import failure_of
from ..message import kind_of, language_of, message
from ..session.history import Session
from ..source.document import Document
from ..source.files import Files, read_source
from ..source.sources import Sources
from .output import Output
from .settings import FAILED, FINDING, HEALTHY, BadUseError, Settings
from .write_fix import write_fix

_SCRIPT = -1  # the number of the script among the documents
_REACH_S = 2.0  # the first seconds of a script are enough to go by


class _Compiler:
    flags = 0


class Script:
    """What the pipeline needs of a shell: the script's names, and the world as it was when the script began."""

    def __init__(self, module: types.ModuleType, path: str, arguments: list[str]) -> None:
        """``path`` is what the script sees as its own name."""
        self.user_ns = vars(module)
        self.compile = _Compiler()
        self.display_pub = types.SimpleNamespace(publish=None)
        self._fixed = dict(self.user_ns)
        self._argv = [path, *arguments]
        self._path = list(sys.path)
        self._folder = os.getcwd()
        self._kept: dict[str, Any] = {}

    def transform_ast(self, node: ast.Module) -> ast.Module:
        return node

    def elsewhere(self) -> Callable[[], Script]:
        """What makes this shell again in another process."""
        spec = self._fixed["__spec__"]
        name = spec.name if spec is not None else None
        return functools.partial(_script_again, self._fixed["__file__"], name, self._argv, self._path, self._folder)

    def begin_script(self) -> None:
        """Names, arguments, import path and folder as they were; to be called where that harms nobody."""
        self._kept = dict(self.user_ns)  # nothing of it may be finalised
        self.user_ns.clear()
        self.user_ns.update(self._fixed)
        sys.argv[:] = self._argv
        sys.path[:] = self._path
        if os.getcwd() != self._folder:
            os.chdir(self._folder)


def _script_again(filename: str, name: str | None, argv: list[str], path: list[str], folder: str) -> Script:
    module = _main_module(filename, importlib.util.spec_from_file_location(name, filename) if name else None)
    sys.modules["__main__"] = module
    script = Script(module, argv[0], argv[1:])
    script._path, script._folder = path, folder
    return script


class ScriptSession(Session):
    """A session that has run one script."""

    def sources(self, current: int, error: BaseException | None = None) -> Sources:
        return Sources(self.files.documents(self.shell.user_ns, error), {}, current)

    def history_until(self, current: int, cells: Mapping[int, Document]) -> tuple[int, ...]:
        return (current,)


def run(target: str, arguments: list[str], settings: Settings) -> int:
    """Runs a script with its own arguments, or with ``settings.module`` a module by its name. Returns the exit status."""
    output = Output(settings.json, language_of(settings.language))
    with output.reserved():
        if not settings.module:
            return _Run(target, None, arguments, settings, output).status()
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd()
        spec = _spec_of(target)
        return _Run(str(spec.origin), spec, arguments, settings, output).status()


def _spec_of(name: str) -> ModuleSpec:
    """Where ``python -m NAME`` finds its text. Raises BadUseError if it would not, or if that is no Python text."""
    try:
        spec = importlib.util.find_spec(name)  # imports the packages that it lies in, as Python does
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.has_location or not spec.origin.endswith(".py"):
        raise BadUseError(message("cli_no_such_module", target=name))
    return spec


class _Run:
    def __init__(
        self, target: str, spec: ModuleSpec | None, arguments: list[str], settings: Settings, output: Output
    ) -> None:
        self.settings, self.output = settings, output
        self.path = os.path.realpath(target)
        try:
            self.text = read_source(self.path).text
        except (OSError, SyntaxError, UnicodeError) as problem:
            raise BadUseError(message("cli_unreadable", target=target, problem=str(problem))) from None
        self.module = _main_module(target, spec)
        if spec is None and not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(self.path)
        sys.argv[:] = [target, *arguments]
        self.script = Script(self.module, target, arguments)
        self.session = ScriptSession(self.script, files=Files((self.path, self.text)))
        self.seen: Any = None
        self.found = False

    def status(self) -> int:
        try:
            code = compile(self.text, self.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as problem:
            traceback.print_exception(type(problem), problem, None)
            return FAILED
        if "torch" in self.text:
            with contextlib.suppress(Exception):
                import torch  # noqa: F401  (not counted as the script's own time)
        ours = os.getpid()
        error = self._run(code)
        if os.getpid() != ours:  # a process that the script has forked has come to its end
            return _plain_end(error, self.path)
        try:
            return self._conclude(error)
        except KeyboardInterrupt:
            self.output.say(message("cli_stopped"))
            return 130

    def _run(self, code: types.CodeType) -> BaseException | None:
        """The script itself, watched if that was asked for. Returns what it raised."""
        before = sys.modules["__main__"]
        sys.modules["__main__"] = self.module
        start = time.monotonic()
        try:
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(self._watched())
                except Exception as problem:
                    self.output.say(message("cli_not_watched", problem=f"{type(problem).__name__}: {problem}"))
                exec(code, self.script.user_ns)
        except BaseException as error:
            return error
        finally:
            self.kept = before  # else its names would be gone before it ends
            self.session.seconds[_SCRIPT] = min(time.monotonic() - start, _REACH_S)
        return None

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        if not self.settings.check:
            yield
            return
        from ..watch import watching

        sources = self.session.sources(_SCRIPT)
        with watching(sources, self.script.user_ns, seconds=self.settings.limit) as self.seen:
            yield

    def _conclude(self, error: BaseException | None) -> int:
        failure = failure_of(error)
        if error is not None and failure is not None:
            _show(error, self.path)
            with _signals_at_rest(), _one_line_if_it_fails(self.output):
                self._report(self._diagnose(failure))
            return FINDING
        if (error is None or isinstance(error, SystemExit)) and self.seen is not None:
            if self.seen.findings or self.seen.detached:
                with _signals_at_rest(), _one_line_if_it_fails(self.output):
                    self._report(self._silent())
            if self.found:
                return FINDING
            nothing = self.seen.problem is None and not self.seen.detached
            kind = "cli_nothing_found_watched" if nothing else "cli_watched"
            self.output.say(message(kind, target=shown_path(self.path), watched=self.seen.summary))
        return _plain_end(error, self.path)

    def _options(self) -> Any:
        from ..options import Options

        return Options(
            time_limit=self.settings.limit,
            replay="notebook",
            allow_side_effects=self.settings.effects,
            command_line=True,
        )

    def _diagnose(self, error: BaseException) -> Diagnosis | None:
        from ..pipeline import diagnose

        watched = self.seen.evidence if self.seen is not None else None
        return diagnose(self.session, error, _SCRIPT, self._options(), self.output.progress(), watched)

    def _silent(self) -> Diagnosis | None:
        from ..pipeline import diagnose_silent

        return diagnose_silent(self.session, _SCRIPT, self._options(), self.seen.evidence, self.output.progress())

    def _report(self, found: Diagnosis | None) -> None:
        if found is None:
            return
        self.found = self.found or not found.may_be_meant
        self.output.finding(found, self.path)
        if self.seen is None and any(kind_of(note) in ("not_rerun", "not_rerun_watch") for note in found.notes):
            self.output.say(message("cli_try_check"))
        if self.settings.fix and self.found:
            write_fix(found, self.output)


def _main_module(target: str, spec: ModuleSpec | None = None) -> types.ModuleType:
    """A ``__main__`` that has run nothing yet. A module's knows its package, from which it imports by dots."""
    import builtins

    module = types.ModuleType("__main__")
    vars(module).update(
        __file__=os.path.abspath(target),
        __builtins__=builtins,
        __cached__=None,
        __spec__=spec,
        __annotations__={},
        __package__=spec.parent if spec is not None else None,
    )
    return module


def _plain_end(error: BaseException | None, path: str) -> int:
    """How Python would have ended: the exit status, a traceback shown."""
    if error is None:
        return HEALTHY
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or HEALTHY
        print(error.code, file=sys.stderr)
        return 1
    _show(error, path)
    return 130 if isinstance(error, KeyboardInterrupt) else FAILED


def _show(error: BaseException, path: str) -> None:
    """The traceback as the script's own, by whatever hook the script has set."""
    tb = error.__traceback__
    while tb is not None and os.path.realpath(tb.tb_frame.f_code.co_filename) != path:
        tb = tb.tb_next
    if tb is not None:
        error.__traceback__ = tb
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:
        traceback.print_exception(error)


@contextlib.contextmanager
def _one_line_if_it_fails(output: Output) -> Iterator[None]:
    try:
        yield
    except Exception as problem:
        text = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
        output.say(message("cli_not_explained", problem=text))


@contextlib.contextmanager
def _signals_at_rest() -> Iterator[None]:
    """Handlers and timers that the script has set do not fire while its failure is looked into."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)
    before = {}
    for one in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGALRM", None), getattr(signal, "SIGCHLD", None)):
        if one is not None:
            default = signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL
            before[one] = signal.signal(one, default)
    try:
        yield
    finally:
        for one, handler in before.items():
            if handler is not None:
                signal.signal(one, handler)
