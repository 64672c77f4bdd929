"""What is put into a container goes there without its history; what an object keeps is cut where it is set.

bank.append(z)                            bank.append(z.detach())

out, self.h = self.rnn(x, self.h)         out, self.h = self.rnn(x, self.h)
                                          self.h = self.h.detach()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...record.evidence import Edge, Holder
from ...source.dataflow import assigned, called_name
from ...source.editor import Code
from ..analysis.contents import put
from ..analysis.points import by_attribute, detached
from ..analysis.targets import root_text
from ..problem import Problem
from ..proposal import Change, Proposal
from .candidates import CARRIED, candidates
from .made_once import before_turns

_ITEM = re.compile(r"[^[]*\[[^]]*\](\[[^]]*\]|\.\w+)")  # ``[0]`` of ``memory[3][0]``, ``.state`` of ``memory[3].state``


def at_stores(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    holders = {h for edge in edges for h in edge.holders}
    buffers = [replace(h, path=by_attribute(h.path)) for h in holders if h.shape == "Tensor" and _is_kept(h)]
    into_buffers = [(code, code.behind(value, ".detach()")) for code, _, value in puts(problem, buffers)]
    items = {match[1] for h in holders if (match := _ITEM.match(h.path))}
    into_containers = puts(problem, containers(holders))
    changes = [change for code, node, value in into_containers for change in _without_history(code, node, value, items)]
    again = not any(before_turns(problem, edge) for edge in edges)  # each iteration puts one there
    for form, cuts in (("into a buffer", into_buffers), ("put", changes)):
        for one in candidates(problem, cuts, form, CARRIED):
            yield replace(one, kept=again)
    yield from candidates(problem, list(_behind_the_setting(problem, edges)), "set", CARRIED)


def containers(holders: Iterable[Holder]) -> list[Holder]:
    """The containers among some holders, and those that they are items of."""
    return [replace(h, path=h.path.partition("[")[0]) for h in holders if h.shape != "Tensor" or "[" in h.path]


def _is_kept(holder: Holder) -> bool:
    """Whether an object or a dict keeps a tensor."""
    path = by_attribute(holder.path)
    return "[" not in path and (holder.of_object or "." in path)


def puts(problem: Problem, holders: Sequence[Holder]) -> Iterator[tuple[Code, ast.stmt, ast.expr]]:
    """The statements that put something into what some holders are, each with what it puts there."""
    for code, node in problem.nodes(ast.stmt):
        for into, value in put(node):
            text = root_text(code, into) or ""
            if any(one.is_called(text) for one in holders) and not isinstance(value, ast.Constant):
                yield code, node, value


def _without_history(code: Code, node: ast.stmt, value: ast.expr, items: set[str]) -> list[Change]:
    """``items``: which parts of a value that has some hold a history, where that is known."""
    parts = {key: part for key, part in _parts(value) if not isinstance(part, ast.Constant)}
    held = [part for key, part in parts.items() if key in items]
    if held or isinstance(value, (ast.Tuple, ast.List)):
        return [(code, code.behind(part, ".detach()")) for part in held or parts.values()]
    if isinstance(node, ast.Expr) and called_name(node.value).startswith("extend"):
        return [(code, code.replace(value, f"[m.detach() for m in {code.text(value)}]"))]
    return [(code, code.behind(value, ".detach()"))]


def _parts(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """``(s, r)``, ``{"s": s}``, ``Step(s, reward=r)``: the expressions in it, each with the way to what it becomes."""
    if isinstance(value, ast.Dict):
        yield from ((f"[{ast.unparse(key)}]", part) for key, part in zip(value.keys, value.values) if key)
    given = value.elts if isinstance(value, (ast.Tuple, ast.List)) else getattr(value, "args", [])
    yield from ((f"[{i}]", part) for i, part in enumerate(given) if not isinstance(part, ast.Starred))
    yield from ((f".{keyword.arg}", keyword.value) for keyword in getattr(value, "keywords", []))


def _behind_the_setting(problem: Problem, edges: Sequence[Edge]) -> Iterator[Change]:
    """A line behind the one that made the value and gave it to an attribute: where a library runs the loop, there is no other.

    So to an item of what a closure keeps, which nobody else has a name for.
    """
    holders = [h for edge in edges for h in edge.holders]
    made = {f.statement: f.code for edge in edges for f in problem.frames(edge.made)}
    for statement, code in made.items():
        for target in assigned(statement):
            path = code.text(target)
            held = [
                h.shape for h in holders if h.is_called(path) and (h.of_object or isinstance(target, ast.Subscript))
            ]
            if held and (new := detached(path, held[0])) is not None:
                yield code, code.insert_after(statement, f"{path} = {new}")
