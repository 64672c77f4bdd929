"""The last iteration of a loop once more: begun from the values that the frames of a failure still hold.

A cell that fails in epoch 30 is not run for an hour to see its last second again. The traceback holds the frame of the
function in which the loop was under way, and with it every local name as it was. In a copy of the process the body of
that loop runs by itself, some iterations more, in the same ``with`` blocks. What it does is the same failure or it is
not; that is for the caller to compare (``same_failure``).

The iterator that the loop was drawing from is gone with the failure. The body gets the values that its targets have once
more, or, where the body itself gives them other values, the first ones of a new iterator.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..source.document import Document, FileSource
from ..source.location import SourceRange
from ..source.loops import (
    AGAIN,
    ANEW,
    Loop,
    as_function,
    body_alone,
    contexts_around,
    function_of,
    loops_around,
    way_to,
)
from ..source.sources import Sources
from .evidence import Evidence

ITERATIONS = 3
"""The one that failed and two further ones, in which a fix has to hold as well."""

_LOOPS = 2  # from the innermost one outwards
_SHAPE = re.compile(r"\[[\w.]+ \[([\d, ]*)\]\]")


class CannotResume(Exception):
    """Why a rewritten text cannot be run from the last iteration."""


@dataclass(frozen=True)
class LastIteration:
    """A loop under way when the failure came.

    ``cell`` is the document that it stands in, as it ran, ``frame`` where it ran and ``outer`` the person's frames around that one.
    ``anew``: its targets are bound by a new iterator. ``detached``: the local names are held without the graph that
    the failed iteration left.
    """

    loop: Loop
    cell: Document
    frame: types.FrameType
    outer: tuple[tuple[types.FrameType, Document, int], ...]
    anew: bool = False
    detached: bool = False

    @property
    def label(self) -> str:
        """Where the loop stands, as a person reads it."""
        return f"{self.cell.name if isinstance(self.cell, FileSource) else f'In[{self.cell.number}]'}:{self.loop.line}"

    @property
    def local(self) -> dict[str, Any]:
        """The local names of the function that it stands in; none at the top level, where names are the session's."""
        return {} if self.loop.function is None else dict(self.frame.f_locals)

    def run(self, parse: Callable[[Document], ast.Module], sources: Sources) -> None:
        """Runs the body as ``sources`` has it by now. In a copy only. Whatever it raises is let through.

        Raises CannotResume where the rewritten text has changes that would not be run.
        """
        tree = parse(sources.cells[self.cell.number])
        before, now = way_to(parse(self.cell), self.loop), way_to(tree, self.loop)
        body = body_alone(before, now, self.anew) if before is not None and now is not None else None
        if body is None:
            raise CannotResume("more than the body of the loop has changed")
        names = self.frame.f_globals
        names[AGAIN] = lambda value: itertools.repeat(value, ITERATIONS)
        names[ANEW] = lambda values: itertools.islice(values, ITERATIONS)
        try:
            with contextlib.ExitStack() as entered:
                for frame, cell, line in self.outer:
                    _enter(entered, parse(cell), frame, line)
                if self.loop.function is None:
                    self._run_module(body)
                else:
                    self._run_function(tree, body)
        finally:
            names.pop(AGAIN, None)
            names.pop(ANEW, None)

    def _run_module(self, body: list[ast.stmt]) -> None:
        code = self._compile(ast.fix_missing_locations(ast.Module(body, [])))
        result = eval(code, self.frame.f_globals)
        if code.co_flags & inspect.CO_COROUTINE:
            _finish(result)

    def _run_function(self, tree: ast.Module, body: list[ast.stmt]) -> None:
        code = self.frame.f_code
        values = self.frame.f_locals
        local = [n for n in dict.fromkeys((*code.co_varnames, *code.co_cellvars)) if n in values and n.isidentifier()]
        free = [n for n in code.co_freevars if n in values]
        function = function_of(tree, self.loop)
        if function is None:
            raise CannotResume("the function has another name")
        made: dict[str, Any] = {}
        exec(self._compile(as_function(function, body, local, free)), self.frame.f_globals, made)
        run = made["around"](*(values[n] for n in free))
        run.__code__ = run.__code__.replace(co_qualname=code.co_qualname)
        hold = _without_graph if self.detached else (lambda value: value)
        self._called(lambda: _finish(run(*(hold(values[n]) for n in local))))

    def _called(self, call: Callable[[], None]) -> None:
        """From the line at the top level that called, as it was: that is where stacks of the person's code end."""
        _, cell, line = self.outer[0] if self.outer else (self.frame, self.cell, self.loop.line)
        tree = ast.parse("call()")
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt | ast.expr):
                node.lineno = node.end_lineno = line
        exec(compile(tree, cell.replay_name, "exec"), {"call": call})

    def _compile(self, tree: ast.Module) -> types.CodeType:
        future = self.frame.f_code.co_flags & _FUTURE
        flags = future | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: types.CodeType = compile(tree, self.cell.replay_name, "exec", flags, dont_inherit=True)
        return code


_FUTURE = 0x1000000  # from __future__ import annotations, as compile() and code objects have it


def under_way(
    error: BaseException, sources: Sources, parse: Callable[[Document], ast.Module]
) -> Iterator[LastIteration]:
    """The loops of the person's that a failure came out of, and how each may be resumed; the best way first."""
    frames = list(_frames(error, sources))
    found = 0
    for at in range(len(frames) - 1, -1, -1):
        frame, cell, line = frames[at]
        function = None if frame.f_code.co_name == "<module>" else frame.f_code.co_qualname
        tree = parse(cell)
        for loop in loops_around(tree, function, line):
            one = LastIteration(loop, cell, frame, tuple(frames[:at]))
            way = way_to(tree, loop)
            rebound = way is not None and _rebinds_target(way[-1].statement)
            for anew in (rebound, not rebound):
                yield replace(one, anew=anew)
                if function is not None:
                    yield replace(one, anew=anew, detached=True)
            found += 1
            if found == _LOOPS:
                return


def same_failure(seen: Evidence, error: BaseException, family: str, raised: tuple[SourceRange, ...]) -> bool:
    """Whether the first conflict that a run met is the failure: its family, the line that raised, the shape it names."""
    shapes = _SHAPE.search(str(error))
    shape = tuple(int(n) for n in shapes.group(1).split(",") if n.strip()) if shapes is not None else None
    line = (raised[0].cell, raised[0].line) if raised else None
    for conflict in seen.clashes:
        if (conflict.family or conflict.kind) != family or not conflict.known:
            continue
        event = conflict.write if conflict.kind == "refused" else conflict.need
        spot = event.spot if event is not None else None
        here = spot is not None and line is not None and (spot.cell, spot.line) == line
        same = shape is None or conflict.save is None or family != "modified" or conflict.save.shape == shape
        return here and same
    return False


def _frames(error: BaseException, sources: Sources) -> Iterator[tuple[types.FrameType, Document, int]]:
    """The person's frames that a failure came through, outermost first: (frame, its document, its line as seen)."""
    tb = error.__traceback__
    while tb is not None:
        spot = sources.spot(tb.tb_frame.f_code, tb.tb_lasti)
        if spot.cell is not None:
            yield tb.tb_frame, sources.cells[spot.cell], spot.line
        tb = tb.tb_next


def _rebinds_target(loop: ast.stmt) -> bool:
    """Whether the body gives a target of its loop another value."""
    if not isinstance(loop, ast.For):
        return False
    targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in targets
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _enter(entered: contextlib.ExitStack, tree: ast.Module, frame: types.FrameType, line: int) -> None:
    """Enters once more what an outer function was in: autocast, grad mode, profilers. It has been left by the failure."""
    function = None if frame.f_code.co_name == "<module>" else frame.f_code.co_qualname
    for item in contexts_around(tree, function, line):
        expression = compile(ast.Expression(item.context_expr), frame.f_code.co_filename, "eval", dont_inherit=True)
        entered.enter_context(eval(expression, frame.f_globals, frame.f_locals))


def _finish(result: Any) -> None:
    """To its end, if it is a coroutine or a generator."""
    if inspect.iscoroutine(result):
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            asyncio.run(result)
        finally:
            asyncio._set_running_loop(running)
    elif inspect.isgenerator(result):
        for _ in result:
            pass


def _without_graph(value: Any) -> Any:
    """The value with every tensor in it detached that carries a graph."""
    if isinstance(value, torch.Tensor):
        return value.detach() if not value.is_inference() and value.grad_fn is not None else value
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        items = [_without_graph(item) for item in value]
        return value if all(a is b for a, b in zip(items, value)) else type(value)(items)
    if type(value) is dict:
        changed = {key: _without_graph(item) for key, item in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    return value
