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
from ...source.bindings import handed, parameters
from ...source.dataflow import (
    added,
    binds,
    called_name,
    calls,
    calls_named,
    is_step,
    reads,
    rebinds,
    roots,
    simple,
    summed_up,
)
from ...source.editor import dotted
from ..analysis.backward_calls import loss_of
from ..analysis.collected import added_to, collected, emptied, filled_by_item, is_list
from ..analysis.iterations import Iteration, holdings, iterations
from ..analysis.meetings import meeting
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register


@register("second_backward", "modified")
def reset_sum(problem: Problem) -> Iterator[Proposal]:
    """A loss that is added up over passes, and never set back."""
    found = meeting(problem)
    if found is not None:
        stretches = [(found.code, found.code.following(found.first), found.need)]
    else:
        stretches = [(turn.code, turn.body, turn.need) for turn in iterations(problem) if turn.loop is not None]
    for code, statements, need in stretches:
        loss = loss_of(need)
        shown = {ast.unparse(loss): code.text(loss)} if isinstance(loss, ast.Subscript) else {}  # ``logs["loss"]``
        for name in sorted(roots(need) | shown.keys()) if simple(need) else []:
            begun = (s for s in statements if _adds_to(problem, s, name) or _sets(s, name) or name in rebinds(s))
            first = next(begun, None)
            if first is None or not _adds_to(problem, first, name) or not _used_before(problem, name):
                continue
            line = f"{shown.get(name, name)} = {_initial(problem, name)}"
            begins = frozenset({name} if found is not None else ())  # no total over all iterations
            edits, why = [code.insert_before(first, line)], message("why_sum_anew", name=name)
            yield in_one_text(code, edits, line, why, "reset_accumulator: sum", begins=begins)
            return


def _used_before(problem: Problem, name: str) -> bool:
    """Whether an earlier backward went back from what is so called, as far as the run tells."""
    if problem.clash.kind == "second_backward" or problem.clash.need is None:
        return True
    before = problem.evidence.passes[: problem.ahead]
    sent_back = (frame.statement for one in before for frame in problem.frames(one.backward.stack))
    return any(name in roots(s) | {ast.unparse(loss_of(s) or s)} for s in sent_back)


def _adds_to(problem: Problem, node: ast.AST, name: str, depth: int = 2) -> bool:
    """Whether a statement, or a function, adds to what is so called, or calls a function or a method that does."""
    fills = any(isinstance(n, ast.Expr) and name in binds(n) for n in ast.walk(node))
    anew = fills and meeting(problem) is not None  # over iterations a list may be a memory
    if name in map(ast.unparse, summed_up(node)) or (anew and name in _lists(problem)):
        return True
    for call in calls(node) if depth else ():
        for code, function in problem.nodes(ast.FunctionDef):
            inner = handed(code, function, call, name) if called_name(call) == function.name else ()
            if any(_adds_to(problem, function, inside, depth - 1) for inside in inner):
                return True
    return False


def _lists(problem: Problem) -> set[str]:
    """The lists that held a graph at some backward."""
    return {path for names in holdings(problem).values() for path, kind in names.items() if is_list(kind)}


def _sets(statement: ast.AST, name: str) -> bool:
    set_here = isinstance(statement, ast.Assign) and any(ast.unparse(t) == name for t in statement.targets)
    return set_here and added(statement) is None


def _initial(problem: Problem, name: str) -> str:
    """What the sum starts from where the notebook sets it; if that is not found, an empty list or ``0``."""
    for code, value in ((code, node.value) for code, node in problem.nodes(ast.Assign) if _sets(node, name)):
        if isinstance(value, ast.Constant) or calls_named(value, "zeros", "tensor", "new_zeros"):
            return code.text(value)
    return "[]" if name in _lists(problem) else "0"


@register("second_backward", "modified")
def clear_collected(problem: Problem) -> Iterator[Proposal]:
    """Lists that were filled for one backward, and are still full at the next; not those from which each takes some."""
    for turn in iterations(problem):
        lists, begin = collected(problem, turn)
        if not lists:
            continue
        code, (_, need) = turn.code, turn.branch
        step = next(filter(is_step, code.following(need)), need)
        after = [step, *(s for s in code.following(step) if lists & reads(s))][-1]
        lines = list(dict.fromkeys(line for path in sorted(lists) for line in _emptying(problem, turn, path)))
        edit = code.insert_after(after, *lines)
        why = message("why_collected_anew")
        begins = frozenset(lists if begin else ())
        yield in_one_text(code, [edit], "; ".join(lines), why, "reset_accumulator: list", begins=begins)
        return


def _emptying(problem: Problem, turn: Iteration, path: str) -> list[str]:
    """The method that was written for it, else ``losses.clear()``; of a dict of lists those that are read ahead of the backward:
    ``memory["log_probs"].clear()``.
    """
    into, by_method = added_to(problem), _written_for_it(problem, path)
    if by_method is not None or path not in filled_by_item(into):
        return [by_method or f"{path}.clear()"]
    ahead = (node for s in turn.body if s.lineno <= turn.need.lineno for node in ast.walk(s))
    items = (node for node in ahead if isinstance(node, ast.Subscript) and dotted(node.value) == path)
    read = [node for node in items if isinstance(node.slice, ast.Constant) and node not in into]
    return sorted({f"{turn.code.text(node)}.clear()" for node in read})


def _written_for_it(problem: Problem, path: str) -> str | None:
    """The call of a method that does nothing but empty lists, this one among them: ``memory.clear()``."""
    owner, _, name = path.partition(".")
    for _, method in problem.nodes(ast.FunctionDef):
        own, gone = parameters(method), [emptied(s) if _empties(s) else set() for s in method.body]
        if len(own) == 1 and all(gone) and {f"{own[0]}.{name}"} in gone and not method.name.startswith("__"):
            return f"{owner}.{method.name}()"
    return None


def _empties(statement: ast.stmt) -> bool:
    """``self.rewards = []``, ``del self.rewards[:]``, ``self.rewards.clear()``"""
    value = statement.value if isinstance(statement, ast.Assign) else None
    return value is None or ast.unparse(value).partition("(")[0] in ("[]", "{}", "list", "dict", "deque", "set")
