"""Which cells have to run in the session for a rewrite to take effect, in the state that they were run in the first time."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection

from ..source.cell_flow import changed_from_before, making
from ..source.dataflow import called_name, calls
from ..source.document import FileSource
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
    run: list[int] = []
    anew: set[int] = set()
    while True:
        before = len(anew)
        run = _with_dependents(sources, texts, spared, failing, anew)
        for number in run:
            anew |= _makers_of_changed(sources, number, carrying) - set(run)
        if len(anew) == before:
            return tuple(run)


def _makers_of_changed(sources: Sources, number: int, carrying: Collection[str]) -> set[int]:
    """The latest cells before one that made what it goes on from and changes."""
    found: set[int] = set()
    for name in changed_from_before(sources.cells[number]) & {*carrying}:
        cells = (n for n, cell in sources.cells.items() if n < number and name in names_bound(making(cell)))
        maker = max(cells, default=number)
        made = making(sources.cells[maker])
        trains = any(called_name(call) in ("backward", "step") for s in made for call in calls(s))
        if names_bound(made) <= {*carrying} and not trains and not isinstance(sources.cells[maker], FileSource):
            found.add(maker)
    return found


def _with_dependents(
    sources: Sources, texts: dict[int, str], spared: tuple[int, ...], failing: int, anew: Collection[int]
) -> list[int]:
    """The rewritten cells that have to run, those that are run ``anew``, the failing one, and what depends on these."""
    run: list[int] = []
    fresh_names: set[str] = set()
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
        elif number in anew:
            run.append(number)
            fresh_names |= names_bound(making(new))
        elif (names_loaded(new.tree.body) & fresh_names) or (_names_imported(new.tree) & imported):
            run.append(number)
            fresh_names |= names_bound(new.tree.body)
    return run


def _names_imported(tree: ast.Module) -> set[str]:
    return {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
