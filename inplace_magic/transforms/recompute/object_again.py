"""An object that computes something of a leaf once, when it is first asked for it, is made anew in each iteration.

coin = Bernoulli(probs=p)                  for flips in days:
for flips in days:                             coin = Bernoulli(probs=p)
    loss = -coin.log_prob(flips).mean()        loss = -coin.log_prob(flips).mean()
    loss.backward()                            loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import bindings
from ...source.blocks import loops
from ...source.dataflow import called_name, reads
from ...source.lift import moved
from ...source.modules import module_has
from ...source.names import first_name
from ..analysis.meetings import headline
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_graphs_of_their_own")


@register("second_backward", "modified")
def object_again(problem: Problem) -> Iterator[Proposal]:
    leaves = {first_name(leaf) for one in problem.evidence.passes for leaf in one.leaves}
    holders = (holder for edge in problem.crossing.over for holder in edge.holders)
    held = {(one.scope, one.path.rpartition(".")[0]) for one in holders}
    for frame in problem.needed:
        for name in sorted(path for where, path in held if where == frame.spot.function and path.isidentifier()):
            made = next(iter(bindings(frame.code, name, frame.statement)), None)
            around = loops(frame.code, frame.statement, without=[made.statement]) if made is not None else []
            if made is None or not around or not isinstance(made.value, ast.Call):
                continue
            called = called_name(made.value)
            # A module has weights of its own.
            if not module_has("torch.nn", called) and reads(*made.value.args, *made.value.keywords) & leaves:
                edits = moved(frame.code, [made.statement], around[0].body[0])
                title = headline(frame.code, made.statement)
                alone = module_has("torch.distributions", called)  # it has no other state
                yield in_one_text(frame.code, edits, title, _WHY, "recompute: moved", meant=alone)
