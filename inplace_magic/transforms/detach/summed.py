"""A sum, or a mean of a list, that is kept for show is sent back: the loss goes back instead, and what is kept are values.

total += loss                             total += loss.detach()
total.backward()                          loss.backward()

losses.append(loss)                       losses.append(loss.detach())
torch.stack(losses).mean().backward()     loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from ...message import message
from ...record.evidence import Edge
from ...source.bindings import argument
from ...source.blocks import loops
from ...source.dataflow import added, binds, called_name, calls_named, is_called, root_of, roots
from ...source.editor import Code, Function
from ...source.modules import module_of
from ..problem import Frame, Problem
from ..proposal import Proposal
from .at_stores import containers, puts
from .candidates import candidates

_SUMMED = message("why_sum_of_values")
_OF_ONE = {"cat", "list", "mean", "stack", "sum", "tuple"}  # calls that give a single loss back as it is


def summed(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    for edge in edges:
        used = problem.frames(edge.used)
        for code, value in _kept(problem, edge, used):
            for need in problem.needed[::-1]:
                loss = _seen_from(code, value, need) or _named_at(edge, need)
                sent = dict(_sent(need, used, edge, loss)) if loss is not None else {}
                if sent:
                    changes = [(code, code.behind(value, ".detach()"))]
                    changes += [(need.code, need.code.replace(node, str(loss))) for node in sent]
                    # What a call gives beside the mean of a single loss shows in the backwards that have run.
                    as_before = any(sent.values())
                    yield from (
                        replace(p, as_before=as_before) for p in candidates(problem, changes, "summed", _SUMMED)
                    )
                    return


def _sent(need: Frame, used: Sequence[Frame], edge: Edge, loss: str) -> Iterator[tuple[ast.expr, bool]]:
    """What goes back as if it were the loss: the name of a sum or a mean, or such an expression where it stands; each with
    whether a call of the person's own gives it, which is taken for a mean.
    """
    code, around = need.code, loops(need.code, need.statement)
    own = {one.path for one in containers(edge.holders)}
    own |= {f"self.{path}" for path in own} | {loss}
    sums: dict[str, bool] = {}
    for frame in used:
        statement, of_call = frame.statement, frame.spot != edge.used[0]
        if frame.code is not code or loops(code, statement) != around:
            continue
        root = root_of(need.node) if statement is need.statement else getattr(statement, "value", None)
        whole = _mean(frame, root, own, innermost=not of_call)
        given = whole is root or (of_call and edge.alone and frame.node is root)
        if added(statement) is not None or (given and statement is not need.statement):
            sums |= dict.fromkeys(binds(statement) - {loss}, of_call)
        elif whole is not None:
            yield whole, of_call
    read = roots(need.statement) & sums.keys()
    named = [n for n in ast.walk(need.node) if isinstance(n, (ast.Name, ast.Attribute))]
    yield from ((_item(code, n), sums[code.text(n)]) for n in named if code.text(n) in read)


def _kept(problem: Problem, edge: Edge, used: Sequence[Frame]) -> Iterator[tuple[Code, ast.expr]]:
    """What was added to a sum, or put into a container, that holds the history."""
    for frame in used:
        total = added(frame.statement)
        if total is not None and any(one.is_called(ast.unparse(total[0])) for one in edge.holders):
            yield frame.code, total[1]
    yield from ((code, value) for code, _, value in puts(problem, containers(edge.holders)))


def _item(code: Code, node: ast.expr) -> ast.expr:
    """``stats["loss"]`` of ``stats``."""
    above = code.parent(node)
    return _item(code, above) if isinstance(above, ast.Subscript) and above.value is node else node


def _mean(frame: Frame, root: ast.expr | None, own: set[str], innermost: bool) -> ast.expr | None:
    """``torch.stack(losses).mean()`` of the ``torch.stack(losses)`` that ran, up to the ``root`` around it at most: what of a
    single loss is that loss, and is made of nothing but the losses. A call of the person's own is taken for such a mean."""
    code, ran = frame.code, frame.node
    whole: ast.expr | None = None
    if root is None or all(node is not ran for node in ast.walk(root)):
        return None
    called = set(ast.walk(ran.func)) if isinstance(ran, ast.Call) and not innermost else set()
    for above in (ran, *code.parents(ran)):
        if not own.issuperset(_values(code, above, called)):
            break
        if isinstance(above, ast.Call) and (called_name(above) in _OF_ONE or (above is ran and not innermost)):
            whole = above
        elif isinstance(above, ast.BinOp) and all(any(_values(code, one)) for one in (above.left, above.right)):
            whole = above  # ``sum(losses) / len(losses)`` is of the losses on both sides; ``sum(losses) / 10`` is not
        elif not isinstance(above, (ast.Attribute, ast.Subscript, ast.Starred, ast.List, ast.Tuple)):
            break
        if above is root:
            break
    return whole


def _values(code: Code, node: ast.AST, called: Container[ast.AST] = ()) -> Iterator[str]:
    """The names and attributes whose values go into an expression: neither modules nor the functions that it calls."""
    for name in ast.walk(node):
        if not isinstance(name, ast.Name) or name in called or module_of(name) is not None:
            continue
        path: ast.expr = name
        while isinstance(above := code.parent(path), ast.Attribute) and not is_called(code, above):
            path = above
        yield from [code.text(path)] if not is_called(code, path) else []


def _seen_from(code: Code, value: ast.expr, need: Frame) -> str | None:
    """A name for the value where the backward is called: its own, or what the function that keeps it is handed there."""
    function, here = code.function(value), need.code.function(need.statement)
    seen: ast.expr | None = value if code is need.code and function is here else None
    if seen is None and isinstance(value, ast.Name) and isinstance(function, Function):
        calls = calls_named(here or need.code.tree, function.name)
        seen = next((given for call in calls if (given := argument(function, value.id, call)) is not None), None)
    return need.code.text(seen) if isinstance(seen, (ast.Name, ast.Attribute)) else None


def _named_at(edge: Edge, need: Frame) -> str | None:
    """A name that held the value where the backward is called, by itself: whoever keeps it was handed it in some way."""
    here = (
        one for one in edge.holders if one.shape == "Tensor" and not one.of_object and one.scope == need.spot.function
    )
    return next((one.path for one in here if one.path.isidentifier()), None)
