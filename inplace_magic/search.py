"""The search for a fix: every transformation's candidates for a conflict, in the order of what they cost.

A cost says what a person pays for a change: what is done differently afterwards, passes and memory that come on top,
how much text changes, and, all that being equal, what experienced people write. The table below is the only place where
one transformation is put before another; of two forms with one cost the first in the table is the first to be tried.
What was measured comes before what a change costs: among verified fixes the cost decides only where their rank is one.
A form in LATE is tried that much later than its cost tells, since what it changes takes more runs to measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from .message import message
from .source.editor import Overlap
from .transforms import registry
from .transforms.problem import Problem
from .transforms.proposal import Proposal

Rank = Literal[  # what a fix is worth by what was measured alone, the best first
    # Nothing changes, or a cut that no step feels; or the code says what it was meant to (Proposal.meant), or a loss sees the
    # updates that stand before its own (IN_ORDER): the label still says that the result differs.
    "same",
    # Edges are cut, and each leaf still learns from every loss that it is stepped for; or a sum goes back once, whole; or
    # what was to begin anew does, in as many updates.
    "truncated",
    # An update has moved, or a step uses more than before: each leaf learns from every loss that it is stepped for, in as
    # many updates, and nothing else that is read changes but what a forward more adds to statistics. Or a graph outlives a step
    # (PAST_A_STEP): a loss goes back through what was computed with the weights of before.
    "whole",
    "deprived",  # a cut by which a leaf learns nothing any more from a loss that it is stepped for
    "different",  # anything else: a forward with other weights, an update for what were several
    "copied",  # nothing changes, and nothing is mended: torch copies whatever is written (LAST_RESORT)
    "doubtful",  # others may have been meant to see the write, and do not
    "unknown",
]
COSTS = {
    # The line says what it was meant to say; nothing else is touched.
    "registered": 2,  # the container as torch's documentation has it
    "optimizer_again": 2,  # a line once more, where it says what was meant
    "zero_grad": 2,  # a line more, as torch's documentation has it
    "zero_grad: behind the step": 2,  # the same
    "zero_grad: moved": 2,  # a line changes its place
    "zero_grad: stepped by": 2,  # a line more, as torch's documentation has it
    "hook": 2,  # the hook as torch's documentation has it
    "mark_dirty": 2,  # the Function as torch's documentation has it
    "connected: all": 3,  # the path as it was meant, from wherever it is cut
    "connected": 3,  # the path as it was meant
    "leaf_of_result": 3,  # the leaf as it was meant
    "fast_weights": 3,  # the one form of an inner step that can be differentiated
    "silent_tracked": 3,  # the change is what was written, and now the graph hears of it
    "silent_tracked: on a copy": 4,  # a copy more
    "connected: block": 4,  # the block did nothing but cut
    "module_flag": 4,  # a flag that saves memory goes
    "connected: sloped": 5,  # the loss is that of other numbers
    "connected: straight through": 5,  # the loss stays, and the gradient is none of its own
    "connected: whole": 5,  # the same as above in several lines
    "no_grad: update": 5,  # how every optimizer writes its update
    "silent_batch_norm": 5,  # two small copies
    "views_again": 5,  # a line changes its place
    "drawn_once": 5,  # what is expanded is expanded later
    "kept_by_forward: random numbers": 6,  # what a checkpoint does by default
    "clone_before_write: of a Function": 6,  # a copy of an argument
    "clone_alias: of itself": 6,  # a copy; a tensor that is updated from itself serves nobody
    "connected: made later": 7,  # a line changes its place
    "silent_order": 7,  # a line changes its place
    "index_views": 7,  # the loop counts
    "view_at_write": 7,  # what is made once is made each time, which is no copy
    "clone_returned": 8,  # a copy for each caller
    "clone_alias": 8,  # a copy of what was to be one
    "drop_gradient": 8,  # what zero_grad does by default
    "clone_before_write: name, refused": 8,  # a copy, where out of place changes several lines
    "restructure: as often as cleared": 9,  # an update for several, as gradients are cleared once for them
    "restructure: one update": 9,  # as many updates; what was summed up counts once
    "inference_mode": 9,  # as fast but for views and versions
    "inference_mode: maker": 9,  # a decorator goes
    "connected: trained": 9,  # a decorator goes, and a gradient comes on top
    "out_of_place: outside no_grad": 9,  # the block has no purpose any more
    "behind_forward": 10,  # a line changes its place, and reads what is made in its own iteration
    "one_backward": 10,  # a line less
    "detach: summed": 10,  # nothing but the history of a sum goes
    "out_of_place: statement": 10,  # a tensor more for as long as the graph lives
    "detach: for both": 11,  # what neither of two losses is to train gets no gradient
    "detach: shared": 11,  # the earlier loss's own parameters keep their gradients
    "reset_accumulator: sum": 11,  # what is summed up is another number afterwards
    "detach: made once": 12,  # what is computed once stays computed once, and all who read it hold values
    "detach: untrained": 12,  # what it was made from gets no gradient that a step uses
    "silent_order: before a copy": 12,  # a backward moved for the sake of an array that a copy serves as well
    "out_of_place: container": 12,  # other references to the container see nothing
    "out_of_place: own name": 12,  # a name more
    "sum_losses": 12,  # one backward; each loss by itself is not seen any more
    "detach: source": 13,  # what is computed once stays computed once, ahead of what others make of it
    "detach: once": 13,  # what is computed once stays computed once
    "reset_accumulator: list": 13,  # what was collected is gone
    "retain: one by one": 13,  # the graph's memory, for as long as a forward for each would take
    "retain: differentiable": 15,  # a graph of the gradient as well, which a loss is made of
    "inference_mode: of views": 16,  # slower than inference mode, and it may not have been the block
    "retain": 16,  # the graph's memory until the second backward
    "retain: made differentiable": 17,  # a graph of the gradient as well, which nobody may have meant
    "clone_before_write: name": 18,  # a copy, and the graph goes on through it
    "reset_each_time": 19,  # a state is lost sooner than somebody has written it
    "reset_state: called": 19,  # the state is lost from one iteration to the next, as somebody has written it
    "sum_losses: over a loop": 19,  # the memory of all that the loop computes, and one backward behind it
    "detach: into a buffer": 20,  # an object keeps values alone
    "detach: boundary": 20,  # history ends where an iteration does
    "clone_before_write: write": 20,  # a copy of the whole for the sake of a part
    "clone_before_write: of the whole": 20,
    "clone_before_write: of a caller": 21,  # as above, and others who call the function get no copy
    "detach: use": 21,
    "clone_before_write: new leaf": 22,  # a copy, and history ends
    "detach: boundary of objects": 22,
    "detach: put": 23,
    "context_each_time": 24,  # what a block computed once it computes in each iteration
    "detach: boundary of containers": 24,  # a container is created anew for the sake of what is put into it
    "recompute: each call": 25,  # a computation in each call that a cache saved
    "recompute: as a property": 25,  # a computation each time that it is read
    "detach: again": 26,  # history ends within an iteration as well
    "reset_state: initial": 26,  # as above, by a line that nobody wrote for the purpose
    "detach: set": 27,
    "clone_before_write: of a state": 28,  # a copy, and what the object keeps is no longer written
    "recompute: again": 28,  # a forward pass more
    "recompute_carried": 28,  # a forward pass more
    "restructure: one step": 29,  # one update for several
    "restructure: behind the loop": 29,  # another number of updates
    "no_grad: value": 30,  # cuts a step out of a computation, unless it was none
    "clone_before_write: module": 30,  # a copy ahead of a module that was to save one
    "recompute: of a kept graph": 31,  # a forward pass more, by the weights that the loss is to pass through
    "move_step": 32,  # a step is made later, and the later backward is limited to its own parameters
    "recompute: in order": 32,  # a line changes its place, and its loss sees what has been trained so far
    "recompute: moved": 33,  # computed once per iteration, as before, with the weights of another moment
    "own_parameters": 33,  # what other steps train gets no gradient from this loss
    "move_step: projection": 33,  # as above, and what is stepped is projected
    "split_loop": 34,  # a loop becomes several
    "recompute: in turn": 35,  # several lines, and its loss sees what has been trained so far
    "detach: between": 35,  # the later of two losses trains less
    "recompute: between": 38,  # a forward pass more, written out between the two updates
    "retain: past a step": 39,  # memory; the later backward goes through what was computed before the step
    "move_step: gradients first": 39,  # several lines, a backward that is not called so
    "kept_by_forward": 39,  # the memory that a checkpoint saves
    "clone_at_save": 40,  # a copy kept for the gradient alone
    "out_of_place: meant for more": 45,  # others who hold the tensor do not see what is written
    "move_step: unguarded": 45,  # the step may find the other loss's gradients added
    "clone_before_write: meant for more": 47,
    "silent_tracked: after a save": 48,  # the value saved was meant, unless more is changed so
    "silent_tracked: on a copy after a save": 49,
    "clone_at_save: result": 60,  # a copy of what the formula keeps of itself
    "clone_at_save: any": 60,  # as above, or of what may be what it keeps
    "allow_mutation": 80,  # copies of whatever is written, and torch looks at every operation
}
# What verification asks of some forms:
# A running value is cut where it is read or kept: the same iteration may read of it what it has made itself.
RUNNING = frozenset({"detach: use", "detach: again", "detach: put", "detach: set", "detach: into a buffer"})
# A cut at the end of an iteration, which may be several ahead of the backward that it is for.
BOUNDARY = frozenset({"detach: boundary", "detach: boundary of objects", "detach: boundary of containers"})
AS_CLEARED = frozenset({"restructure: as often as cleared"})  # the updates are as many as were meant
ONE_UPDATE = frozenset({"restructure: one update"})  # a part counts once that counted several times, and no edge is cut
# Rules by which something is only computed, or sent back, again or elsewhere, unless their text has a cut as well.
MOVES = frozenset({"recompute", "recompute_carried", "move_step"})
# A leaf that has no name makes way for one that has: that nothing reaches the first one any more is no cut.
NAMED_LEAF = frozenset({"leaf_of_result"})
# A state begins anew, so that the losses are others.
RESTARTS = frozenset({"reset_state: called", "reset_state: initial", "reset_each_time"})
# A gradient has the value that it had, and a graph: no other value can differ before a step uses it.
DIFFERENTIABLE = frozenset({"retain: differentiable", "retain: made differentiable"})
# Where anything steps, a step has to use another gradient: else the change serves nobody.
FOR_TRAINING = frozenset({"connected: trained", "retain: differentiable"})
# A loss goes back through what was computed before a step.
PAST_A_STEP = frozenset({"retain: past a step"})
# It runs with the gradients as written whatever was meant, so that it comes behind what says what was meant.
LAST_RESORT = frozenset({"allow_mutation"})
# Tried where nothing has been found by which each leaf learns from its losses.
IF_NOTHING_ELSE = LAST_RESORT | {"clone_at_save: any"}
# Shown where nothing of the best rank does without.
LESSER = PAST_A_STEP | {"own_parameters"}
# A backward goes through a graph of before: what it needs may have been changed without torch's knowledge (``.data``).
KEEPS_GRAPH = frozenset({"retain", "retain: one by one"}) | PAST_A_STEP | LAST_RESORT
# By these a tensor that was read under two names becomes two: the values are what is mended, and not the order of things.
PARTING = frozenset({"out_of_place", "module_flag", "clone_before_write", "clone_alias", "clone_returned"})
# A copy ahead of a write: of what the graph is not told of, it tells it no more.
COPIES = frozenset({"clone_before_write", "clone_alias", "clone_returned"})
# What a loss is made of is computed where its update stands, by the weights that the updates before it have left.
IN_ORDER = frozenset({
    "recompute: in order", "recompute: in turn", "recompute: of a kept graph", "recompute: each call",
})  # fmt: skip
LATE = {"recompute: in order": 2}
_ROWS = {form: row for row, form in enumerate(COSTS)}  # by which the costs rise

# What mends what is no write.
ONLY: dict[str, str] = {
    "unreached": "connected",
    "added_up": "zero_grad",
    "discarded": "zero_grad",
    "cleared": "zero_grad",
    "unregistered": "registered",
    "replaced": "optimizer_again",
}


def cost(proposal: Proposal) -> int:
    return COSTS[proposal.form]


def propose(problem: Problem) -> Iterator[Proposal]:
    """Candidates for the problem, the cheapest first, none twice. A transformation that crashes is passed over."""
    registry.load()
    found: list[Proposal] = []
    how = problem.clash.write.how if problem.clash.write is not None else "written"
    for transform, families in registry.TRANSFORMS.items():
        if problem.family not in families:
            continue
        try:
            for proposal in transform(problem):
                cost(proposal)  # a form without one is a crash as well
                # Of what may be meant so, the path alone is in question.
                if ONLY.get(how, "connected" if problem.clash.kind == "detached" else proposal.rule) != proposal.rule:
                    continue
                if not problem.is_followed:
                    found.append(proposal)
                elif proposal.rule in PARTING:
                    why = proposal.why if proposal.rule == "module_flag" else message("why_names_apart")
                    found.append(replace(proposal, why=why))
        except Exception:  # what it found before stays
            registry.passed_over(transform.__name__)
    seen: set[tuple[tuple[int, str], ...]] = set()
    for proposal in sorted(found, key=lambda one: _ROWS[one.form]):
        try:
            key = tuple(sorted(proposal.texts.items()))
        except Overlap:  # its edits cannot be made together
            continue
        unchanged = all(problem.sources.cells[n].raw == text for n, text in proposal.texts.items())
        if key in seen or (unchanged and not proposal.live):
            continue
        seen.add(key)
        yield proposal
