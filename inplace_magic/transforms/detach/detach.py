"""Which values are cut off from their history, and where: each way to do it is a file beside this one."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...message import message
from ...record.evidence import Edge
from ...source.dataflow import binds, reads
from ...source.editor import CONSTRUCTORS
from ...source.modules import module_of
from ..analysis.meetings import are_stepped, meeting, updates_weights
from ..analysis.points import uses
from ..problem import Frame, Problem
from ..proposal import Proposal
from ..registry import register
from .at_boundary import at_boundary
from .at_entry import at_entry
from .at_stores import at_stores
from .at_uses import at_uses
from .candidates import CARRIED
from .made_once import GIVEN, at_source, before_loop, before_turns, given_once, where_made
from .summed import summed

_SHARED = message("why_left_to_the_later")
_UNTRAINED = message("why_not_stepped")


@register("modified", "second_backward", "silent")
def detach(problem: Problem) -> Iterator[Proposal]:
    if not _passes_on(problem):
        return
    over = problem.crossing.over
    of_weights = bool(over) and all(
        _made_in_constructor(problem, edge) or _made_of_weight(problem, edge) for edge in over
    )
    for one in _cuts(problem):
        yield replace(one, lessens=one.lessens or of_weights)


def _made_in_constructor(problem: Problem, edge: Edge) -> bool:
    """Whether a constructor computed what an object keeps of the object's own weights, which are stepped, and of no data."""
    made = problem.frames(edge.made)
    kept = any(holder.of_object for holder in edge.holders)
    owner = made[-1].spot.function.rpartition(".")[0] if made else ""
    constructed = any(f.spot.function in [f"{owner}.{name}" for name in CONSTRUCTORS] for f in made)
    if not kept or edge in problem.crossing.untrained or not constructed:
        return False
    of = [*ast.walk(made[-1].expression)]
    numbers = {id(n) for item in of if isinstance(item, ast.Subscript) for n in ast.walk(item.slice)}
    names = {n.id for n in of if isinstance(n, ast.Name) and module_of(n) is None and id(n) not in numbers}
    return names == {"self"} and not _stands_beside(problem, edge, made[-1])


def _made_of_weight(problem: Problem, edge: Edge) -> bool:
    """Whether a value was computed once, ahead of the loop, of a weight itself: no target that a network gave."""
    made = problem.frames(edge.made) if before_turns(problem, edge) else ()
    return any(are_stepped(problem, reads(frame.expression)) for frame in made)


def _stands_beside(problem: Problem, edge: Edge, made: Frame) -> bool:
    """Whether what is read of the value computes the same anew: ``(self.w.norm() - self.norm_at_first) ** 2``."""
    computed = ast.unparse(made.expression)
    return any(ast.unparse(n) == computed for f in problem.frames(edge.used) for n in ast.walk(f.statement))


def _cuts(problem: Problem) -> Iterator[Proposal]:
    found = problem.crossing
    later, between = {edge.used for edge in found.over}, meeting(problem) is not None
    earlier = [e for e in found.shared if e.used not in later and _steps_on_less(problem)]
    both = [e for e in found.untrained if e.made in {one.made for one in earlier} and e.holders]
    yield from where_made(problem, both, "for both", _UNTRAINED)
    yield from at_uses(problem, earlier, "shared", _SHARED)
    untrained = [e for e in found.untrained if between or e.used not in later]
    yield from (replace(one, lessens=True) for one in at_uses(problem, untrained, "untrained", _UNTRAINED))
    if not any(edge.root for edge in found.over):
        # Within one iteration the later of two losses trains less than it says.
        yield from (replace(one, lessens=between) for one in _past(problem, found.over, between))


def _past(problem: Problem, over: Sequence[Edge], between: bool) -> Iterator[Proposal]:
    """What comes from before the event is cut off where it stops, where it is read or where it is kept."""
    yield from summed(problem, over)
    again = any(edge.again for edge in over)
    given = bool(over) and all(given_once(problem, edge) for edge in over)
    form = "again" if again else "between" if between else "once" if given else "use"
    whole_terms = [edge for edge in over if edge.alone and _is_old_term(problem, edge)]
    yield from at_boundary(problem, [edge for edge in over if edge not in whole_terms], between)
    yield from at_entry(problem, over)
    idle = next((ast.unparse(use.node) for edge in whole_terms for use in uses(problem, edge)), "")
    yield from at_source(problem, over)
    once = before_loop(problem, over) or ([] if given else _of_old_values(problem))
    read = at_uses(problem, over, form, CARRIED, carried=True)
    for proposal in itertools.chain(once, read, at_stores(problem, over)):
        yield replace(proposal, idle=idle)  # a term of every loss, computed of what was made before the loop


def _is_old_term(problem: Problem, edge: Edge) -> bool:
    """Whether a term of a loss was computed before the loop, or is kept by an object for a later loss: no sum or average that
    goes on, and no list that a loss is collected in.
    """
    running = any(binds(frame.statement) & reads(frame.statement) for frame in problem.frames(edge.used))
    one = all(holder.shape == "Tensor" for holder in edge.holders)
    of_object = any(holder.of_object for holder in edge.holders)
    return before_turns(problem, edge) or (of_object and one and not running and meeting(problem) is None)


def _of_old_values(problem: Problem) -> list[Proposal]:
    """A value that was computed once and comes into the loop through objects, as the items of a data set do."""
    over = problem.crossing.over
    return where_made(problem, over, "made once", GIVEN) if all(before_turns(problem, edge) for edge in over) else []


def _passes_on(problem: Problem) -> bool:
    """Whether something goes from one backward's graph, or past an optimizer's step, into a later one.

    A value that is written within its own forward is still to give its gradient: to cut it off is no fix.
    """
    clash = problem.clash
    if clash.save is None or clash.need is None or updates_weights(problem):
        return True
    saved, needed = clash.save.clock, clash.need.clock
    return any(saved < one.backward.clock < needed for one in problem.evidence.passes)


def _steps_on_less(problem: Problem) -> bool:
    """Whether the earlier backward also reached leaves that the steps after it leave alone: it was not meant for them."""
    freed, passes = problem.clash.freed, problem.evidence.passes
    if freed is None or freed.index >= len(passes):
        return False
    one = passes[freed.index]
    return not one.leaves <= one.stepped
