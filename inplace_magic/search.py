"""The search for a fix: every transformation's candidates for a conflict, in the order of what they cost.

A cost says what a person pays for a change: what is done differently afterwards, passes and memory that come on top,
how much text changes, and, all that being equal, what experienced people write. The table below is the only place where
one transformation is put before another.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

from . import transforms
from .source.editor import Overlap
from .transforms import proposal as registry
from .transforms.detach import detach
from .transforms.problem import Problem
from .transforms.proposal import Proposal, rules
from .transforms.recompute.stale_values import recompute
from .transforms.restructure.behind_loop import restructure

# Families in which a transformation can be of use.
_GRAPH = frozenset({"modified", "second_backward", "silent"})
TRANSFORMS: dict[Callable[[Problem], Iterable[Proposal]], frozenset[str]] = {
    detach: _GRAPH,
    restructure: frozenset({"second_backward", "modified"}),
    recompute: frozenset({"modified", "second_backward"}),
}
COSTS = {
    "restructure: one update": 9,  # as many updates; what was summed up counts once
    "detach: once": 13,  # what is computed once stays computed once
    "recompute: moved": 14,  # computed once per iteration, as before
    "recompute: again": 28,  # a forward pass more
    "detach: summed": 10,  # nothing but the history of a sum goes
    "detach: shared": 11,  # the earlier loss's own parameters keep their gradients
    "detach: untrained": 12,  # what it was made from gets no gradient that a step uses
    "detach: boundary": 20,  # history ends where an iteration does
    "detach: use": 21,
    "detach: boundary of objects": 22,
    "detach: put": 23,
    "detach: shared, all of it": 25,
    "detach: again": 26,  # history ends within an iteration as well
    "detach: set": 27,
    "restructure: behind the loop": 29,  # another number of updates
    "detach: between": 35,  # the later of two losses trains less
}


@cache
def load() -> None:
    """Imports every module of ``transforms``; those with rules register them."""
    for module in pkgutil.walk_packages(transforms.__path__, f"{transforms.__name__}."):
        importlib.import_module(module.name)


def propose(problem: Problem) -> Iterator[Proposal]:
    """Candidates for the problem, the cheapest first, none twice. A transformation that crashes is passed over."""
    load()
    found: list[tuple[int, Proposal]] = []
    for transform, families in TRANSFORMS.items():
        if problem.family not in families:
            continue
        try:
            found += [(COSTS[p.form], p) for p in transform(problem)]
        except Overlap:
            continue
        except Exception:
            registry.passed_over(transform.__name__)
    found += rules(problem)
    seen: set[tuple[tuple[int, str], ...]] = set()
    for cost, proposal in sorted(found, key=lambda pair: pair[0]):
        key = tuple(sorted(proposal.texts.items()))
        unchanged = all(problem.sources.cells[n].raw == text for n, text in proposal.texts.items())
        if key in seen or (unchanged and not proposal.live):
            continue
        seen.add(key)
        yield replace(proposal, rank=cost)
