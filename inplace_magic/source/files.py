"""Files of the user's as documents beside the cells: which ones matter, their texts, rewritten texts put to the test.

A file is numbered from -1 downwards, so that it comes before every cell, as an import does. The number is never shown.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tokenize
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import apart
from .document import FileSource
from .location import kind_of
from .modules import modules_in
from .own import defining_module, file_of, is_a
from .sources import Sources

_MOST_FILES = 60
# By the line, since the text of a cell need not parse; what is no import after all leads nowhere.
_IMPORT = re.compile(r"\s*import\s+([\w., ]+)")
_FROM = re.compile(r"\s*from\s+(\.*)([\w.]*)\s+import\s*(.*)")
_MOST_BYTES = 1_000_000
# Line ends that Python's own idea of a line does not know.
_ODD_LINES = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\r(?!\n)")


@dataclass(frozen=True)
class Text:
    """What a source file holds: its text, line ends as they are, and how it was encoded."""

    text: str
    encoding: str
    mark: bytes = b""

    def encoded(self, text: str) -> bytes:
        return self.mark + text.encode(self.encoding)


def read_source(path: str | os.PathLike[str]) -> Text:
    """A source file as Python would read it. Raises OSError, SyntaxError (an encoding unknown) or UnicodeError."""
    with open(path, "rb") as file:
        data = file.read()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    if encoding == "utf-8-sig":
        return Text(data[3:].decode("utf-8"), "utf-8", data[:3])
    return Text(data.decode(encoding), encoding)


class Files:
    """The files that belong to a session: each keeps its number; ``stale`` are those that no longer read as loaded."""

    def __init__(self, first: tuple[str, str] | None = None) -> None:
        """``first`` is the path and the text of a script, as it was run, which is number -1."""
        self.numbers: dict[str, int] = {}
        self.stale: set[str] = set()
        self._first = first
        if first is not None:
            self.numbers[first[0]] = -1

    def documents(
        self, namespace: Mapping[str, Any], error: BaseException | None = None, texts: Iterable[str] = ()
    ) -> dict[int, FileSource]:
        """The user's files that a traceback passes through, or to which names or imports (of ``texts``) lead."""
        if self._first is not None:
            texts = (self._first[1], *texts)
        for path in _concerned(namespace, error, texts):
            if path not in self.numbers and len(self.numbers) < _MOST_FILES:
                self.numbers[path] = -1 - len(self.numbers)
        self.stale.clear()
        found: dict[int, FileSource] = {}
        for path, number in self.numbers.items():
            script = self._first is not None and number == -1
            text = _usable(path, self._first[1] if script and self._first is not None else None)
            if text is None:
                continue
            if not script and not _as_loaded(path, text, error):
                self.stale.add(path)
                continue
            names = namespace if script else {n: v for module in modules_of(path) for n, v in vars(module).items()}
            found[number] = FileSource(number, text, path=path, modules=modules_in(names))
        return found


def _usable(path: str, text: str | None = None) -> str | None:
    try:
        if text is None:
            if os.path.getsize(path) > _MOST_BYTES:
                return None
            text = read_source(path).text
    except (OSError, SyntaxError, UnicodeError):
        return None
    return None if _ODD_LINES.search(text) else text


# ---- which files -------------------------------------------------------------------------------------------------


def _concerned(namespace: Mapping[str, Any], error: BaseException | None, texts: Iterable[str]) -> Iterator[str]:
    """Paths of the user's files, those of the traceback first, then outwards from the names and imports."""
    levels: list[Iterable[types.ModuleType]] = [_modules(namespace), *(_imported(text, None) for text in texts)]
    seen: set[str] = set()
    for frame in frames_of(error):
        path = path_of(frame.f_code.co_filename)
        if path is not None and path not in seen:
            seen.add(path)
            levels.append(_reached(path, frame.f_globals))
            yield path
    while levels and len(seen) < 2 * _MOST_FILES:
        for module in levels.pop(0):
            path = path_of(file_of(module))
            if path is not None and path not in seen:
                seen.add(path)
                levels.append(_reached(path, vars(module)))
                yield path


def _reached(path: str, names: Mapping[str, Any]) -> Iterator[types.ModuleType]:
    """The modules to which a file's names and imports lead."""
    yield from _modules(names)
    text = _usable(path)
    if text is not None:
        yield from _imported(text, names.get("__package__"))


def _imported(text: str, package: str | None) -> Iterator[types.ModuleType]:
    for level, name in _imports(text):
        whole = name if not level else ".".join([*(package or "").split(".")[: 1 - level or None], name]).strip(".")
        module = sys.modules.get(whole)
        if module is not None:
            yield module


@lru_cache(maxsize=256)
def _imports(text: str) -> tuple[tuple[int, str], ...]:
    """What the imports of a text may name: how many dots stand in front, and the dotted name."""
    found: dict[tuple[int, str], None] = {}
    for line in text.splitlines():
        if match := _IMPORT.match(line):
            for part in match.group(1).split(","):
                found[0, part.split()[0] if part.split() else ""] = None
        elif match := _FROM.match(line):
            dots, name = len(match.group(1)), match.group(2)
            found[dots, name] = None
            for part in match.group(3).strip("()\\ ").split(","):
                if part.split():
                    found[dots, f"{name}.{part.split()[0]}".strip(".")] = None
    return tuple(found)


def frames_of(error: BaseException | None) -> Iterator[types.FrameType]:
    tb = error.__traceback__ if error is not None else None
    while tb is not None:
        yield tb.tb_frame
        tb = tb.tb_next


def path_of(filename: str | None) -> str | None:
    """The real path of one of the user's source files; None for a cell, a library, anything else."""
    if not filename or not filename.endswith(".py") or filename.startswith("<") or kind_of(filename) != "user":
        return None
    if re.search(r"[/\\]ipykernel_\d+[/\\]\d+\.py$", filename):
        return None
    path = os.path.realpath(filename)
    return path if os.path.isfile(path) else None


def _modules(namespace: Mapping[str, Any]) -> Iterator[types.ModuleType]:
    """The modules that names stand for, or in which what they stand for was defined."""
    for value in list(namespace.values()):
        module = defining_module(value)
        if module is not None:
            yield module


def modules_of(path: str) -> list[types.ModuleType]:
    """The modules that were loaded from a file; a script that runs as ``__main__`` is none."""
    found = []
    for name, module in list(sys.modules.items()):
        filename = file_of(module)
        if name != "__main__" and filename is not None and path_of(filename) == path:
            found.append(module)
    return found


# ---- whether the text is what runs --------------------------------------------------------------------------------


def _as_loaded(path: str, text: str, error: BaseException | None) -> bool:
    """Whether the functions that live were compiled from this very text, so that its lines are theirs."""
    codes = _codes_in(path, text)
    defined = [(f.__code__, f.__qualname__) for module in modules_of(path) for f in _defined(module, path)]
    running = [(f.f_code, None) for f in frames_of(error) if path_of(f.f_code.co_filename) == path]
    return all(code in codes or apart.find(code, codes, name) for code, name in (*defined, *running))


@lru_cache(maxsize=128)
def _codes_in(path: str, text: str) -> frozenset[types.CodeType]:
    try:
        return frozenset(apart.codes(compile(text, path, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return frozenset()


def _defined(module: types.ModuleType, path: str) -> Iterator[types.FunctionType]:
    """A module's functions and methods, as they are now."""
    values = list(vars(module).values())
    for value in list(values):
        if is_a(value, type) and value.__module__ == module.__name__:
            values.extend(vars(value).values())
    for value in values:
        if is_a(value, types.FunctionType) and path_of(value.__code__.co_filename) == path:
            yield value


# ---- rewritten texts, put to the test -----------------------------------------------------------------------------


@contextlib.contextmanager
def staged(sources: Sources, afresh: bool) -> Iterator[None]:
    """While active, files read as the sources have them, wherever Python loads code from; nothing is written.

    ``afresh``: modules of these files are forgotten, so that an import runs them again.
    """
    texts = {cell.path: cell.raw for cell in sources.cells.values() if isinstance(cell, FileSource)}
    if not texts:
        yield
        return
    with contextlib.ExitStack() as undo:
        _stage_imports(undo, texts)
        _stage_run_magic(undo, texts)
        if afresh:
            _forget(undo, texts)
        yield


def _set(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    had = name in vars(owner)
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    undo.callback(lambda: setattr(owner, name, before) if had else delattr(owner, name))


def _stage_imports(undo: contextlib.ExitStack, texts: Mapping[str, str]) -> None:
    from importlib.machinery import SourceFileLoader

    plain = SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = texts.get(os.path.realpath(path))
        return plain(self, fullname) if text is None else compile(text, path, "exec", dont_inherit=True)

    _set(undo, SourceFileLoader, "get_code", get_code)


def _stage_run_magic(undo: contextlib.ExitStack, texts: Mapping[str, str]) -> None:
    def opened(file: Any, *args: Any, **options: Any) -> Any:
        text = texts.get(os.path.realpath(file)) if isinstance(file, str | os.PathLike) else None
        return open(file, *args, **options) if text is None else io.BytesIO(read_source(file).encoded(text))

    for name in ("IPython.core.interactiveshell", "IPython.utils.py3compat"):  # today's %run, and that of before
        if name in sys.modules:
            _set(undo, sys.modules[name], "open", opened)  # stands before the builtin, in that module only


def _forget(undo: contextlib.ExitStack, texts: Iterable[str]) -> None:
    before = dict(sys.modules)
    paths = set(texts)
    for name, module in before.items():
        filename = file_of(module)
        if name != "__main__" and filename is not None and path_of(filename) in paths:
            del sys.modules[name]

    def remember() -> None:
        for name in [n for n in sys.modules if n not in before]:
            if path_of(file_of(sys.modules[name])) in paths:
                del sys.modules[name]
        sys.modules.update({n: m for n, m in before.items() if path_of(file_of(m)) in paths})

    undo.callback(remember)
