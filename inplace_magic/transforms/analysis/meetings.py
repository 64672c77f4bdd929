"""Where a backward meets what comes in its way: the block that holds the two statements, what stands between them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TypeGuard

from ...gradients.digest import close
from ...record.evidence import BackwardPass
from ...source.blocks import loops, upwards, within
from ...source.dataflow import assigned, called_name, calls_made, calls_named, is_call, is_step, roots, simple, slice_of
from ...source.editor import Code, Edit
from ...source.lines import lines_of
from ..problem import Frame, Problem, parted
from .targets import reads_gradient


@dataclass(frozen=True)
class Meeting:
    """Two events of one iteration in one block: ``first`` (a step, a backward that frees) stands before ``need``.

    Both are statements of ``block``.
    """

    code: Code
    block: list[ast.stmt]
    first: ast.stmt
    need: ast.stmt

    @property
    def between(self) -> list[ast.stmt]:
        return self.block[self.block.index(self.first) + 1 : self.block.index(self.need)]

    def needing(self, edits: Sequence[Edit] = ()) -> str:
        """The text of ``need`` on one line, with some edits made: of a branch what it guards, of another block its head."""
        return headline(self.code, self.need.body[-1] if guards(self.need) else self.need, edits)

    @property
    def loss(self) -> list[ast.stmt]:
        """The statements of the block that the needed loss was made from."""
        return slice_of(self.code.preceding(self.need), roots(self.need))[0]


def headline(code: Code, statement: ast.stmt, edits: Sequence[Edit] = ()) -> str:
    """A statement's text on one line, with some edits made: of a block its head, marked as code."""
    if simple(statement):
        return " ".join(code.edited(statement, edits).split())
    start, body = code.span(statement)[0], getattr(statement, "body", None)
    text = code.cell.raw[start : code.span(body[0])[0]] if body else lines_of(code.text(statement))[0]
    return f"`{' '.join(text.partition('  #')[0].split()).rstrip(' :')}`"


def updates_weights(problem: Problem) -> bool:
    """Whether the graph was used up, or what was written is a weight: by an optimizer, or in place by hand."""
    write = problem.clash.write
    if problem.clash.kind == "second_backward":
        return True
    if write is None or write.origin == "optim":
        return write is not None
    leaf = write.of_leaf or any(write.name in one.leaves for one in problem.evidence.passes)
    return leaf and write.operation != "embedding"  # which keeps its rows short


def are_stepped(problem: Problem, names: Set[str | None]) -> bool:
    """Whether an optimizer steps a leaf of these names."""
    return any(names & one.stepped for one in problem.evidence.passes)


def is_in_update(problem: Problem) -> bool:
    """Whether the write stands behind a backward, or a step, in one of the blocks around it."""
    around = ((frame.code, above) for frame in problem.lost for above in upwards(frame.code, frame.statement))
    ran = (call for code, above in around for s in code.preceding(above) for call in calls_made(s))
    return any(called_name(call) in ("backward", "grad", "step") for call in ran)


def update_between(problem: Problem) -> Meeting | None:
    """The meeting, if it is an update that comes between: nobody wants the write of a mere value somewhere else."""
    return meeting(problem) if updates_weights(problem) else None


def meeting(problem: Problem) -> Meeting | None:
    """Where the two events of a conflict stand one after the other; None if they are an iteration apart, or cells."""
    lost, needed = parted(problem.lost, problem.needed)
    if not lost or not needed or lost[0].code is not needed[0].code:
        return None
    code = lost[0].code
    for above in upwards(code, lost[0].statement):
        block = code.block(above)
        other = within(code, block, needed[0].statement)
        if other is not None and other is not above:  # the innermost block that holds both
            return Meeting(code, block, above, other) if block.index(above) < block.index(other) else None
    return None


def update_of(block: list[ast.stmt], backward: ast.stmt) -> list[ast.stmt]:
    """The statements of one update: zero_grad, backward, clipping and step, as far as they stand together.

    A helper that does it all is an update of its own.
    """
    if not calls_named(backward, "backward") or not (simple(backward) or guards(backward)):
        return [backward]
    behind = next((s for s in block[block.index(backward) + 1 :] if not calls_named(s, *CLIPS)), backward)
    last = behind if is_step(behind) else backward  # the step that the backward is for, if one follows it
    return block[cleared_before(block, backward) : block.index(last) + 1]


def cleared_before(block: list[ast.stmt], backward: ast.stmt) -> int:
    """Where in the block an update begins: with what clears the gradients right ahead of its backward."""
    at = block.index(backward)
    while at > 0 and is_call(block[at - 1], "zero_grad"):
        at -= 1
    return at


def before_step(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """What comes before an optimizer's step: behind it, what it has updated is read."""
    return itertools.takewhile(lambda s: not is_step(s), statements)


def guards(statement: ast.stmt) -> TypeGuard[ast.If]:
    """Whether a branch does nothing but go back from a loss that may not be there: ``if loss is not None: loss.backward()``."""
    return isinstance(statement, ast.If) and not statement.orelse and [*map(simple, statement.body)] == [True]


CLIPS = ("clip_grad_norm_", "clip_grad_value_", "unscale_")  # what may stand between a backward and its step
UPDATES = ("zero_grad", "step", *CLIPS)  # what works with the gradients of all that a backward reached


def uses_gradients(statements: Sequence[ast.stmt]) -> bool:
    """Whether the statements work with gradients, which a backward that comes earlier would have changed."""
    return any(calls_named(s, *UPDATES, "backward", "grad") or reads_gradient(s) for s in statements)


def standing_in(code: Code, block: list[ast.stmt], frames: Sequence[Frame]) -> list[ast.stmt]:
    """The statements of a block in which frames stand."""
    return [s for f in frames if f.code is code and (s := within(code, block, f.statement)) is not None]


def around_both(problem: Problem, frame: Frame) -> bool:
    """Whether a frame's call, made once, has both the event and the need in it."""
    has_both = all(any(o.statement is frame.statement for o in some) for some in (problem.lost, problem.needed))
    return has_both and not loops(frame.code, frame.statement)


def passes_to_need(problem: Problem) -> Sequence[BackwardPass]:
    """From the backward that freed the graph to the one that needs it; empty where an optimizer steps between them what the
    later one goes to.
    """
    freed, need, passes = problem.clash.freed, problem.clash.need, problem.evidence.passes
    if freed is None or need is None:
        return ()
    leaves = passes[need.index].leaves if need.index < len(passes) else frozenset()
    if any(one.steps and (not leaves or one.stepped & leaves) for one in passes[freed.index : need.index]):
        return ()
    return passes[freed.index : need.index + 1]


def clears_by_hand(statement: ast.stmt) -> bool:
    """``net.zero_grad()``, ``w.grad.zero_()``, ``w.grad = None``, at whatever depth."""
    given = (target for s in ast.walk(statement) if isinstance(s, ast.stmt) for target in assigned(s))
    return bool(calls_named(statement, "zero_grad", "zero_")) or any(getattr(t, "attr", "") == "grad" for t in given)


def steps_between(problem: Problem) -> bool:
    """Whether an optimizer stepped what the needing backward goes to, after the one that freed the graph and before it."""
    return not passes_to_need(problem)


def sent_back_again(problem: Problem) -> bool:
    """Whether a loop goes back again and again through a graph that was made ahead of it, and updates what that was made of, or
    goes back from one value: what was kept for it would give the gradients of the first weights each time."""
    need, (needed, saved) = problem.clash.need, parted(problem.needed, problem.saved)
    if need is None or not needed or not saved:
        return False
    looped = any(loops(frame.code, frame.statement, without=[saved[0].statement]) for frame in needed)
    if looped and updates_weights(problem) and is_in_update(problem):
        return True
    if not looped and any(loops(frame.code, frame.statement) for frame in needed):
        return False  # each iteration makes a graph of its own
    since = problem.clash.save.clock if problem.clash.save is not None else 0
    backwards = (one for one in problem.evidence.passes if one.backward.stack[:1] == need.stack[:1])
    alike = [one.value for one in backwards if one.backward.retained and one.backward.clock > since]
    return any(one and other and close(one, other) for one, other in itertools.pairwise(alike))


def share_leaves(problem: Problem, moved: int) -> bool:
    """Whether the later optimizer updates parameters that a moved step updates too. True if that is not known."""
    passes = problem.evidence.passes
    at = problem.ahead
    if not 0 < at < len(passes) or not passes[at].steps:
        return True
    later = {g.leaf for g in passes[at].steps[0]}
    return any(later & one.stepped for one in passes[max(0, at - moved) : at])


def kept_for_later_loss(problem: Problem) -> bool:
    """Whether an earlier backward has kept its graph, so that the later loss, made by then or not, goes through the same
    scores: by what a step has updated since, they are to be made once more. A term of the later loss is added to others as it
    is; what another cell goes on with may be meant as values.
    """
    save, need = problem.clash.save, problem.clash.need
    if save is None or need is None or any(edge.term and not edge.root for edge in problem.crossing.over):
        return False
    if not {frame.code for frame in problem.lost} & {frame.code for frame in problem.needed}:
        return False
    since = [one.backward for one in problem.evidence.passes[: need.index] if one.backward.clock > save.clock]
    return any(backward.retained for backward in since) and goes_through_update(problem)


def goes_through_update(problem: Problem) -> bool:
    """Whether the later loss goes through what a step before its backward has updated, on the way to what its own step is
    for: a generator's through the discriminator, an actor's through the critic.
    """
    write, save, need, passes = problem.clash.write, problem.clash.save, problem.clash.need, problem.evidence.passes
    if write is None or write.origin != "optim" or save is None or need is None:
        return False
    between = sum(one.backward.clock > save.clock for one in passes[: need.index])
    return not share_leaves(problem, between) and not problem.crossing.untrained
