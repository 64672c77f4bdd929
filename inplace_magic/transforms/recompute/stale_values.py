"""What was overwritten or used up is computed again ahead of the backward that needs it, by the statements that made it.

u = net(x)                                def closure():
def closure():                                u = net(x)
    loss = criterion(u)                       loss = criterion(u)
    loss.backward()                           loss.backward()
    return loss                               return loss

self.prior = Normal(self.loc, scale)      # again in the method that reads it

self.penalty = self.weigh()               model.penalty = model.weigh()
loss = fit + model.penalty                loss = fit + model.penalty

A slice that nothing else reads is moved; else it is repeated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...message import message
from ...record.evidence import Edge
from ...source.dataflow import binds, live_in, reads, simple, value_reads
from ...source.editor import Code, Edit, Function, Overlap
from ...source.lift import lift, source_lines
from ...source.location import SourceRange
from ..analysis.backward_calls import without_retain
from ..analysis.meetings import loops, update_of, upwards, within
from ..analysis.points import Frame, crossing, frames, uses
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_MOST = 6  # statements that a person would repeat
_ANEW = message("why_graphs_of_their_own")


@dataclass(frozen=True)
class _Slice:
    """Statements of one block that created the stale values, in order, and the names that lead to them afterwards.

    ``own``: what the statements call their object, and what it is called where their values are read.
    """

    code: Code
    block: list[ast.stmt]
    statements: list[ast.stmt]
    function: str
    own: tuple[str, str] | None = None

    @property
    def names(self) -> set[str]:
        bound = {name for s in self.statements for name in binds(s)}
        if self.own is None:
            return bound
        inside, outside = self.own
        return {outside + name.removeprefix(inside) for name in bound}

    def lines(self) -> list[str]:
        inside, outside = self.own or ("", "")
        own = [n for s in self.statements for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == inside]
        edits = [self.code.replace(n, outside) for n in own]
        return [line for s in self.statements for line in source_lines(self.code, s, edits)]


@register("modified", "second_backward")
def recompute(problem: Problem) -> Iterator[Proposal]:
    found = crossing(problem)
    for one in _slices(problem, found.over, found.stale):
        for made in (one, *_from_outside(problem, found.over, one)):
            for code, front in _targets(problem, found.over, made):
                yield from _candidates(problem, _as_far_as_read(made, code, front), code, front)
                return


# ---- what to compute again -------------------------------------------------------------------------------------------


def _slices(problem: Problem, edges: Sequence[Edge], stale: Sequence[tuple[SourceRange, ...]]) -> Iterator[_Slice]:
    """The stale statements, in the innermost frame that all of them and the place that held them share."""
    stacks = [frames(problem, stack) for stack in stale]
    stacks = [stack for stack in stacks if stack]
    if not stacks:
        return
    deepest = min(len(stack) for stack in stacks)
    for depth in range(deepest - 1, -1, -1):
        level = [stack[depth] for stack in stacks]
        code, function = level[0].code, level[0].spot.function
        if any(f.code is not code or f.spot.function != function for f in level):
            continue
        block = _common(code, [f.statement for f in level])
        if block is None:
            continue
        chosen = _chain(code, block, [f.statement for f in level])
        bound = {name for s in chosen for name in binds(s)}
        anew = bound and not live_in(chosen) & bound  # what needs its own old value cannot be had a second time
        if anew and len(chosen) <= _MOST and all(simple(s) for s in chosen):
            yield _Slice(code, block, chosen, function)


def _from_outside(problem: Problem, edges: Sequence[Edge], made: _Slice) -> Iterator[_Slice]:
    """The slice as it reads where somebody else has the object: what a method computes from its object alone."""
    method = made.code.function(made.statements[0])
    if not isinstance(method, Function) or not method.args.args:
        return
    inside, kept = method.args.args[0].arg, {name for s in made.statements for name in binds(s)}
    local = {name for s in method.body for name in binds(s)} | {
        a.arg for a in ast.walk(method.args) if isinstance(a, ast.arg)
    }
    given = {name for s in made.statements for name in reads(s)} & (local - {inside} - kept)
    if any(not name.startswith(f"{inside}.") for name in kept | given):
        return
    for edge in edges:
        for use in uses(problem, edge):
            outside, dot, attribute = ast.unparse(use.node).rpartition(".")
            if dot and f"{inside}.{attribute}" in kept and outside.isidentifier() and outside != inside:
                yield replace(made, own=(inside, outside))
                return


def _common(code: Code, statements: Sequence[ast.stmt]) -> list[ast.stmt] | None:
    """The innermost block that holds, or whose statements hold, all of them."""
    for above in upwards(code, statements[0]):
        block = code.block(above)
        if all(within(code, block, s) is not None for s in statements):
            return block
    return None


def _chain(code: Code, block: list[ast.stmt], statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of the block that created the stale values, and what leads from them to the names they have."""
    first = {id(s) for s in (within(code, block, one) for one in statements) if s is not None}
    tainted: set[str] = set()
    last = max(i for i, s in enumerate(block) if id(s) in first)
    found = []
    for i, statement in enumerate(block):
        aliases = simple(statement) and isinstance(statement, ast.Assign) and value_reads(statement) & tainted
        if id(statement) in first or (aliases and i <= last + 1):
            tainted |= binds(statement)
            found.append(statement)
    return found


def _as_far_as_read(made: _Slice, code: Code, front: ast.stmt) -> _Slice:
    """The slice without what nothing reads where it is computed again: ``samples`` beside the distribution they are of."""
    wanted = {name for s in code.block(front) for name in reads(s)}
    kept: list[ast.stmt] = []
    for statement in reversed(made.statements):
        if binds(statement) & wanted or made.own:
            wanted |= reads(statement)
            kept.insert(0, statement)
    return replace(made, statements=kept or made.statements)


# ---- where to compute it ---------------------------------------------------------------------------------------------


def _targets(problem: Problem, edges: Sequence[Edge], made: _Slice) -> Iterator[tuple[Code, ast.stmt]]:
    """(text, statement to compute it before), from the frame in which the value is used after the event."""
    names = made.names
    need = problem.need_stack
    for edge in edges:
        for frame in frames(problem, need if edge.root or not edge.used else edge.used):
            statement = frame.statement
            if not _reads_through(frame.code, statement, names) and not edge.root:
                continue
            turn = _turn(problem, frame, made)
            if frame.code is made.code and frame.spot.function == made.function:
                if turn is not None:
                    yield frame.code, _front(frame.code, turn.body, statement, names)
                else:
                    yield frame.code, _behind(made, statement, names)
                return
            function = frame.code.function(statement)
            if isinstance(function, Function):
                needed = any(within(frame.code, function.body, f.statement) for f in frames(problem, need))
                block = turn.body if turn is not None and needed else function.body
                if within(frame.code, block, statement) is not None:
                    yield frame.code, _front(frame.code, block, statement, names)
                    return
            elif frame.code is not made.code:
                yield frame.code, _front(frame.code, frame.code.block(statement), statement, names)
                return


def _reads_through(code: Code, statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement reads one of the names, or what the lines above it took from one: ``x = batches[i]``."""
    block, wanted = code.block(statement), reads(statement)
    for above in reversed(block[: block.index(statement)]):
        if wanted & names:
            return True
        if simple(above) and binds(above) & wanted:
            wanted = (wanted - binds(above)) | reads(above)
    return bool(wanted & names)


def _behind(made: _Slice, statement: ast.stmt, names: set[str]) -> ast.stmt:
    """The statement that reads the names, in the innermost block that has both, behind what makes them."""
    code = made.code
    for above in upwards(code, statement):
        block = code.block(above)
        top = within(code, block, made.statements[-1])
        if top is not None and top is not above:
            rest = block[block.index(top) + 1 :]
            return _front(code, block, next((s for s in rest if reads(s) & names), above), names, top)
    return statement


def _turn(problem: Problem, frame: Frame, made: _Slice) -> ast.For | ast.While | ast.AsyncFor | None:
    """The loop in each iteration of which the value is used anew: the innermost one that has the backward in it, too."""
    around = [loop for loop in loops(frame.code, frame.statement) if not _inside(made, loop)]
    needed = [f.statement for f in frames(problem, problem.need_stack) if f.code is frame.code]
    both = (loop for loop in around if any(within(frame.code, loop.body, s) is not None for s in needed))
    return next(both, around[-1] if around else None)


def _inside(made: _Slice, loop: ast.stmt) -> bool:
    return any(node is s for node in ast.walk(loop) for s in made.statements)


def _front(
    code: Code, block: list[ast.stmt], statement: ast.stmt, names: set[str], after: ast.stmt | None = None
) -> ast.stmt:
    """The first statement of the block, behind ``after``, that reads the names; the update it is part of."""
    top = within(code, block, statement) or statement
    if after is None:
        top = next((s for s in block if reads(s) & names), top)
    update = update_of(block, top)
    return update[0] if top in update else top


# ---- candidates ------------------------------------------------------------------------------------------------------


def _candidates(problem: Problem, made: _Slice, code: Code, front: ast.stmt) -> Iterator[Proposal]:
    lines = made.lines()
    title = lines[0] if len(made.statements) == 1 else f"{lines[0]} … {lines[-1]}"
    moved = not _read_elsewhere(problem, made, code, front)
    lifted = lift(made.code, made.statements) if moved else None
    if lifted is not None:  # with the comments above them
        indent = made.code.indent(made.statements[0])
        lines = [line.removeprefix(indent) for line in lifted.text.splitlines() if line.strip()]
    edits: list[tuple[Code, Edit]] = [(code, code.insert_before(front, *lines))]
    if lifted is not None:
        edits += [(made.code, edit) for edit in lifted.edits]
    elif moved:
        edits += [(made.code, made.code.delete(s)) for s in made.statements]
    kept = [
        (f.code, edit)
        for f in frames(problem, problem.need_stack)[-1:]
        for edit in without_retain(f.code, [f.statement])
    ]
    for extra in [kept, []] if kept else [[]]:
        codes = {c.cell.number: c for c, _ in edits}
        try:
            texts = {n: c.apply(*(e for other, e in [*edits, *extra] if other is c)) for n, c in codes.items()}
        except Overlap:
            continue
        yield Proposal(title, _ANEW, "recompute: moved" if moved else "recompute: again", texts)


def _read_elsewhere(problem: Problem, made: _Slice, code: Code, front: ast.stmt) -> bool:
    """Whether something but the statements from ``front`` on reads what the slice makes."""
    if code is not made.code or not isinstance(front, ast.stmt):
        return True
    names = made.names
    function = code.function(front)
    target = function if function is not code.function(made.statements[0]) else None
    if target is None:
        target = next((loop for loop in reversed(loops(code, front)) if not _inside(made, loop)), None)
    block = code.block(front)
    inside = {id(n) for s in ([target] if target is not None else block[block.index(front) :]) for n in ast.walk(s)}
    own = {id(n) for s in made.statements for n in ast.walk(s)}
    for number in problem.sources.cells:
        other = problem.code(number)
        for node in ast.walk(other.tree) if other is not None else ():
            read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
            if read and id(node) not in inside and id(node) not in own:
                return True
    return any("." in name for name in names)
