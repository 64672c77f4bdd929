"""A helper that updates is written out where it is called, so that its lines can change places with others.

def update(opt, loss):                    opt_a.zero_grad()
    opt.zero_grad()                       loss_a.backward()
    loss.backward()                       opt_a.step()
    opt.step()                            opt_b.zero_grad()
                                          loss_b.backward()
update(opt_a, loss_a)                     opt_b.step()
update(opt_b, loss_b)

So is one that writes an inner step into a model's parameters, for whose weights ``fast_weights`` then has a name.
By itself it mends nothing: what does is proposed for the text that it leaves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...message import message
from ...source.bindings import defaults, given
from ...source.blocks import loops, own_statements
from ...source.dataflow import called_name, calls
from ...source.document import is_cell
from ...source.editor import Code, Edit, dotted, names_bound, names_loaded
from ...source.lift import as_lines
from ...source.names import declared, free, own_names, renamed
from ..analysis.backward_calls import asks_for_gradients
from ..analysis.meetings import goes_through_update, meeting, updates_weights
from ..grad_mode.inference_mode import modes
from ..problem import Frame, Problem, shared
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_written_out")
_MOST = 20  # statements of a helper


@dataclass(frozen=True)
class _Call:
    """A statement of a caller's that is a call of one of the user's functions, or keeps what it gives: ``target``.

    ``own``: the text of the function; ``body``: what is written out of it, without the ``result`` that it returns in the end;
    ``values``: the text of each parameter's value, with its node.
    """

    caller: Frame
    call: ast.Call
    target: ast.expr | None
    own: Code
    function: ast.FunctionDef
    body: list[ast.stmt]
    result: ast.expr | None
    values: dict[str, tuple[str, ast.expr]]


@register("modified")
def written_out(problem: Problem) -> Iterator[Proposal]:
    # A loss that goes through what is updated is due behind that update, where it stands.
    if not updates_weights(problem) or goes_through_update(problem):
        return
    by_hand = problem.clash.write is not None and problem.clash.write.origin != "optim"
    if by_hand and not asks_for_gradients(problem):  # it is no inner step
        return
    for frames in _frames(problem, by_hand):
        calls = [one for caller, helper in frames if (one := _call_of(caller, helper)) is not None]
        taken = {name for caller, _ in frames for name in _seen(problem, caller)}
        if len(calls) == len(frames) > 0:
            edits = [_written(one, taken) for one in calls]
            title = message("title_written_out", call=calls[0].function.name)
            yield in_one_text(calls[0].caller.code, edits, title, _WHY, "restructure: written out")


def _frames(problem: Problem, by_hand: bool) -> Iterator[list[tuple[Frame, Frame]]]:
    """The calls of one block in which the write and the later backward run, or the one of a loop, each with the frame below;
    ahead of them that of the function which writes a step by hand.
    """
    lost, needed = problem.lost, problem.needed
    if by_hand and len(lost) > 1:
        yield [(lost[-2], lost[-1])]
    depth = len(shared(lost, needed))
    if meeting(problem) is None:  # they meet from one iteration to the next, or in one of a helper's own
        depth -= 1
        if depth < 0 or not loops(lost[depth].code, lost[depth].statement):
            return
        lost = []
    both = [frames[depth : depth + 2] for frames in (lost, needed)]
    yield [(pair[0], pair[1]) for pair in both if len(pair) == 2]


def _call_of(caller: Frame, helper: Frame) -> _Call | None:
    """The call, where it is all that its statement does, and what the function does can be written there."""
    code, statement, call, own = caller.code, caller.statement, caller.expression, helper.code
    function = own.function(helper.statement)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if not isinstance(statement, ast.Expr | ast.Assign) or statement.value is not call or len(targets) > 1:
        return None
    if not isinstance(function, ast.FunctionDef) or not isinstance(call, ast.Call) or not code.alone(statement):
        return None
    if called_name(call) != function.name or not _is_plain(own, function) or not _means_the_same(caller, own, function):
        return None
    values = _values(code, own, function, call)
    if values is None:
        return None
    body = function.body[ast.get_docstring(function) is not None :]
    last = body.pop() if isinstance(body[-1], ast.Return) else None
    result = last.value if isinstance(last, ast.Return) else None
    return _Call(caller, call, targets[0] if targets else None, own, function, body, result, values)


def _seen(problem: Problem, caller: Frame) -> set[str]:
    """The names that mean something where a call stands."""
    around = caller.code.function(caller.statement)
    if around is not None:
        return {*own_names(around), *names_loaded([around])}
    return problem.names


def _written(one: _Call, taken: set[str]) -> Edit:
    """What a call runs, in the caller's words, in the place of the call. ``taken`` has its new names afterwards."""
    own, code, target, result = one.own, one.caller.code, one.target, one.result
    new = _names(one, taken)
    edits = renamed(own, [*one.body, *([result] if result is not None else [])], new)
    lines = [line for s in one.body for line in as_lines(own, s, edits)]
    for mode in one.function.decorator_list[::-1]:
        lines = [f"with {own.text(mode)}:", *(own.indent_step + line for line in lines)]
    ahead = [f"{new[name]} = {text}" for name, (text, _) in one.values.items() if new[name] != text]
    text = own.edited(result, edits) if result is not None else "None"
    behind = []
    if target is not None and code.text(target) != text:
        behind = [f"{code.text(target)} = {text}"]
    elif target is None and result is not None and any(called_name(call) != "item" for call in calls(result)):
        behind = [text]
    apart = f"{code.newline}{code.indent(one.caller.statement)}"
    return code.replace(one.caller.statement, apart.join([*ahead, *lines, *behind]))


def _names(one: _Call, taken: set[str]) -> dict[str, str]:
    """What the caller calls what the function has a name for: what it hands over, as it is written there; else a new name."""
    bound, new, target, result, values = names_bound(one.body), dict[str, str](), one.target, one.result, one.values
    if (
        isinstance(target, ast.Name)
        and isinstance(result, ast.Name)
        and result.id in bound - values.keys()
        and target.id not in names_loaded([one.call])
    ):
        new[result.id] = target.id  # what it gives has the name from the beginning
    for name in (*values, *sorted(bound - values.keys() - new.keys())):
        if name in values and name not in bound and _is_name(values[name][1]):
            new[name] = values[name][0]
        else:
            new[name] = free(name, taken)
            taken.add(new[name])
    return new


def _values(code: Code, own: Code, function: ast.FunctionDef, call: ast.Call) -> dict[str, tuple[str, ast.expr]] | None:
    """The text of each parameter's value, with its node; None where not each has one of its own."""
    found: dict[str, tuple[str, ast.expr]] = {}
    for name, value in given(own, function, call):
        if value is not None:
            found[name] = code.text(value), value
        elif isinstance(value := defaults(function).get(name), ast.Constant):
            found[name] = own.text(value), value
        else:
            return None
    return found


def _is_name(node: ast.expr) -> bool:
    """Whether an expression may be read several times in place of a name: ``loss``, ``self.opts["actor"]``, ``True``."""
    if isinstance(node, ast.Subscript):
        return _is_name(node.value) and isinstance(node.slice, ast.Name | ast.Constant)
    return isinstance(node, ast.Constant) or dotted(node) is not None


def _is_plain(own: Code, function: ast.FunctionDef) -> bool:
    """Whether the statements of a function do the same in another one, from the first to the last."""
    tied = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes = [*ast.walk(function)]
    asks = any(called_name(n) in ("super", "locals", function.name) for n in nodes)
    few = sum(isinstance(n, ast.stmt) for n in nodes) <= _MOST
    returns = [s for s in own_statements(own, function) if isinstance(s, ast.Return)]
    decorated = [one for one in function.decorator_list if not (one in modes(function, "no_grad") and calls(one))]
    ends = returns in ([], function.body[-1:]) and len(function.body) > len(returns)
    return few and ends and not asks and not decorated and not any(isinstance(n, tied) for n in nodes)


def _means_the_same(caller: Frame, own: Code, function: ast.FunctionDef) -> bool:
    """Whether what a function reads from around it is the same where it is called."""
    code, around = caller.code, caller.code.function(caller.statement)
    if own is not code and not (is_cell(own.cell.number) and is_cell(code.cell.number)):
        return False
    outer = own.function(function)
    if outer is not None and outer is not around:
        return False
    outside = names_loaded([function]) - own_names(function)
    return around is None or outer is around or not outside & (own_names(around) - declared(around))
