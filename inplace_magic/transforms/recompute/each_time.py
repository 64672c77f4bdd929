"""A value with a history that is made where it is missing is made each time, so that every graph has one of its own.

if key not in kept:                       kept[key] = f(x)
    kept[key] = f(x)                      return kept[key]
return kept[key]

if self.q is not None:                    self.q = f(x)
    return self.q                         return self.q
self.q = f(x)
return self.q

q = self.q if self.q else f(x)            q = f(x)
q = kept.setdefault(key, f(x))            q = f(x)

@functools.cache                          def f(x):
def f(x):                                     ...
    ...

What keeps it is told by what ran: the value was made below a statement that the later graph comes by again without making
it. A test for its absence reads what the statements behind it bind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...message import message
from ...record.evidence import Edge
from ...source.blocks import loops
from ...source.dataflow import assigned, called_name, calls_named, key_of, reads, value_reads
from ...source.editor import Code, Edit, Function, atom
from ...source.lift import unwrapped
from ..analysis.points import crossing
from ..analysis.targets import is_functional
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_graphs_of_their_own")
_DESCRIPTORS = frozenset({"property", "staticmethod", "classmethod"})


@register("second_backward", "modified")
def each_time(problem: Problem) -> Iterator[Proposal]:
    for edge in crossing(problem).over:
        made = problem.frames(edge.made)
        for depth, frame in reversed([*enumerate(made)]):
            if not _entered_again(problem, edge, made[: depth + 1]):
                continue
            called = [s for inner in made[depth + 1 :] for s in _body(inner)]
            tests = ((edit, _title(frame, edit)) for edit in _without_test(frame, called))
            for edit, title in (*tests, *_without_decorator(frame, made[depth - 1] if depth else None)):
                yield in_one_text(frame.code, [edit], title, _WHY, "recompute: each time")


def _title(frame: Frame, edit: Edit) -> str:
    line = frame.code.edited(frame.statement, [edit])
    return message("title_each_time", what=" ".join(line.split()))


def _body(frame: Frame) -> list[ast.stmt]:
    function = frame.code.function(frame.node)
    return function.body if isinstance(function, Function) else []


# ---- whether the later graph comes by again --------------------------------------------------------------------------


def _entered_again(problem: Problem, edge: Edge, made: Sequence[Frame]) -> bool:
    """Whether the function that the last of these frames is in, or one that led to it, runs again where the value is used.

    One that had been left by the event has been entered anew. One that had not runs the same lines again in a loop.
    """
    cause = problem.clash.cause
    used = problem.frames(edge.used) + problem.frames(problem.need_stack)
    event = problem.frames(cause.stack if cause is not None else ())
    for frame in reversed(made):
        here = [one for one in used if _same_function(one, frame)]
        if here and not any(_same_function(one, frame) for one in event):
            return True
        turns = loops(frame.code, frame.statement) if here and _came_round(problem) else []
        if any(turn in loops(one.code, one.statement) for one in here for turn in turns):
            return True
    called = {called_name(frame.expression) for frame in made[:-1]} - {""}
    return bool(called) and any(calls_named(one.statement, *called) for one in used)


def _same_function(one: Frame, other: Frame) -> bool:
    return one.code is other.code and one.spot.function == other.spot.function


def _came_round(problem: Problem) -> bool:
    """Whether the backward that fails has run since the value was saved, so that this is a later iteration."""
    save, need = problem.clash.save, problem.clash.need
    backwards = [one.backward for one in problem.evidence.passes]
    return (
        save is not None
        and need is not None
        and any(save.clock < b.clock < need.clock and b.stack == need.stack for b in backwards)
    )


# ---- what keeps it ---------------------------------------------------------------------------------------------------


def _without_test(frame: Frame, called: list[ast.stmt]) -> Iterator[Edit]:
    """The branch that makes the value, in the place of what chooses it; ``called``: what runs below the frame."""
    code, inner = frame.code, frame.node
    for above in code.parents(inner):
        if isinstance(inner, ast.stmt):
            yield from _early_returns(code, inner, called)
        if isinstance(above, (*Function, ast.Lambda, ast.ClassDef)):
            return
        edit = _chosen(code, above, inner, called)
        if edit is not None:
            yield edit
        inner = above


def _chosen(code: Code, above: ast.AST, inner: ast.AST, called: list[ast.stmt]) -> Edit | None:
    if isinstance(above, ast.If) and inner is not above.test:
        branch = above.body if inner in above.body else above.orelse
        return unwrapped(code, above, branch) if _is_for_absence(above.test, [*branch, *called]) else None
    if isinstance(above, ast.Try) and isinstance(inner, ast.ExceptHandler):
        absent = any(_is_for_absence(tried, [*inner.body, *called]) for tried in above.body)
        return unwrapped(code, above, inner.body) if absent else None
    if isinstance(above, ast.IfExp) and inner is not above.test:
        return code.replace(above, code.text(inner))
    if isinstance(above, ast.Call) and called_name(above) == "setdefault" and above.args[1:] == [inner]:
        return code.replace(above, atom(code, inner))
    return None


def _early_returns(code: Code, statement: ast.stmt, called: list[ast.stmt]) -> Iterator[Edit]:
    """The tests ahead of a statement that return what is kept."""
    block = code.block(statement)
    for at, one in enumerate(block[: block.index(statement)]):
        returns = isinstance(one, ast.If) and not one.orelse and isinstance(one.body[-1], ast.Return)
        if isinstance(one, ast.If) and returns and _is_for_absence(one.test, [*block[at + 1 :], *called]):
            yield code.delete(one)


def _is_for_absence(test: ast.AST, statements: Sequence[ast.stmt]) -> bool:
    """Whether a test reads what the statements assign, by its name or by the text of its name, and not from its old value."""
    read = reads(test)
    texts = [n.value for n in ast.walk(test) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    read |= {f"{name}.{text}" for name in read for text in texts}  # ``hasattr(self, "q")``
    inner = [n for s in statements for n in ast.walk(s) if isinstance(n, (ast.Assign, ast.AugAssign))]
    bound = {(key_of(target) or "", s) for s in inner for target in assigned(s)}
    changed = {name for name, s in bound if isinstance(s, ast.Assign) and name in value_reads(s)}
    return bool(read & {name for name, _ in bound} - changed)


def _without_decorator(frame: Frame, caller: Frame | None) -> Iterator[tuple[Edit, str]]:
    """The function as it is defined: what stands around its definition calls it once, and hands on what it gave."""
    code = frame.code
    inner: ast.AST = frame.node
    for above in code.parents(frame.node):
        if isinstance(inner, ast.Lambda) and isinstance(above, ast.Call) and above.args == [inner]:
            edit = code.replace(above, code.text(inner))
            yield edit, " ".join(code.edited(code.statement(above), [edit]).split())
        if isinstance(inner, ast.Lambda):
            return
        if isinstance(above, Function):
            for one in above.decorator_list:
                func = one.func if isinstance(one, ast.Call) else one
                if is_functional(func) or code.text(func) in _DESCRIPTORS:
                    continue
                read = caller is not None and isinstance(caller.expression, ast.Attribute)
                edit = code.replace(one, "property") if read else code.without_decorator(one)
                yield edit, message("title_undecorated", name=above.name, decorator=code.text(one))
            return
        inner = above
