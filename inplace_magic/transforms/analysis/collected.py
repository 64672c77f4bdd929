"""Lists that are filled for one backward, and are still full when the next one comes.

log_probs.append(dist.log_prob(a))        losses.append(loss)
...                                       if step % 4 == 0:
torch.stack(log_probs).sum().backward()       sum(losses).backward()
"""

from __future__ import annotations

import ast
import itertools

from ...source.bindings import later
from ...source.bindings import reads as named
from ...source.blocks import loops, upwards
from ...source.dataflow import assigned, key_of, reads, roots, slice_of
from ...source.editor import Loop, dotted
from ..problem import Problem
from .iterations import Iteration, holdings


def collected(problem: Problem, turn: Iteration) -> tuple[set[str], bool]:
    """The lists that a backward uses up, and whether each backward is to begin with an empty one: not where every
    iteration adds one item to a memory and goes back from all of them.
    """
    used, partly = reads(*turn.body), problem.crossing.partly
    kinds = [pair for names in holdings(problem).values() for pair in names.items()]
    of_lists = {path for path, kind in kinds if kind.startswith("dict[list")}
    held = {path for path, kind in kinds if is_list(kind)} | of_lists
    into = added_to(problem)
    filled = ({dotted(one) or "" for one in into} | (filled_by_item(into) & of_lists)) - partly
    own = {path.partition(".")[2] for path in filled} & held - partly
    of_objects = {path for path in used if path.partition(".")[2] in own}
    graph = held | of_objects
    anew = {path for s in turn.body for node in ast.walk(s) for path in emptied(node)}
    of_loss = _of_loss(problem)
    lists = (filled | of_objects) & used - anew
    lists = {path for path in lists if path in graph | of_loss or path.partition(".")[2] in of_loss}
    if not lists & graph:
        return set(), False
    asks = isinstance(turn.need, ast.If) and bool(lists & reads(turn.need.test))  # whether a memory is full by now
    several = turn.branch[0] is not turn.body and not asks
    needed = [f.statement for f in problem.needed]
    # What is needed was made in a loop that has run to its end by the time of the backward.
    inner = any(loops(f.code, f.statement, without=needed) for f in problem.saved)
    # What stands behind the loop reads all that was ever put into the list.
    behind = later(turn.code, turn.loop) if turn.loop is not None else []
    return lists, (several or inner) and not any(named(turn.code, path, behind) for path in lists)


def _of_loss(problem: Problem) -> set[str]:
    """What the loss is computed of in the functions that lead to its backward; of an object's attributes without the object."""
    found: set[str] = set()
    for frame in problem.needed:
        turn = itertools.takewhile(lambda s: not isinstance(s, Loop), upwards(frame.code, frame.statement))
        ahead = [s for above in turn for s in frame.code.preceding(above)]
        ahead.sort(key=lambda s: s.lineno)
        found |= slice_of(ahead, roots(frame.statement))[1]
    return found | {name.partition(".")[2] for name in found if "." in name}


def added_to(problem: Problem) -> list[ast.expr]:
    """What items are put behind: ``losses`` for ``losses.append(loss)``."""
    calls = [call.func for _, call in problem.nodes(ast.Call) if isinstance(call.func, ast.Attribute)]
    return [func.value for func in calls if func.attr in ("append", "extend")]


def filled_by_item(into: list[ast.expr]) -> set[str]:
    """What holds lists that items are put behind: ``memory`` for ``memory["log_probs"].append(x)``."""
    return {path for one in into if isinstance(one, ast.Subscript) and (path := dotted(one.value)) is not None}


def is_list(kind: str) -> bool:
    return kind.startswith(("list", "sequence", "deque"))


def emptied(node: ast.AST) -> set[str | None]:
    """What a statement sets anew, deletes or clears."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        path, _, method = (dotted(node.value.func) or "").rpartition(".")
        return {path} if method == "clear" else set()
    targets = node.targets if isinstance(node, ast.Delete) else assigned(node) if isinstance(node, ast.Assign) else ()
    return {key_of(target) for target in targets}
