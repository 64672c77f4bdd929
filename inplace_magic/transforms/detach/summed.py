"""A sum, or a mean of a list, that is kept for show is sent back: the loss goes back instead, and what is kept are values.

total += loss                             total += loss.detach()
total.backward()                          loss.backward()

losses.append(loss)                       losses.append(loss.detach())
torch.stack(losses).mean().backward()     loss.backward()

So it is behind a call, ``level = smooth(loss)``, that gives nothing but such a mean.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from ...message import message
from ...record.evidence import Edge
from ...source.bindings import argument, bound_anew, reads, value_of
from ...source.blocks import loops
from ...source.dataflow import added, binds, called_name, calls_named, is_called, is_number, root_of, roots
from ...source.editor import Code, Function
from ...source.modules import module_of
from ..analysis.contents import put
from ..problem import Frame, Problem
from ..proposal import Proposal
from .at_stores import containers, puts
from .candidates import candidates

_SUMMED = message("why_sum_of_values")
_OF_ONE = {"cat", "list", "mean", "stack", "sum", "tuple"}  # calls that give a single loss back as it is


def summed(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    for edge in edges:
        if _one_of_several(edge, edges):
            continue
        used, needed = problem.frames(edge.used), problem.needed[::-1]
        kept = [*_kept(problem, edge, used)]
        own = {one.path for one in containers(edge.holders)} | {text for *_, text in kept}
        for code, value, _ in kept:
            exact = [(need, name) for need in needed if (name := _seen_from(code, value, need, used)) is not None]
            named = [(need, name) for need in needed for name in _named_at(problem, edge, need)]
            for need, loss in exact + named:
                sent = dict.fromkeys(_sent(need, used, own, loss))
                if sent:
                    changes = [(code, code.behind(value, ".detach()"))]
                    changes += [(need.code, need.code.replace(node, loss)) for node in sent]
                    # A sum of one loss is that loss: the backwards that have run have to stay what they were.
                    yield from (
                        replace(p, as_before=problem.ahead) for p in candidates(problem, changes, "summed", _SUMMED)
                    )
                    if (need, loss) in exact:
                        return


def _one_of_several(edge: Edge, edges: Sequence[Edge]) -> bool:
    """Whether what keeps a loss also keeps one that another call has made."""
    kept = {*containers(edge.holders)}
    return any(one.made[:1] != edge.made[:1] and kept & {*containers(one.holders)} for one in edges)


def _sent(need: Frame, used: Sequence[Frame], kept: set[str], loss: str) -> Iterator[ast.expr]:
    """What goes back as if it were the loss: the name of a sum or a mean, or such an expression where it stands. ``kept``: what
    keeps the losses."""
    code, around = need.code, loops(need.code, need.statement)
    own = kept | {f"self.{path}" for path in kept} | {loss}
    sums: set[str] = set()
    for depth, frame in enumerate(used, 1):
        statement, called = frame.statement, used[depth:]
        if frame.code is not code or loops(code, statement) != around or (called and not _gives_mean(called, own)):
            continue
        root = root_of(need.node) if statement is need.statement else getattr(statement, "value", None)
        whole = _mean(frame, root, own, innermost=not called)
        beside = bool(called) and frame.node is root and loss in binds(statement)  # ``loss, mean = score(x)``
        given = root is not None and (whole is root or beside)
        if added(statement) is not None or (given and statement is not need.statement):
            sums |= binds(statement) - {loss}
        elif whole is not None:
            yield whole
    named = [n for n in ast.walk(need.node) if isinstance(n, (ast.Name, ast.Attribute))]
    yield from (_item(code, n) for n in named if code.text(n) in sums & roots(need.statement))


def _gives_mean(called: Sequence[Frame], own: set[str]) -> bool:
    """Whether functions, each called by the one before, hand on a mean of the losses as the last one has made it."""
    *between, last = called
    value = getattr(last.statement, "value", None)
    items = value.elts if isinstance(value, ast.Tuple) else [value]
    means = [mean for one in items if (mean := _mean(last, one, own, innermost=True)) is one and mean is not None]
    return bool(means) and _gives(last.code, means[0]) and all(_gives(frame.code, frame.node) for frame in between)


def _gives(code: Code, node: ast.AST) -> bool:
    """Whether a function returns, or yields, what a node is, or binds it to a name that it does nothing else with."""
    above, function = _taken_by(code, node), code.function(node)
    if isinstance(above, ast.Assign) and isinstance(function, Function):
        read = [n for name in binds(above) for n in reads(code, name, [*function.body])]
        read = [n for n in read if not is_number(code, n)]
        return bool(read) and all(isinstance(_taken_by(code, n), (ast.Return, ast.Yield)) for n in read)
    return isinstance(above, (ast.Return, ast.Yield))


def _taken_by(code: Code, node: ast.AST) -> ast.AST | None:
    """What takes a node, by itself or as an item of a tuple."""
    above = code.parent(node)
    return code.parent(above) if isinstance(above, ast.Tuple) else above


def _kept(problem: Problem, edge: Edge, used: Sequence[Frame]) -> Iterator[tuple[Code, ast.expr, str]]:
    """What was added to a sum, or put into a container, that holds the history; with the text of that."""
    for frame in used:
        total = added(frame.statement)
        if total is not None and any(one.is_called(ast.unparse(total[0])) for one in edge.holders):
            yield frame.code, total[1], ast.unparse(total[0])
    for code, node, value in puts(problem, containers(edge.holders)):
        yield from ((code, value, code.text(into)) for into, one in put(node) if one is value)


def _item(code: Code, node: ast.expr) -> ast.expr:
    """``stats["loss"]`` of ``stats``."""
    above = code.parent(node)
    return _item(code, above) if isinstance(above, ast.Subscript) and above.value is node else node


def _mean(frame: Frame, root: ast.expr | None, own: set[str], innermost: bool) -> ast.expr | None:
    """``torch.stack(losses).mean()`` of the ``torch.stack(losses)`` that ran, up to the ``root`` around it at most: what of a
    single loss is that loss, and is made of nothing but the losses. A call is, if it gives such a mean (``_gives_mean``)."""
    code, ran = frame.code, frame.node
    whole: ast.expr | None = None
    if root is None or all(node is not ran for node in ast.walk(root)):
        return None
    called = set(ast.walk(ran.func)) if isinstance(ran, ast.Call) and not innermost else set()
    names = {name.id for name in ast.walk(ran) if isinstance(name, ast.Name)}
    own = {name for name in own | names if _has_last(frame, name, own)}
    parts = (node for node in ast.walk(ran) if isinstance(node, ast.Subscript) and code.text(node.value) in own)
    if not all(_takes_last(one) or _is_beside_last(code, one, own) for one in parts):
        return None
    for above in (ran, *code.parents(ran)):
        given = above is ran and not innermost  # by a function, whatever else that is handed
        if not given and not own.issuperset(_values(code, above, called)):
            break
        if isinstance(above, ast.Call) and (given or called_name(above) in _OF_ONE):
            whole = above
        elif isinstance(above, ast.BinOp) and isinstance(above.op, ast.Div) and calls_named(above.right, "len"):
            whole = above  # ``sum(losses) / len(losses)``
        elif not isinstance(above, (ast.Attribute, ast.Starred, ast.List, ast.Tuple)) and not _takes_last(above):
            break
        if above is root:
            break
    return whole


def _has_last(frame: Frame, name: str, own: set[str]) -> bool:
    """Whether a name stands for what keeps the losses, or for some of them with the last one: ``last = losses[-4:]``."""
    value = value_of(frame.code, name, frame.statement)
    if value is None or not own & {*_values(frame.code, value)}:
        return name in own
    return _with_last(frame.code, value, own)


def _with_last(code: Code, node: ast.expr, own: set[str]) -> bool:
    match node:
        case ast.Subscript(inner, ast.Slice() | ast.UnaryOp() | ast.Constant(value=str())):
            return _takes_last(node) and _with_last(code, inner, own)
        case ast.Call(args=[inner, *_]) if called_name(node) in ("list", "tuple", "deque"):
            return _with_last(code, inner, own)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return any(_with_last(code, one.value if isinstance(one, ast.Starred) else one, own) for one in items)
        case ast.BinOp(left, ast.Add(), right):
            return _with_last(code, left, own) or _with_last(code, right, own)
    return code.text(node) in own


def _is_beside_last(code: Code, node: ast.expr, own: set[str]) -> bool:
    """``losses[:3]`` of ``losses[:3] + [loss]``"""
    lists = (above for above in code.parents(node) if isinstance(above, (ast.BinOp, ast.List, ast.Tuple)))
    return any(_with_last(code, one, own) for one in lists)


def _takes_last(node: ast.AST) -> bool:
    """``losses[-4:]``, ``losses[::-1]``: the last one is among them; ``losses[-1]``, ``sums["loss"]``: an item by itself."""
    match node:
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper, step=step)):
            return upper is None and (step is None or (isinstance(step, ast.UnaryOp) and lower is None))
        case ast.Subscript(slice=ast.UnaryOp(operand=number)):
            return isinstance(number, ast.Constant) and number.value == 1
        case ast.Subscript(slice=ast.Constant(value=int())):
            return False
    return isinstance(node, ast.Subscript)


def _values(code: Code, node: ast.AST, called: Container[ast.AST] = ()) -> Iterator[str]:
    """The names and attributes whose values go into an expression: neither modules nor the functions that it calls."""
    for name in ast.walk(node):
        if not isinstance(name, ast.Name) or name in called or module_of(name) is not None:
            continue
        path: ast.expr = name
        while isinstance(above := code.parent(path), ast.Attribute) and not is_called(code, above):
            path = above
        is_key = isinstance(above, ast.Subscript) and above.slice is path
        yield from [code.text(path)] if not is_key and not is_called(code, path) else []


def _seen_from(code: Code, value: ast.expr, need: Frame, used: Sequence[Frame]) -> str | None:
    """A name for the value where the backward is called: its own, or what the function that keeps it is handed there, by its own name
    or another one (``on_loss(loss)``).
    """
    function, here = code.function(value), need.code.function(need.statement)
    seen: ast.expr | None = value if code is need.code and function is here else None
    if seen is None and isinstance(value, ast.Name) and isinstance(function, Function):
        calls = calls_named(here or need.code.tree, function.name)
        calls += [
            outer.expression
            for outer, inner in itertools.pairwise(used)
            if inner.code.function(inner.statement) is function and isinstance(outer.expression, ast.Call)
            if outer.code is need.code and outer.code.function(outer.statement) is here
        ]
        seen = next((given for call in calls if (given := argument(function, value.id, call)) is not None), None)
    return need.code.text(seen) if isinstance(seen, (ast.Name, ast.Attribute)) else None


def _named_at(problem: Problem, edge: Edge, need: Frame) -> list[str]:
    """The names in the backward's function that held the value and that each iteration, or call, binds anew; those that the line
    which made it binds come first.
    """
    code, statement = need.code, need.statement
    here = {one.path for one in edge.holders if one.shape == "Tensor" and one.scope == need.spot.function}
    made = {name for frame in problem.frames(edge.made) if frame.code is code for name in binds(frame.statement)}
    of_call = code.function(statement) is not None and not any(loops(code, statement))
    names = [path for path in here if path.isidentifier() and (of_call or bound_anew(code, statement, path))]
    return sorted(names, key=lambda name: (name not in made, name))
