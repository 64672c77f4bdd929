"""Runs the text of a cell the way IPython does, without entering the shell: no hooks, no history, no display."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import linecache
import sys
import tokenize
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..source.document import Document, FileSource
from ..source.lines import lines_of
from .shell import IPythonShell, Shell


@dataclass(frozen=True)
class Touched:
    """What some cells can get at when they run: by the names in their ``code``, less those that are ``gone`` by then."""

    code: tuple[types.CodeType, ...] = ()
    gone: frozenset[str] = frozenset()


def parse_cell(shell: Shell, cell: Document, text: str | None = None) -> ast.Module:
    """The tree of a cell as it runs, on the lines that the user sees. Raises SyntaxError as the text does."""
    text = cell.runnable if text is None else text
    if isinstance(cell, FileSource):
        return compile(text, cell.replay_name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)  # type: ignore[return-value]
    flags = shell.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    tree: ast.Module = shell.transform_ast(compile(text, cell.replay_name, "exec", flags, dont_inherit=True))
    return tree


def compile_cell(shell: Shell, cell: Document, text: str | None = None) -> Any:
    """The code object of a cell, named so that its frames lead back to the lines the user sees.

    Raises SyntaxError as the text does. ``text`` is what stands in for the cell's own, line by line.
    """
    name = cell.replay_name
    text = cell.runnable if text is None else text
    if isinstance(cell, FileSource):
        return compile(text, name, "exec", dont_inherit=True)
    _show_in_tracebacks(shell, cell, text)
    flags = shell.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(parse_cell(shell, cell, text), name, "exec", flags, dont_inherit=True)


def _show_in_tracebacks(shell: Shell, cell: Document, text: str) -> None:
    """From here on a traceback through the cell's code reads "Cell In[3], line 5", and shows the line."""
    name = cell.replay_name
    linecache.cache[name] = (len(text), None, lines_of(text, keepends=True), name)
    known = getattr(shell.compile, "_filename_map", None)
    if known is not None:
        known[name] = cell.number


def replay_cell(shell: Shell, cell: Document) -> None:
    """Runs a cell in the user's namespace, in a sandbox. Whatever it raises is let through."""
    begin = getattr(shell, "begin_script", None)
    if begin is not None:
        begin()
    code = compile_cell(shell, cell, cell.replayable)
    if code.co_flags & inspect.CO_COROUTINE:
        with _no_running_loop():
            asyncio.run(eval(code, shell.user_ns))
    else:
        exec(code, shell.user_ns)


@contextmanager
def errors_let_through(shell: Shell) -> Iterator[None]:
    """While active, what ``%run`` and its like would print and forget is raised."""
    if not hasattr(shell, "showtraceback"):
        yield
        return

    def raise_again(*args: Any, **options: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            raise error

    shell.showtraceback = raise_again
    try:
        yield
    finally:
        del shell.showtraceback


@contextmanager
def _no_running_loop() -> Iterator[None]:
    """A kernel runs us inside its own event loop; a copy of the process may start another one."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


def can_run(shell: Shell, cell: Document) -> bool:
    """Whether a cell can be run from within another one: not if it awaits at its top and an event loop runs already."""
    return asyncio._get_running_loop() is None or not compile_cell(shell, cell).co_flags & inspect.CO_COROUTINE


def run_cell_shown(shell: IPythonShell, cell: Document, text: str | None = None) -> None:
    """Runs a cell for real, its last expression shown as always. Whatever it raises is let through.

    ``text`` is what of it to run, where that is not its body as a replay would run it.
    ``can_run`` is asked before.
    """
    __tracebackhide__ = True
    name = cell.replay_name
    text = cell.runnable if text is None else text
    _show_in_tracebacks(shell, cell, text)
    flags = shell.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = shell.transform_ast(compile(text, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True))
    shown = tree.body and isinstance(tree.body[-1], ast.Expr) and not _silenced(text)
    last = [tree.body.pop()] if shown else []
    _execute(shell, compile(tree, name, "exec", flags, dont_inherit=True))
    if last:
        _execute(shell, compile(ast.Interactive(last), name, "single", flags, dont_inherit=True))


def _silenced(text: str) -> bool:
    """Whether a semicolon ends the text, which asks not to show its value."""
    try:
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()]
    except (tokenize.TokenError, SyntaxError):
        return False
    code = [t for t in tokens if t.type != tokenize.COMMENT]
    return bool(code) and code[-1].string == ";"


def _execute(shell: IPythonShell, code: types.CodeType) -> None:
    __tracebackhide__ = True
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, shell.user_ns)
    else:
        shell.loop_runner(eval(code, shell.user_ns))
