"""What is summed up or collected for one backward starts anew for the next; its old part has been through one already.

for t in range(tasks):                    loss = 0
    loss += losses[t]                     for t in range(tasks):
loss.backward()                               loss += losses[t]
                                          loss.backward()

loss = torch.stack(log_probs).sum()       loss = torch.stack(log_probs).sum()
loss.backward()                           loss.backward()
optimizer.step()                          optimizer.step()
                                          log_probs.clear()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import assigned, calls_named, is_step, key_of, reads, roots, simple
from ...source.editor import Code, dotted
from ..analysis.iterations import holdings, rounds
from ..analysis.meetings import frames, loops, meeting, within
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register


@register("second_backward", "modified")
def reset_sum(problem: Problem) -> Iterator[Proposal]:
    """A loss that is added up over passes, and never set back."""
    for code, block, start, need in _stretches(problem):
        for name in sorted(roots(need)) if simple(need) else []:
            first = next((s for s in block[start:] if _adds_to(s, name)), None)
            if first is None or any(_sets(s, name) for s in block[start : block.index(first)]):
                continue
            line = f"{name} = {_initial(problem, name)}"
            yield Proposal(
                title=line,
                why=message("why_sum_anew", name=name),
                form="reset_accumulator: sum",
                texts={code.cell.number: code.apply(code.insert_before(first, line))},
                begins=frozenset({name} if meeting(problem) is not None else ()),  # no total over all iterations
            )
            return


def _stretches(problem: Problem) -> Iterator[tuple[Code, list[ast.stmt], int, ast.stmt]]:
    """(code, block, where the new sum begins, the needing statement)."""
    found = meeting(problem)
    if found is not None:
        yield found.code, found.block, found.block.index(found.first) + 1, found.need
        return
    for code, statement in reversed(frames(problem, problem.need_stack)):
        for loop in loops(code, statement):
            need = within(code, loop.body, statement)
            if need is not None:
                yield code, loop.body, 0, need


def _adds_to(statement: ast.stmt, name: str) -> bool:
    for node in ast.walk(statement):
        if isinstance(node, ast.AugAssign) and dotted(node.target) == name and isinstance(node.op, ast.Add):
            return True
        if isinstance(node, ast.Assign) and [dotted(t) for t in node.targets] == [name]:
            value = node.value
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
                return name in (dotted(value.left), dotted(value.right))
    return False


def _sets(statement: ast.stmt, name: str) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and any(dotted(t) == name for t in statement.targets)
        and not _adds_to(statement, name)
    )


def _initial(problem: Problem, name: str) -> str:
    """What the sum starts from where the notebook sets it, ``0`` if that is not found."""
    for code in problem.codes():
        for node in ast.walk(code.tree):
            if (
                isinstance(node, ast.Assign)
                and any(dotted(t) == name for t in node.targets)
                and not _adds_to(node, name)
            ):
                zero = isinstance(node.value, ast.Constant) or bool(
                    calls_named(node.value, "zeros", "tensor", "new_zeros")
                )
                if zero:
                    return code.text(node.value)
    return "0"


@register("second_backward", "modified")
def clear_collected(problem: Problem) -> Iterator[Proposal]:
    """Lists that were filled for one backward, and are still full at the next."""
    held = holdings(problem)
    filled = _filled(problem)
    for turn in rounds(problem):
        graph = {
            path
            for scope, names in held.items()
            for path, kind in names.items()
            if kind.startswith(("list", "sequence")) and (scope == turn.function or "." in path)
        }
        used = {name for s in turn.body for name in reads(s)}
        lists = {path for path in filled if path in used and not _emptied(turn.body, path)}
        if not lists & graph:
            continue
        at = turn.body.index(turn.need)
        after = next((s for s in turn.body[at:] if is_step(s)), turn.need)
        if any(lists & reads(s) for s in turn.body[turn.body.index(after) + 1 :]):
            after = [s for s in turn.body if lists & reads(s)][-1]
        lines = [f"{path}.clear()" for path in sorted(lists)]
        if isinstance(after, (ast.Return, ast.Break, ast.Continue)):
            edit = turn.code.insert_before(after, *lines)
        else:
            edit = turn.code.insert_after(after, *lines)
        why = message("why_collected_anew")
        yield in_one_text(turn.code, [edit], "; ".join(lines), why, "reset_accumulator: list")
        return


def _filled(problem: Problem) -> set[str]:
    """Names of lists that the notebook appends to."""
    found: set[str] = set()
    for number in problem.sources.cells:
        code = problem.code(number)
        if code is None or number > problem.cell:
            continue
        for call in calls_named(code.tree, "append", "extend"):
            if isinstance(call.func, ast.Attribute) and (path := dotted(call.func.value)) is not None:
                found.add(path)
    return found


def _emptied(body: list[ast.stmt], path: str) -> bool:
    """Whether the round itself sets the list anew or clears it."""
    for node in (node for statement in body for node in ast.walk(statement)):
        if isinstance(node, ast.Delete) and any(key_of(t) == path for t in node.targets):
            return True
        if isinstance(node, ast.Assign) and any(key_of(t) == path for t in assigned(node)):
            return True
        if isinstance(node, ast.Call) and dotted(node.func) == f"{path}.clear":
            return True
    return False
