"""A helper that updates is written out where it is called, so that its lines can change places with others.

def update(opt, loss):                    opt_a.zero_grad()
    opt.zero_grad()                       loss_a.backward()
    loss.backward()                       opt_a.step()
    opt.step()                            opt_b.zero_grad()
                                          loss_b.backward()
update(opt_a, loss_a)                     opt_b.step()
update(opt_b, loss_b)

By itself it mends nothing: what does is proposed for the text that it leaves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import argument, parameters
from ...source.blocks import loops, own_statements
from ...source.dataflow import called_name, calls
from ...source.document import is_cell
from ...source.editor import Code, Edit, names_bound, names_loaded
from ...source.lift import as_lines
from ...source.names import declared, own_names, renamed
from ..analysis.meetings import meeting, updates_weights
from ..problem import Frame, Problem, parted
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_written_out")
_MOST = 20  # statements of a helper


@register("modified")
def written_out(problem: Problem) -> Iterator[Proposal]:
    if not updates_weights(problem):
        return
    edits: list[Edit] = []
    code, taken = None, set[str]()
    for caller, helper in _calls(problem):
        code = caller.code
        taken |= _seen(problem, caller)
        lines = _lines(caller, helper, taken)
        if lines is None:
            return
        text = f"{code.newline}{code.indent(caller.statement)}".join(lines)
        edits.append(code.replace(caller.statement, text))
    if code is not None:
        yield in_one_text(code, edits, lines[0], _WHY, "restructure: written out")


def _calls(problem: Problem) -> list[tuple[Frame, Frame]]:
    """The calls of one block in which the write and the later backward run, or the one of a loop; each with the frame below."""
    lost, needed = problem.lost, problem.needed
    depth = len(lost) - len(parted(lost, needed)[0])
    if meeting(problem) is None:  # they meet from one iteration to the next, or in one of a helper's own
        depth -= 1
        if depth < 0 or not loops(lost[depth].code, lost[depth].statement):
            return []
        lost = []
    both = [frames[depth : depth + 2] for frames in (lost, needed)]
    return [(pair[0], pair[1]) for pair in both if len(pair) == 2]


def _seen(problem: Problem, caller: Frame) -> set[str]:
    """The names that mean something where a call stands."""
    around = caller.code.function(caller.statement)
    if around is not None:
        return {*own_names(around), *names_loaded([around])}
    return names_bound([s for code in problem.codes() for s in code.tree.body])


def _lines(caller: Frame, helper: Frame, taken: set[str]) -> list[str] | None:
    """What a call runs, in the caller's words; None where that cannot be written there. ``taken`` has its new names afterwards."""
    code, statement, call, own = caller.code, caller.statement, caller.expression, helper.code
    function = own.function(helper.statement)
    if not isinstance(function, ast.FunctionDef) or not isinstance(call, ast.Call) or not code.alone(statement):
        return None
    body = function.body[ast.get_docstring(function) is not None :]
    returns = [s for s in own_statements(own, function) if isinstance(s, ast.Return)]
    given = _given(code, own, function, call)
    if given is None or not _is_plain(own, function) or returns not in ([], body[-1:]):
        return None
    if not _means_the_same(caller, own, function):
        return None
    target = statement.targets if isinstance(statement, ast.Assign) else []
    if not isinstance(statement, ast.Expr | ast.Assign) or statement.value is not call or len(target) > 1:
        return None
    lines, new, bound = list[str](), dict[str, str](), names_bound(body)
    for name in (*given, *sorted(bound - given.keys())):
        value = given.get(name)
        if value is not None and name not in bound and _is_name(value[1]):
            new[name] = value[0]
            continue
        new[name] = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 100))) if n not in taken)
        taken.add(new[name])
        lines += [f"{new[name]} = {value[0]}"] if value is not None else []
    edits = renamed(own, body, new)
    if any(own.cell.raw[edit.start : edit.end] not in new for edit in edits):
        return None  # within a string, where a node's place is not always known
    kept = body[: len(body) - len(returns)]
    lines += [line for s in kept for line in as_lines(own, s, edits)]
    result = returns[0].value if returns else None
    text = own.edited(result, edits) if result is not None else "None"
    if target:
        lines.append(f"{code.text(target[0])} = {text}")
    elif result is not None and any(called_name(one) != "item" for one in calls(result)):
        lines.append(text)
    return lines or None


def _given(code: Code, own: Code, function: ast.FunctionDef, call: ast.Call) -> dict[str, tuple[str, ast.expr]] | None:
    """The text of each parameter's value, with its node; None where not each has one of its own."""
    a, of_class = function.args, isinstance(own.parent(function), ast.ClassDef)
    positional = [*a.posonlyargs, *a.args]
    pairs = [*zip(positional[::-1], a.defaults[::-1]), *zip(a.kwonlyargs, a.kw_defaults)]
    defaults = {one.arg: value for one, value in pairs if value is not None}
    if a.vararg is not None or a.kwarg is not None or called_name(call) != function.name:
        return None
    if any(isinstance(one, ast.Starred) for one in call.args) or any(k.arg is None for k in call.keywords):
        return None
    given: dict[str, tuple[str, ast.expr]] = {}
    for number, name in enumerate(parameters(function)):
        owner = getattr(call.func, "value", None) if of_class and not number else None
        value = owner if of_class and not number else argument(function, name, call)
        if value is not None:
            given[name] = code.text(value), value
        elif isinstance(value := defaults.get(name), ast.Constant):
            given[name] = own.text(value), value
        else:
            return None
    return given


def _is_name(node: ast.expr) -> bool:
    """Whether an expression may be read several times in place of a name: ``loss``, ``self.opts["actor"]``, ``True``."""
    if isinstance(node, ast.Subscript):
        return _is_name(node.value) and isinstance(node.slice, ast.Name | ast.Constant)
    if isinstance(node, ast.Attribute):
        return _is_name(node.value)
    return isinstance(node, ast.Name | ast.Constant)


def _is_plain(own: Code, function: ast.FunctionDef) -> bool:
    """Whether the statements of a function do the same in another one."""
    tied = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes = [*ast.walk(function)]
    asks = any(called_name(n) in ("super", "locals", function.name) for n in nodes)
    few = sum(isinstance(n, ast.stmt) for n in nodes) <= _MOST
    return few and not asks and not function.decorator_list and not any(isinstance(n, tied) for n in nodes)


def _means_the_same(caller: Frame, own: Code, function: ast.FunctionDef) -> bool:
    """Whether what a function reads from around it is the same where it is called."""
    code, around = caller.code, caller.code.function(caller.statement)
    if own is not code and not (is_cell(own.cell.number) and is_cell(code.cell.number)):
        return False
    outer = own.function(function)
    if outer is not None and outer is not around:
        return False
    free = names_loaded([function]) - own_names(function)
    return around is None or outer is around or not free & (own_names(around) - declared(around))
