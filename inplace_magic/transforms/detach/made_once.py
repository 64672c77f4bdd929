"""A value that was computed once is cut off there, for all the iterations that use it.

norms = f(weights)                        norms = f(weights)
                                          norms = norms.detach()
for x in data:                            for x in data:
    loss(x, norms).backward()                 loss(x, norms).backward()

last = critic(obs)                        last = critic(obs).detach()
buffer.compute_returns(last)              buffer.compute_returns(last)
for batch in buffer.batches():            for batch in buffer.batches():
    loss(batch).backward()                    loss(batch).backward()
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence

from ...message import message
from ...record.evidence import Edge
from ...source.blocks import loops, own_statements, within
from ...source.dataflow import assigned, binds, reads
from ...source.editor import names_bound
from ..analysis.iterations import holdings
from ..analysis.points import detached, uses
from ..problem import Frame, Problem, parted
from ..proposal import Change, Proposal
from .candidates import candidates, in_one_line

GIVEN = message("why_counts_as_given")


def before_turns(problem: Problem, edge: Edge) -> bool:
    """Whether a value is older than the loop that runs the backward again and again."""
    made, needed = parted(problem.frames(edge.made), problem.needed)
    if not made or not needed:
        return False
    around = loops(needed[0].code, needed[0].statement)
    if around:
        return within(needed[0].code, around[0].body, made[0].statement) is None
    both = problem.needed[: -len(needed)]  # the calls in which both were made
    return not any(loops(frame.code, frame.statement) for frame in both)


def given_once(problem: Problem, edge: Edge) -> bool:
    """Whether a value from before is handed, once, to the code that runs the backward again and again."""
    calls = {frame.statement for frame in problem.needed[:-1]}
    read = uses(problem, edge)
    once = all(use.frame.statement in calls and not loops(use.frame.code, use.frame.statement) for use in read)
    return bool(read) and once and before_turns(problem, edge)


def before_loop(problem: Problem, edges: Sequence[Edge]) -> list[Proposal]:
    """A value that was computed once, and is used in every iteration."""
    found = [use for edge in edges for use in uses(problem, edge)]
    held = {use.holder.path: detached(use.holder.path, use.holder.shape) for use in found}
    if not found or None in held.values() or not all(uses(problem, edge) for edge in edges):
        return []
    frame, code, here = found[0].frame, found[0].frame.code, found[0].frame.spot.function
    made = [f.statement for edge in edges for f in problem.frames(edge.made) if f.code is code]
    outer = loops(code, frame.statement, without=made)
    one_place = all(use.frame.code is code and use.frame.spot.function == here == use.holder.scope for use in found)
    bound = {name for s in own_statements(code, outer[-1]) for name in binds(s)} if outer else set()
    if outer and one_place and not bound & held.keys() and all("[" not in path for path in held):
        line = in_one_line(held)
        return list(candidates(problem, [(code, code.insert_before(outer[-1], line))], "once", GIVEN))
    return []


def where_made(problem: Problem, edges: Sequence[Edge], form: str, why: str) -> list[Proposal]:
    """Values cut off by the statement that made each of them, for all who have them."""
    changes: dict[Change, None] = {}
    for edge in edges:
        maker = _maker(problem, edge)
        if maker is None:
            return []
        code, statement, value = maker.code, maker.statement, maker.expression
        if isinstance(statement, ast.Expr) and value is statement.value:
            return []  # somebody else keeps what is made there: a hook
        whole = not any(isinstance(target, ast.Subscript) for target in assigned(statement))  # no item beside others
        bound = binds(statement) if whole and value is getattr(statement, "value", None) else set()
        later = problem.needed[0].code if problem.needed else code
        given_anew = names_bound(later.tree.body) if later is not code else set()  # by a later cell, in another shape
        names = bound - given_anew
        held = {(h.path, h.shape) for h in edge.holders if h.scope == maker.spot.function and h.path in names}
        if held and (len(bound) > 1 or any(shape != "Tensor" for _, shape in held)):
            lines = [f"{path} = {new}" for path, shape in sorted(held) if (new := detached(path, shape)) is not None]
            changes |= dict.fromkeys((code, code.insert_after(statement, line)) for line in lines)
        elif isinstance(value, ast.expr):
            changes[code, code.behind(value, ".detach()")] = None
    return list(candidates(problem, [*changes], form, why))


def _maker(problem: Problem, edge: Edge) -> Frame | None:
    """The outermost call that gave a value apart from the loop; a constructor gives none."""
    own, _ = parted(problem.frames(edge.made), problem.needed)
    given = list(itertools.takewhile(lambda frame: frame.spot.function.endswith("__init__"), own[1:]))
    return [*own[:1], *given][-1] if own else None


def at_source(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    """The values from which calls have made all that objects keep, cut off where a name gets each of them."""
    stale = [parted(problem.frames(stack), problem.needed)[0][:1] for stack in problem.crossing.stale]
    own = [frame for frames in stale for frame in frames]
    if not own or not any("." in holder.path for edge in edges for holder in edge.holders):
        return
    first, held = own[0], holdings(problem).get(own[0].spot.function, {})
    if isinstance(first.statement, ast.Assign) and any(frame.statement is not first.statement for frame in own):
        given = [one.id for one in first.statement.targets if isinstance(one, ast.Name)]
        found = [(first.code, first.statement.value)]
    else:
        given = [name for name in sorted(reads(first.statement)) if held.get(name) == "Tensor" and name.isidentifier()]
        bound = [next(problem.bindings(first.code, name, first.statement), None) for name in given]
        found = [(code, one.value) for code, one in filter(None, bound) if one.value is not None]
    if given and len(found) == len(given) and all(isinstance(value, ast.Call) for _, value in found):
        cuts = [(code, code.behind(value, ".detach()")) for code, value in found]
        yield from candidates(problem, cuts, "source", GIVEN)
