"""A buffer that is filled step by step, each step reading the one before, becomes a list.

    states = torch.zeros(n + 1, 2)            states = [start]
    states[0] = start
    for i in range(n):                        for i in range(n):
        states[i + 1] = step(states[i])           states.append(step(states[i]))
                                              states = torch.stack(states)

Slices of width one (``out[:, c:c+1] = ...``) are put together with ``torch.cat``, ``out[:, t] = ...`` along its
dimension with ``torch.stack``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...message import message
from ...source.dataflow import binds
from ...source.editor import Code, Edit, atom
from ..analysis.targets import bindings, own_statements, scope, sites, torch_name
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_list_of_steps")
_MAKERS = frozenset({
    "zeros", "empty", "ones", "full", "zeros_like", "empty_like", "ones_like", "full_like", "new_zeros", "new_empty",
    "new_ones", "new_full", "rand", "randn",
})  # fmt: skip


@dataclass(frozen=True)
class _Place:
    """Where in the buffer something is: the dimension, the index, and whether it is a slice of width one."""

    dim: int
    index: ast.expr
    wide: bool


@register("modified", "silent")
def buffer_to_list(problem: Problem) -> Iterator[Proposal]:
    torch = torch_name(problem)
    for write in sites(problem, depth=1):
        name = write.root_text
        if torch is None or name is None or not isinstance(write.root, ast.Name):
            return
        edits = _rewrite(write.code, write.statement, name, torch)
        if edits is not None:
            yield Proposal(
                title=message("title_as_list", name=name),
                why=_WHY,
                form="buffer_to_list",
                local=True,
                texts={write.code.cell.number: write.code.apply(*edits)},
            )


def _rewrite(code: Code, statement: ast.stmt, name: str, torch: str) -> list[Edit] | None:
    """The edits that make a list of the buffer, or None where some use of it does not fit the pattern."""
    loop = code.parent(statement)
    made = [b for b in bindings(code, name, statement) if b.statement.lineno < statement.lineno]
    if not isinstance(loop, (ast.For, ast.While)) or loop.orelse or len(made) != 1:
        return None
    made_at = made[0].statement
    place, counted = _written(statement, name), _counted(code, loop)
    if place is None or not _makes(made[0].value) or counted is None:
        return None
    counter, start = counted
    block = code.block(loop)
    if made_at not in block or not isinstance(made_at, ast.Assign) or len(made_at.targets) != 1:
        return None
    if isinstance(made_at.targets[0], ast.Tuple):
        return None
    seeds = [s for s in block[block.index(made_at) + 1 : block.index(loop)] if _written(s, name) is not None]
    first = start + _offset(place.index, counter, default=-99)
    if first < 0 or len(seeds) > 1 or first > 1 or (seeds and (first != 1 or not _is_first(seeds[0], name, place))):
        return None
    reads = _reads(code, statement, made_at, seeds, loop, name, place)
    if reads is None:
        return None
    head = _head(code, made[0].value, seeds, place, first)
    edits = [code.replace(made_at.value, head), *(code.delete(s) for s in seeds)]
    begin, end = code.span(statement)
    value_start, value_end = code.span(statement.value)  # type: ignore[attr-defined]
    edits += [Edit(begin, value_start, f"{name}.append("), Edit(value_end, end, ")")]
    edits += [code.replace(node, f"{name}[{index}]") for node, index in reads]
    return edits + _joined(code, loop, name, place, torch)


def _makes(value: ast.expr | None) -> bool:
    if not isinstance(value, ast.Call):
        return False
    called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return called in _MAKERS


def _counted(code: Code, loop: ast.For | ast.While) -> tuple[str, int] | None:
    """The counter of a loop that counts by one, and what it begins with; None for any other loop."""
    if isinstance(loop, ast.For):
        args = loop.iter.args if isinstance(loop.iter, ast.Call) else []
        called = getattr(loop.iter.func, "id", "") if isinstance(loop.iter, ast.Call) else ""
        if not isinstance(loop.target, ast.Name) or called != "range" or len(args) not in (1, 2):
            return None
        counter, first = loop.target.id, args[0] if len(args) == 2 else None
    else:
        last = loop.body[-1]
        if not isinstance(last, ast.AugAssign) or not isinstance(last.target, ast.Name):
            return None
        counter = last.target.id
        block = code.block(loop)
        begun = [s for s in block[: block.index(loop)] if counter in binds(s)]
        by_one = isinstance(last.op, ast.Add) and isinstance(last.value, ast.Constant) and last.value.value == 1
        alone = not any(counter in binds(s) for s in loop.body[:-1])
        if not begun or not isinstance(begun[-1], ast.Assign) or not by_one or not alone:
            return None
        first = begun[-1].value
    if first is None:
        return counter, 0
    return (counter, first.value) if isinstance(first, ast.Constant) and isinstance(first.value, int) else None


def _offset(index: ast.expr, counter: str, default: int) -> int:
    """1 for ``i + 1``, 0 for ``i``, -1 for ``i - 1``."""
    if isinstance(index, ast.Name) and index.id == counter:
        return 0
    if isinstance(index, ast.BinOp) and isinstance(index.op, (ast.Add, ast.Sub)):
        left, right = index.left, index.right
        step = right.value if isinstance(right, ast.Constant) else None
        if isinstance(left, ast.Name) and left.id == counter and isinstance(step, int):
            return step if isinstance(index.op, ast.Add) else -step
    return default


def _written(statement: ast.stmt, name: str) -> _Place | None:
    """The place that ``name[...] = value`` fills, or None."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    return _place(statement.targets[0], name)


def _place(node: ast.expr, name: str) -> _Place | None:
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.value.id != name:
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    picked = [(i, p) for i, p in enumerate(parts) if not _everything(p)]
    if len(picked) != 1:
        return None
    dim, part = picked[0]
    if any(isinstance(p, ast.Constant) and p.value is ... for p in parts[:dim]):
        dim -= len(parts)
    if isinstance(part, ast.Slice):
        wide = part.lower is not None and part.upper is not None and part.step is None
        if not wide or ast.dump(part.upper) not in _next(part.lower):  # type: ignore[arg-type]
            return None
        return _Place(dim, part.lower, True)  # type: ignore[arg-type]
    return _Place(dim, part, False)


def _everything(part: ast.expr) -> bool:
    if isinstance(part, ast.Slice):
        return part.lower is None and part.upper is None and part.step is None
    return isinstance(part, ast.Constant) and part.value is ...


def _next(lower: ast.expr) -> list[str]:
    """The ways to write the number behind ``lower``."""
    text = ast.unparse(lower)
    forms = [f"{text} + 1", f"1 + {text}"]
    if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Add):
        step = lower.right.value if isinstance(lower.right, ast.Constant) else None
        if isinstance(step, int):
            forms.append(f"{ast.unparse(lower.left)} + {step + 1}")
    if isinstance(lower, ast.Constant) and isinstance(lower.value, int):
        forms.append(str(lower.value + 1))
    return [ast.dump(ast.parse(form, mode="eval").body) for form in forms]


def _is_first(seed: ast.stmt, name: str, like: _Place) -> bool:
    place = _written(seed, name)
    if place is None or (place.dim, place.wide) != (like.dim, like.wide):
        return False
    return isinstance(place.index, ast.Constant) and place.index.value == 0


def _reads(
    code: Code, statement: ast.stmt, made_at: ast.stmt, seeds: list[ast.stmt], loop: ast.stmt, name: str, like: _Place
) -> list[tuple[ast.Subscript, str]] | None:
    """Reads of single steps inside the loop, with the list's index for each; None if there is any other use there."""
    found: list[tuple[ast.Subscript, str]] = []
    skipped = {id(n) for s in (made_at, *seeds) for n in ast.walk(s)}
    for top in own_statements(code, scope(code, loop)):
        if top.lineno > (loop.end_lineno or 0):
            continue
        for node in ast.walk(top):
            if not isinstance(node, ast.Name) or node.id != name or id(node) in skipped:
                continue
            skipped.add(id(node))
            above = code.parent(node)
            if isinstance(statement, ast.Assign) and above is statement.targets[0]:
                continue
            place = _place(above, name) if isinstance(above, ast.Subscript) else None
            if place is None or not isinstance(above, ast.Subscript) or not isinstance(above.ctx, ast.Load):
                return None
            if (place.dim, place.wide) != (like.dim, like.wide):
                return None
            found.append((above, code.text(place.index)))
    return found


def _head(code: Code, made: ast.expr | None, seeds: list[ast.stmt], place: _Place, first: int) -> str:
    """What the list begins with."""
    if seeds and isinstance(seeds[0], ast.Assign):
        return f"[{code.text(seeds[0].value)}]"
    if first == 0 or made is None:
        return "[]"
    inside = ":, " * place.dim if place.dim >= 0 else "..., "
    return f"[{atom(code, made)}[{inside}{'0:1' if place.wide else '0'}]]"


def _joined(code: Code, loop: ast.stmt, name: str, place: _Place, torch: str) -> list[Edit]:
    """The list is put together behind the loop: where it is returned at once, or in a line of its own."""
    join = "cat" if place.wide else "stack"
    dim = f", dim={place.dim}" if place.dim else ""
    text = f"{torch}.{join}({name}{dim})"
    block = code.block(loop)
    behind = block[block.index(loop) + 1 :]
    returned = behind[0].value if behind and isinstance(behind[0], ast.Return) else None
    if isinstance(returned, ast.Name) and returned.id == name:
        return [code.replace(returned, text)]
    return [code.insert_after(loop, f"{name} = {text}")]
