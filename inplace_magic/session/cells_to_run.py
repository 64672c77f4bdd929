"""Which cells have to run in the session for a rewrite to take effect, in the state that they were run in the first time."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection

from ..source.cell_flow import changed_from_before, making
from ..source.dataflow import binds, called_name, calls
from ..source.document import Document, FileSource
from ..source.editor import names_bound, names_loaded
from ..source.sources import Sources
from .patch_live import changed_statements, initialises, needs_run


def cells_to_run(
    sources: Sources,
    texts: dict[int, str],
    spared: tuple[int, ...],
    failing: int,
    carrying: Collection[str] = (),
) -> tuple[int, ...]:
    """The cells that have to run for a rewrite to take effect: rewritten ones, what depends on them, the failing one; and what
    made a value that one of these goes on from.

    ``carrying``: the names of the session that lead to a graph by now. A cell that changes such a value (``e *= 2``) would
    change it a second time: it is made anew first, where its cell makes nothing but such values, and trains nothing.
    """
    anew: set[int] = set()
    while True:
        run = _with_dependents(sources, texts, spared, failing, anew, carrying)
        more = {maker for number in run for maker in _makers_of_changed(sources, number, carrying)} - set(run)
        if not more:
            return tuple(run)
        anew |= more


def _makers_of_changed(sources: Sources, number: int, carrying: Collection[str]) -> set[int]:
    """The latest cells before one that made what it goes on from and changes."""
    found: set[int] = set()
    for name in changed_from_before(sources.cells[number]) & {*carrying}:
        makers = (n for n, cell in sources.cells.items() if n < number and name in binds(*making(cell)))
        maker = max(makers, default=number)
        if makes_values(sources.cells[maker], carrying):
            found.add(maker)
    return found


def makes_values(cell: Document, carrying: Collection[str]) -> bool:
    """Whether a cell makes nothing but values that carry a graph by now, and trains nothing: it can run again for their sake."""
    return binds(*making(cell)) <= {*carrying} and not _acts(cell) and not isinstance(cell, FileSource)


def _acts(cell: Document) -> bool:
    """Whether a cell sends a loss back, or steps something, be it an environment: that is not done again for a value's sake."""
    return any(called_name(call) in ("backward", "step") for s in making(cell) for call in calls(s))


def _with_dependents(
    sources: Sources,
    texts: dict[int, str],
    spared: tuple[int, ...],
    failing: int,
    anew: Collection[int],
    carrying: Collection[str],
) -> list[int]:
    """The rewritten cells that have to run, those that are run ``anew``, the failing one, and what depends on these.

    Of a value that is made anew for another cell's sake depends what changes it, or makes another one with a graph of it.
    """
    run: list[int] = []
    fresh_names, again = set[str](), set[str]()
    imported: set[str] = set()  # what a rewritten file makes anew
    for number in sorted(sources.cells):
        if number > failing:
            continue
        old = sources.cells[number]
        new = old.with_text(texts[number]) if number in texts else old
        if number == failing:
            run.append(number)
        elif number in texts and number not in spared and (needs_run(old, new) or initialises(old, new)):
            fresh_names |= names_bound(changed_statements(old, new) or (new.tree.body if new.tree else []))
            if isinstance(new, FileSource):
                fresh_names.add(os.path.basename(new.path).removesuffix(".py"))
                imported |= fresh_names
            else:
                run.append(number)
                fresh_names |= names_bound(making(new))
        elif isinstance(new, FileSource) or new.tree is None:
            continue
        elif (names_loaded(new.tree.body) & fresh_names) or (_names_imported(new.tree) & imported):
            run.append(number)
            fresh_names |= names_bound(s for s in new.tree.body if not isinstance(s, (ast.Import, ast.ImportFrom)))
        elif number in anew or (names_loaded(making(new)) & again and _goes_on(new, again, carrying)):
            run.append(number)
            again |= names_bound(making(new))
    return run


def _goes_on(cell: Document, again: Collection[str], carrying: Collection[str]) -> bool:
    """Whether a cell changes some values, or makes another one of them that carries a graph; not where it trains."""
    makes = changed_from_before(cell) & {*again} or binds(*making(cell)) & {*carrying}
    return bool(makes) and not _acts(cell)


def _names_imported(tree: ast.Module) -> set[str]:
    return {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
