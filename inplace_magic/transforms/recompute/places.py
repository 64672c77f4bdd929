"""Where what was overwritten or used up is to be computed again: ahead of what reads it once the event has happened."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...record.evidence import Edge
from ...source.bindings import argument, parameters
from ...source.blocks import loops, upwards, within
from ...source.dataflow import calls, graph_reads, key_of, of_head, reads, rebinds, simple, slice_of
from ...source.editor import Code, Def, Function
from ...source.names import first_name, own_names
from ..analysis.meetings import around_both, standing_in, update_of
from ..problem import Frame, Problem
from ..proposal import Change
from .slices import SAME, Slice


@dataclass(frozen=True)
class Target:
    """The statement to compute it before; ``between``: the event stands right between there and the slice."""

    code: Code
    front: ast.stmt
    between: bool = False

    @property
    def known(self) -> set[str]:
        """The names of the functions that it is in."""
        around = (above for above in self.code.parents(self.front) if isinstance(above, Function))
        return {name for above in around for name in own_names(above)}

    def insert(self, lines: Sequence[str]) -> Change:
        """Without the last lines that stand there already: an earlier change has put them there."""
        there = [self.code.text(s) for s in [self.front, *self.code.following(self.front)]]
        same = next(n for n in range(len(lines), -1, -1) if [*lines[len(lines) - n :]] == there[:n])
        return self.code, self.code.insert_before(self.front, *lines[: len(lines) - same])


@dataclass(frozen=True)
class Override(Target):
    """The class whose constructor made it computes it ahead of a method that it inherits: other heirs have no such values.

    ``front`` is the constructor, ``method`` what reads the value.
    """

    method: Def = field(kw_only=True)

    @property
    def known(self) -> set[str]:
        return {*parameters(self.method)}

    def insert(self, lines: Sequence[str]) -> Change:
        name, step, a = self.method.name, self.code.indent_step, self.method.args
        header = f"def {name}({ast.unparse(a)}):"
        given = [one.arg for one in [*a.posonlyargs, *a.args][1:]] + ([f"*{a.vararg.arg}"] if a.vararg else [])
        given += [f"{one.arg}={one.arg}" for one in a.kwonlyargs] + ([f"**{a.kwarg.arg}"] if a.kwarg else [])
        handed = f"{step}return super().{name}({', '.join(given)})"
        return self.code, self.code.insert_after(self.front, "", header, *(step + line for line in lines), handed)


def targets(problem: Problem, edges: Sequence[Edge], made: Slice) -> Iterator[Target]:
    """Where it is to be computed, in the frame in which the value is used after the event."""
    need = problem.need_stack
    yield from _handed_out(problem, made)
    for edge in edges:
        frames = problem.frames(edge.used or need)
        for depth, frame in enumerate(frames):
            code, reading, statement = frame.code, frame.statement, _run_by(frames[: depth + 1])
            names = _names_there(made, frames[: depth + 1])
            if names is None:
                continue
            own = made.is_of(frame)
            kept = own and any("." in name for name in names)  # a call reads it off the object
            above, _ = slice_of(code.preceding(reading), reads(reading))  # ``x = batches[i]``
            through = (one for one in loops(code, reading) if isinstance(one, ast.For))  # ``for x in batches``
            named = [one.iter for one in through if {*map(key_of, of_head(one))} & reads(reading)]
            # ``task.learn()`` for ``task.loss``
            known = names | ({first_name(name) for name in made.through} - {"self"})
            reached = kept or not names or reads(*above, *named, reading) & known
            if not reached and (frame.spot not in need[:1] or (made.call is not None and made.through)):
                yield from _in_getter(made, statement) if frame is frames[-1] else ()
                continue
            around = loops(code, statement, without=made.statements)
            # Where it is used in each iteration anew: in the innermost loop that has the backward in it, too.
            both = (loop for loop in around if standing_in(code, loop.body, problem.needed))
            turn, function = next(both, around[-1] if around else None), code.function(statement)
            if own:
                body = _behind_event(problem, code, turn.body, statement) if turn else []
                behind = Target(code, _first(code, body, names)) if turn else _behind(problem, made, statement)
                yield from [behind] if behind is not None else []
            elif function is not None:
                if names and all("." in name for name in names):  # which an object keeps, for its closures as well
                    within_class = itertools.takewhile(
                        lambda f: not isinstance(f, ast.ClassDef), code.parents(function)
                    )
                    function = [function, *(f for f in within_class if isinstance(f, Function))][-1]
                needed = standing_in(code, function.body, problem.frames(need))
                body = turn.body if turn is not None and needed else function.body
                constructor = made.code.function(made.statements[0]) if made.owner == SAME else None
                if constructor is not None and _made_by_no_ancestor(
                    problem, made.code.parent(constructor), code.parent(function)
                ):
                    yield from _overridden(made.code, constructor, function)
                    continue
                yield Target(code, _first(code, _behind_event(problem, code, body, statement), names))
            elif code is not made.code and not around_both(problem, frame):
                yield Target(code, _first(code, _behind_event(problem, code, code.block(statement), statement), known))


def _run_by(frames: list[Frame]) -> ast.stmt:
    """The statement that runs what the last frame is in: of a lambda the one that calls it, where that is in the same function."""
    *callers, frame = frames
    inside = itertools.takewhile(lambda node: not isinstance(node, ast.stmt), frame.code.parents(frame.node))
    if callers and any(isinstance(node, ast.Lambda) for node in inside) and callers[-1].code is frame.code:
        caller = callers[-1].statement
        if frame.code.function(caller) is frame.code.function(frame.statement):
            return caller
    return frame.statement


def _made_by_no_ancestor(problem: Problem, made_by: ast.AST | None, read_by: ast.AST | None) -> bool:
    """Whether a class reads what another one has made, from which it does not inherit: an heir, or what is mixed in with it."""
    both = isinstance(made_by, ast.ClassDef) and isinstance(read_by, ast.ClassDef)
    return both and made_by not in _ancestry(problem, read_by)


def _ancestry(problem: Problem, heir: ast.AST | None) -> list[ast.AST | None]:
    """A class with those that it inherits from, as far as their texts are known."""
    known = {node.name: node for _, node in problem.nodes(ast.ClassDef)}
    found = [heir]
    for one in found:
        bases = one.bases if isinstance(one, ast.ClassDef) else []
        found += [base for node in bases if (base := known.get(ast.unparse(node))) not in (None, *found)]
    return found


def _in_getter(made: Slice, statement: ast.stmt) -> Iterator[Target]:
    """The method or the property that gives out what the constructor of its class has made: ``return self._q``."""
    constructor = made.code.function(made.statements[0])
    beside = made.code.block(constructor) if isinstance(constructor, Def) else []
    asked = {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
    for method in beside:
        if isinstance(method, Def) and method.name in asked and reads(*method.body) & made.names:
            yield Target(made.code, _first(made.code, method.body, made.names))


def _overridden(code: Code, constructor: Def, method: Def) -> Iterator[Target]:
    """The start of the constructor's class's own method of that name, else one that it gets."""
    beside = code.block(constructor)
    own = next((s for s in beside if isinstance(s, ast.FunctionDef) and s.name == method.name), None)
    if own is not None:
        yield Target(code, own.body[0])
    elif not method.decorator_list:
        yield Override(code, constructor, method=method)


def _handed_out(problem: Problem, made: Slice) -> Iterator[Target]:
    """``return outputs``, where the function that made them has used them up by then, and its caller goes back from them."""
    for event in happened(problem, made):
        if any(map(made.is_of, problem.needed)):
            return
        behind = [s for above in upwards(made.code, event) for s in made.code.following(above)]
        for given in [s for s in behind if isinstance(s, ast.Return)][:1]:
            if reads(given) & made.names - rebinds(event, *behind[: behind.index(given)]):
                yield Target(made.code, given, between=True)


def _names_there(made: Slice, frames: list[Frame]) -> set[str] | None:
    """Which of the slice's names mean the same in the last frame; None where that is out of reach.

    Locals of another function are none of them, but for what it was handed under the same name.
    """
    *callers, frame = frames
    inside = frame.spot.function == made.function or frame.spot.function.startswith(f"{made.function}.<locals>.")
    if made.function == "<module>" or made.through or (frame.code is made.code and inside):
        return made.names
    function, theirs = frame.code.function(frame.statement), _names_there(made, callers) if callers else None
    given = [(name, call) for f in callers[-1:] for call in calls(f.statement) for name in theirs or ()]
    handed = {name for name, call in given if getattr(argument(function, name, call), "id", None) == name}
    return {name for name in made.names if "." in name} | handed or None


def _behind(problem: Problem, made: Slice, statement: ast.stmt) -> Target | None:
    """The statement that reads the names, in the innermost block that has it behind the slice or the event, and behind both if
    it has both; None where one call is the event and reads them.
    """
    code, came = made.code, happened(problem, made)
    for above in upwards(code, statement):
        block = code.block(above)
        top, *events = (within(code, block, s) for s in (made.statements[-1], *came))
        before = [one for one in (top, *events) if one is not None and block.index(one) < block.index(above)]
        if before and top is not above:
            if above in events and (simple(above) or isinstance(above, ast.Return)):
                return None
            last = max(before, key=block.index)
            return Target(code, _front(code, block[block.index(last) + 1 :], made.names, above), last in events)
    return Target(code, statement)


def _behind_event(problem: Problem, code: Code, block: list[ast.stmt], statement: ast.stmt) -> list[ast.stmt]:
    """The statements of a block behind the event, where that comes ahead of the statement in it; else all."""
    top = within(code, block, statement)
    events = [within(code, block, f.statement) for f in problem.lost if f.code is code]
    ahead = [block.index(s) for s in events if s is not None and top is not None and block.index(s) < block.index(top)]
    return block[max(ahead, default=-1) + 1 :]


def happened(problem: Problem, made: Slice) -> list[ast.stmt]:
    """The statement of the event, in the function that has the slice."""
    return [f.statement for f in problem.lost if made.is_of(f)]


def _first(code: Code, statements: list[ast.stmt], names: set[str]) -> ast.stmt:
    """The first statement that reads the names, be it without their history; the first of the update that it is part of."""
    top = next((s for s in statements if reads(s) & names), statements[0])
    return update_of(code.block(top), top)[0]


def _front(code: Code, statements: list[ast.stmt], names: set[str], other: ast.stmt) -> ast.stmt:
    """The first statement that goes on from the names, or the ``other``; the first of the update that it is part of.

    What only shows a number, ``print(loss.item())``, still shows the old one.
    """
    top = next((s for s in statements if graph_reads(code, [s], names)), other)
    return update_of(code.block(top), top)[0]
