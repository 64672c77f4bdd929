"""Which cells made what a cell reads, and which later cells read what a cell makes: by the names they bind and load."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable

from .dataflow import binds, calls, is_inplace_name, key_of, live_in, rebinds, receiver
from .document import Document
from .editor import Function, names_bound, names_loaded
from .names import first_name
from .sources import Sources

_DEFINITIONS = (*Function, ast.ClassDef, ast.Import, ast.ImportFrom)


def makers_of(sources: Sources, history: Iterable[int], cell: int, changed: bool = False) -> tuple[int, ...]:
    """The cell and, of the cells of ``history`` before it, those that made what it reads: the latest of each name.

    A cell that only defines and imports made nothing that could have gone wrong. ``changed``: also the cells that read
    what one of these has made, and may have changed it, with what made the rest of what they read.
    """
    does = {number: making(sources.cells[number]) for number in history if number < cell}
    tree = sources.cells[cell].tree
    does[cell] = tree.body if tree is not None else []
    chosen = _with_makers(does, {cell})
    while changed:
        made = names_bound(itertools.chain.from_iterable(does[n] for n in chosen))
        more = {n for n, statements in does.items() if n > min(chosen) and names_loaded(statements) & made} - chosen
        if not more:
            break
        chosen = _with_makers(does, chosen | more)
    return tuple(sorted(chosen))


def readers_of(sources: Sources, history: Iterable[int], cell: int, paths: tuple[str, ...]) -> tuple[int, ...]:
    """The cell and, of the cells before it, the latest to make one of these objects, with all since then that read it
    or what was made of it. What else they read (the data, mostly) is as it was.
    """
    does = {number: making(sources.cells[number]) for number in history if number <= cell}
    names = {first_name(path) for path in paths}
    goes_on = {number: changed_from_before(sources.cells[number]) for number in does}
    made = {n: names_bound(statements) - goes_on[n] for n, statements in does.items()}
    chosen = {max((n for n in does if name in made[n]), default=cell) for name in names}
    for number in sorted(does):
        if number in chosen or (number > min(chosen, default=cell) and names_loaded(does[number]) & names):
            chosen.add(number)
            names |= names_bound(does[number])
    return tuple(sorted({*chosen, cell}))


def making(cell: Document) -> list[ast.stmt]:
    """The statements of a cell that make something: no definitions and no imports, which give the same each time."""
    return [s for s in cell.tree.body if not isinstance(s, _DEFINITIONS)] if cell.tree is not None else []


def changed_from_before(cell: Document) -> set[str]:
    """What a cell changes that it needs as it was before: ``e`` for ``e *= 2``, ``e = e + 1``, ``e[0] = 1``, ``e.mul_(2)``,
    ``e.data += 1``, ``F.relu_(e)``, ``torch.exp(x, out=e)``.
    """
    made = making(cell)
    bound, whole = binds(*made), rebinds(*made)
    written = {key for s in made for call in calls(s) for one in _written(call) if (key := key_of(one)) is not None}
    again = bound & live_in(made)
    return again | ({first_name(key) for key in again | (bound | written) - whole} - whole)


def changed_again(sources: Sources, run: Iterable[int]) -> list[str]:
    """What some cells change as they run again, and none of them makes anew first."""
    found: list[str] = []
    made: set[str] = set()
    for number in run:
        changed = changed_from_before(sources.cells[number])
        found += sorted(changed - made)
        made |= binds(*making(sources.cells[number])) - changed
    return list(dict.fromkeys(found))


def _written(call: ast.Call) -> list[ast.expr]:
    """What a call writes in place."""
    out = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
    in_place = isinstance(call.func, ast.Attribute) and is_inplace_name(call.func.attr)
    target = receiver(call) if in_place else None
    return [*out, target] if target is not None else out


def _with_makers(does: dict[int, list[ast.stmt]], chosen: set[int]) -> set[int]:
    """Cells by what they do: the chosen ones, with those that made what they read."""
    found, wanted = set(chosen), set[str]()
    for number in sorted(does, reverse=True):
        names = names_bound(does[number])
        if number in chosen or names & wanted:
            found.add(number)
            wanted = (wanted - names) | names_loaded(does[number])
    return found
