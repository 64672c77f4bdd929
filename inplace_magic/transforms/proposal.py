"""A rewrite that has not been tried, as a frozen record; the functions that propose one register themselves here.

A transformation may be generous: whatever it proposes is run before anyone sees it. It says nothing about gradients,
they are measured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..diagnosis import LiveChange
from ..source.editor import Overlap
from .problem import Problem

_log = logging.getLogger(__name__)
Reading = Literal["tracked", "update"]
# Rules that mend the line of a write or of a save and leave the flow of the program alone. A fix of several steps that
# began with one of them goes on with them.
LOCAL = frozenset({
    "buffer_to_list", "clone_alias", "clone_at_save", "clone_before_write", "fast_weights", "index_views", "module_flag", "no_grad",
    "out_of_place",
})  # fmt: skip


@dataclass(frozen=True)
class Proposal:
    """A rewrite that has not been tried. ``texts``: execution count to the whole new text.

    ``live`` are changes of objects that exist already; where they make a cell's rerun superfluous, the cell is named
    in ``spared``. ``reading`` tells what a refused write into a leaf is taken to mean: part of the graph, or an update.
    ``rank``, where it is given, stands in for the rule's own. ``lossless``: worth nothing unless the gradients stay the
    same, as where the write may have been meant for more than what the rewrite gives it to. ``whole``: gradients differ
    only in how often a part is counted, and no edge is cut, which is worth no less than a cut. ``begins``: names that
    are to have another value afterwards, which is what the rewrite is for. ``partial``: no fix by itself, even if it runs.
    """

    title: str
    why: str
    rule: str
    texts: dict[int, str]
    live: tuple[LiveChange, ...] = ()
    spared: tuple[int, ...] = ()
    reading: Reading = "tracked"
    rank: int | None = None
    lossless: bool = False
    whole: bool = False
    begins: frozenset[str] = frozenset()
    partial: bool = False
    form: str = ""  # its row in ``search.COSTS``


Rule = Callable[[Problem], Iterable[Proposal]]


@dataclass(frozen=True)
class _Registered:
    families: frozenset[str]
    rank: int
    rule: Rule


_RULES: list[_Registered] = []


def register(*families: str, rank: int = 50) -> Callable[[Rule], Rule]:
    """Registers a rule for some families. ``rank``: what an experienced person would try first is lower."""

    def decorate(rule: Rule) -> Rule:
        _RULES.append(_Registered(frozenset(families), rank, rule))
        return rule

    return decorate


def _order(registered: _Registered) -> tuple[int, str]:
    return registered.rank, registered.rule.__module__.rpartition(".")[2]


def passed_over(name: str) -> None:
    """Called while what a rule or a transformation has raised is handled: people get the other fixes. Tests raise it."""
    _log.debug("%s crashed", name, exc_info=True)


def rules(problem: Problem) -> list[tuple[int, Proposal]]:
    """Every rule's proposals for the problem, each with its rank. A rule that crashes is passed over."""
    ranked: list[tuple[int, Proposal]] = []
    for registered in sorted(_RULES, key=_order):
        if problem.family not in registered.families:
            continue
        try:
            proposals = list(registered.rule(problem))
        except Overlap:
            continue
        except Exception:
            passed_over(registered.rule.__name__)
            continue
        ranked += [(registered.rank if p.rank is None else p.rank, p) for p in proposals]
    return ranked
