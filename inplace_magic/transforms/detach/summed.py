"""A sum, or a mean of a list, that is kept for show is sent back: the loss goes back instead, and what is kept are values.

total += loss                             total += loss.detach()
total.backward()                          loss.backward()

losses.append(loss)                       losses.append(loss.detach())
torch.stack(losses).mean().backward()     loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...message import message
from ...record.evidence import Edge
from ...source.bindings import argument
from ...source.blocks import loops
from ...source.dataflow import added, binds, calls_named, reads, root_of, roots
from ...source.editor import Code, Function
from ..problem import Frame, Problem
from ..proposal import Proposal
from .at_stores import containers, puts
from .candidates import candidates

_SUMMED = message("why_sum_of_values")


def summed(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    for edge in edges:
        used = problem.frames(edge.used)
        for code, value in _kept(problem, edge, used):
            for need in problem.needed[::-1]:
                beside = [f for f in used if f.code is need.code and _loops(f) == _loops(need)]
                sums = {name for frame in beside for name in binds(frame.statement)} & roots(need.statement)
                named = [n for n in ast.walk(need.node) if isinstance(n, (ast.Name, ast.Attribute))]
                read = [n for n in named if need.code.text(n) in sums]
                whole: list[ast.expr | None] = [_item(need.code, n) for n in read if need.code.parent(n) not in read]
                whole += [_mean(need, f.node) for f in beside if f.statement is need.statement]
                sent, loss = dict.fromkeys(filter(None, whole)), _seen_from(code, value, need)
                if sent and loss is not None:
                    changes = [(code, code.behind(value, ".detach()"))]
                    changes += [(need.code, need.code.replace(root, loss)) for root in sent]
                    yield from candidates(problem, changes, "summed", _SUMMED)
                    return


def _loops(frame: Frame) -> object:
    return loops(frame.code, frame.statement)


def _kept(problem: Problem, edge: Edge, used: Sequence[Frame]) -> Iterator[tuple[Code, ast.expr]]:
    """What was added to a sum, or put into a container, that holds the history."""
    paths = {h.path for h in edge.holders} | {f"self.{h.path}" for h in edge.holders}
    for frame in used:
        total = added(frame.statement)
        if total is not None and ast.unparse(total[0]) in paths:
            yield frame.code, total[1]
    yield from ((code, value) for code, _, value in puts(problem, containers(edge.holders)))


def _item(code: Code, node: ast.expr) -> ast.expr:
    """``stats["loss"]`` of ``stats``."""
    above = code.parent(node)
    return _item(code, above) if isinstance(above, ast.Subscript) and above.value is node else node


def _mean(need: Frame, node: ast.AST) -> ast.expr | None:
    """``torch.stack(losses).mean()`` of the ``torch.stack(losses)`` in it: all that goes back and is of the losses alone."""
    above, root = need.code.parent(node), root_of(need.node)
    if not isinstance(node, ast.expr) or root is None or not any(inner is node for inner in ast.walk(root)):
        return None
    # ``sum(losses) / len(losses)`` is of the losses on both sides; ``sum(losses) / 10`` is not.
    of_both = isinstance(above, ast.BinOp) and reads(above.left) & reads(above.right)
    part = of_both or isinstance(above, (ast.Call, ast.Attribute, ast.Subscript, ast.Starred, ast.List, ast.Tuple))
    return _mean(need, above) if part and node is not root and above is not None else node


def _seen_from(code: Code, value: ast.expr, need: Frame) -> str | None:
    """A name for the value where the backward is called: its own, or what the function that keeps it is handed there."""
    function, here = code.function(value), need.code.function(need.statement)
    seen: ast.expr | None = value if code is need.code and function is here else None
    if seen is None and isinstance(value, ast.Name) and isinstance(function, Function):
        calls = calls_named(here or need.code.tree, function.name)
        seen = next((given for call in calls if (given := argument(function, value.id, call)) is not None), None)
    return need.code.text(seen) if isinstance(seen, (ast.Name, ast.Attribute)) else None
