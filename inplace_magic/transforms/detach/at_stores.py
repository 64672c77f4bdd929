"""What is put into a container, or an attribute, goes there without its history.

bank.append(z)                            bank.append(z.detach())
self.state = h                            self.state = h.detach()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...record.evidence import Edge, Holder
from ...source.blocks import scope
from ...source.dataflow import called_name, calls_named
from ...source.editor import Code, Function
from ..analysis.points import detached
from ..problem import Problem
from ..proposal import Change, Proposal
from .candidates import CARRIED, candidates
from .made_once import before_turns


def at_stores(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    """What is put into a container, or an attribute, goes there without its history."""
    holders = {h for edge in edges for h in edge.holders}
    containers = {(h.scope, h.path.partition("[")[0]) for h in holders if h.shape != "Tensor" or "[" in h.path}
    attributes = {h.path for h in holders if h.scope.startswith("class ") and h.shape == "Tensor" and "[" not in h.path}
    nodes = list(problem.nodes(ast.AST))
    values = [(code, node, found) for code, node in nodes if (found := _put(node, containers)) is not None]
    changes = [
        change
        for code, node, (value, path) in values
        for change in _without_history(problem, code, node, value, _items_held(holders, path))
    ]
    again = not any(before_turns(problem, edge) for edge in edges)  # each iteration puts one there
    goes_on = again and all(_from_old(code, node, path) for code, node, (_, path) in values)
    for one in candidates(problem, changes, "put", CARRIED):
        yield replace(one, kept=goes_on)
    given = [(code, value) for code, node in nodes if (value := _set(code, node, attributes)) is not None]
    sets = [(code, code.behind(value, ".detach()")) for code, value in given]
    yield from candidates(problem, sets or list(_set_together(problem, edges)), "set", CARRIED)


def _from_old(code: Code, node: ast.AST, path: str) -> bool:
    """Whether an item replaces another, and the code around reads items of the container: ``d[k] = f(d[k], x)``."""
    items = (n for n in ast.walk(scope(code, node)) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load))
    return isinstance(node, ast.Assign) and any(ast.unparse(n.value).endswith(path) for n in items)


def _put(node: ast.AST, containers: set[tuple[str, str]]) -> tuple[ast.expr, str] | None:
    """What ``bank.append(z)`` or ``bank[k] = z`` puts into one of the containers, and the path of that one."""
    into: ast.expr | None = None
    value: ast.expr | None = None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        into = node.value.func.value
        value = node.value.args[-1] if node.value.args and node.value.func.attr not in ("remove", "pop") else None
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        into, value = node.targets[0], node.value
    while isinstance(into, ast.Subscript):
        into = into.value
    text = ast.unparse(into) if into is not None and not isinstance(value, ast.Constant) else ""
    own = text.partition(".")[2]
    into_one = (path for scope, path in containers if (own if scope.startswith("class ") else text) == path)
    path = next(into_one, None)
    return None if value is None or path is None else (value, path)


def _items_held(holders: Iterable[Holder], container: str) -> set[str]:
    """Where in what a container keeps a history was: ``{"[0]"}`` if ``memory[3][0]`` held one, ``{".state"}``."""
    item = re.compile(rf"(?:.*\.)?{re.escape(container)}\[[^]]*\](\[[^]]*\]|\.\w+)")
    return {match[1] for holder in holders if (match := item.match(holder.path))}


def _without_history(problem: Problem, code: Code, node: ast.AST, value: ast.expr, items: set[str]) -> list[Change]:
    """``items``: which parts of a value that has some hold a history, where that is known."""
    parts = [(key, c, part) for key, c, part in _parts(problem, code, value) if not isinstance(part, ast.Constant)]
    held = [(c, part) for key, c, part in parts if key in items]
    if held or isinstance(value, (ast.Tuple, ast.List)):
        return [(c, c.behind(part, ".detach()")) for c, part in held or [(c, part) for _, c, part in parts]]
    if isinstance(node, ast.Expr) and called_name(node.value).startswith("extend"):
        return [(code, code.replace(value, f"[m.detach() for m in {code.text(value)}]"))]
    return [(code, code.behind(value, ".detach()"))]


def _parts(problem: Problem, code: Code, value: ast.expr) -> Iterator[tuple[str, Code, ast.expr]]:
    """``(s, r)``, ``{"s": s}``, ``Step(s, reward=r)``: the expressions in it, each with the way to what it becomes.

    Those of ``Step(*args)`` are what the function that got ``*args`` is called with.
    """
    if isinstance(value, ast.Dict):
        yield from ((f"[{ast.unparse(key)}]", code, part) for key, part in zip(value.keys, value.values) if key)
    given = value.elts if isinstance(value, (ast.Tuple, ast.List)) else getattr(value, "args", [])
    function = code.function(value)
    for i, part in enumerate(given):
        if not isinstance(part, ast.Starred):
            yield f"[{i}]", code, part
        elif (
            isinstance(function, Function)
            and function.args.vararg
            and ast.unparse(part.value) == function.args.vararg.arg
        ):
            calls = ((c, call) for c in problem.codes() for call in calls_named(c.tree, function.name))
            yield from ((f"[{i + j}]", c, one) for c, call in calls for j, one in enumerate(call.args))
            return
    yield from ((f".{keyword.arg}", code, keyword.value) for keyword in getattr(value, "keywords", []))


def _set(code: Code, node: ast.AST, attributes: set[str]) -> ast.expr | None:
    """What a method sets an attribute to; a constructor too, where the value is made from something."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or isinstance(node.value, ast.Constant):
        return None
    target = node.targets[0]
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.attr not in attributes:
        return None
    return node.value if isinstance(code.function(node), Function) else None


def _set_together(problem: Problem, edges: Sequence[Edge]) -> Iterator[Change]:
    """``out, self.state = self.lstm(x, self.state)``: what is set together with others, or is itself several tensors."""
    kept = {
        h.path: h.shape for edge in edges for h in edge.holders if h.scope.startswith("class ") and "[" not in h.path
    }
    made = {id(f.statement): f for edge in edges for f in problem.frames(edge.made)}
    for frame in made.values():
        code, statement = frame.code, frame.statement
        targets = statement.targets[0] if isinstance(statement, ast.Assign) else None
        for target in targets.elts if isinstance(targets, (ast.Tuple, ast.List)) else [targets]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.attr in kept:
                path = code.text(target)
                if (new := detached(path, kept[target.attr])) is not None:
                    yield code, code.insert_after(statement, f"{path} = {new}")
