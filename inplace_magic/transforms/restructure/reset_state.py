"""A state that is carried into the next iteration begins anew in each, by a reset that the notebook defines and never calls.

for data, target in loader:               for data, target in loader:
    out = forward(net, data)                  reset(net)
    ...                                       out = forward(net, data)

    ...                                       net.reset_hidden()

    ...                                       net.hidden = net.init_hidden(batch_size)

state = torch.zeros(3)                    state = torch.zeros(3)
for x in xs:                              for x in xs:
    state = cell(x, state)                    state = torch.zeros(3)
                                              state = cell(x, state)

A reset is told by what it does: it gives the attribute that holds the graph another value. Where there is none, the state
begins as the constructor, or the line ahead of the loop, has it. One that an outer loop calls says where the state begins.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ...message import message
from ...source.bindings import argument, defaults, parameters
from ...source.blocks import loops, own_statements, scope
from ...source.dataflow import assigned, binds, called_name, calls, calls_named, handed_on, key_of
from ...source.editor import Code, Def, Function
from ...source.lift import as_lines
from ...source.names import renamed
from ..analysis.iterations import Iteration, holdings, iterations
from ..analysis.meetings import standing_in
from ..analysis.placement import end_of_update
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register


@dataclass(frozen=True)
class _State:
    """The attributes of a class that hold a graph; what the one object of it is called, or each of them where ``heads`` go
    through several. No path where none is at hand."""

    attributes: set[str]
    path: str = ""
    heads: tuple[str, ...] = ()

    def lines(self, code: Code, text: str) -> list[str]:
        return [*self.heads, code.indent_step * len(self.heads) + text]


@register("second_backward", "modified")
def reset_state(problem: Problem) -> Iterator[Proposal]:
    turn = next(iterations(problem), None)
    if turn is None or turn.loop is None:
        return
    code, loop = turn.code, turn.loop
    if not any(standing_in(code, turn.body, problem.frames(edge.made)) for edge in problem.crossing.over):
        return  # nothing in an iteration would fill it again
    states = _states(problem, turn)
    resets = list(_resets(problem, code, states))
    if any(calls_named(around, name) for around in loops(code, loop) for name, _, _ in resets):
        return  # the state begins anew where an outer loop says so
    called = [(lines, alone) for name, lines, alone in resets if not calls_named(loop, name)]
    others = [] if called else [*_initials(problem, code, states), *_ahead(problem, turn)]
    form = "reset_state: called" if called else "reset_state: initial"
    some = turn.branch[0] is not turn.body  # the state lives from one backward to the next
    top = next(iter(standing_in(code, turn.body, problem.saved)), turn.body[0])
    for lines, alone in [*called, *((one, False) for one in others)]:
        title = f"{lines[0]} {lines[-1].strip()}" if len(lines) > 1 else lines[0]
        edit = code.insert_after(end_of_update(turn.frame), *lines) if some else code.insert_before(top, *lines)
        why = message("why_fresh_state_behind" if some else "why_fresh_state")
        begins = frozenset(states if alone else ())
        yield in_one_text(code, [edit], title, why, form, begins=begins)


def _states(problem: Problem, turn: Iteration) -> dict[str, _State]:
    """The classes whose objects hold a graph, by name."""
    over, held = [holder for edge in problem.crossing.over for holder in edge.holders], holdings(problem)
    here = [h.path for h in over if h.scope == turn.function and "." in h.path]
    places = [path.rpartition(".") for path in here or (path for names in held.values() for path in names)]
    found: dict[str, _State] = {}
    for where, names in held.items():
        if where.startswith("class "):
            name, attributes = re.split(r"[ .]", where)[-1], set(names)
            paths = sorted({owner for owner, _, attribute in places if owner and attribute in attributes})
            path, *heads = _objects(problem, turn, name, paths)
            found[name] = _State(attributes, path, tuple(heads))
    return found


def _objects(problem: Problem, turn: Iteration, name: str, paths: list[str]) -> list[str]:
    """What the one object of a class is called; or each of them, with the lines that go through the items of their list or the
    parts of their module.
    """
    steps = zip(*(re.findall(r"\.?\w+|\[[^\]]*\]", path) for path in paths))
    common = "".join(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, steps))
    if len(paths) <= 1 or not common:
        return [common]
    one, step = problem.unused("module", turn.code, turn.need), turn.code.indent_step
    items = all(re.fullmatch(r"\[\d+\]", path[len(common) :]) for path in paths)
    return [one, f"for {one} in {common if items else f'{common}.modules()'}:", f"{step}if isinstance({one}, {name}):"]


def _resets(problem: Problem, near: Code, states: Mapping[str, _State]) -> Iterator[tuple[str, list[str], bool]]:
    """The name of each reset, with the lines that call it: functions first, as they take care of every object. With them,
    whether nothing else begins anew by it that goes on from iteration to iteration, as a counter does.
    """
    top = [s for code in problem.codes() for s in code.tree.body]
    begun = {text for _, cls in problem.nodes(ast.ClassDef) for text in _begun(cls)}
    methods = [
        (cls, method)
        for cls in top
        if isinstance(cls, ast.ClassDef) and cls.name in states
        for method in cls.body
        if isinstance(method, Function) and len(_required(method)) == 1 and not method.name.startswith("__")
        if _is_reset(method, states[cls.name].attributes, begun)
    ]
    every = {attribute for state in states.values() for attribute in state.attributes}
    for function in (s for s in top if isinstance(s, Function)):
        needed = _required(function)
        resets = _is_reset(function, every, begun, [method.name for _, method in methods])
        if resets and problem.names.issuperset(needed):
            yield function.name, [f"{function.name}({', '.join(needed)})"], True
    for cls, method in methods:
        state = states[cls.name]
        if state.path:
            lines = state.lines(near, f"{state.path}.{method.name}()")
            yield method.name, lines, _begins_alone(cls, method, state.attributes)


def _begins_alone(cls: ast.ClassDef, reset: Def, attributes: set[str]) -> bool:
    """Whether a reset gives no other attributes a value that a method, but for the constructor, changes as well."""
    others = [m for m in cls.body if isinstance(m, Function) and m is not reset and m.name != "__init__"]
    given, changed = (
        {name.partition(".")[2] for method in methods for name in binds(*method.body)} for methods in ([reset], others)
    )
    return not calls_named(reset, "setattr") and not (given - attributes) & changed


def _initials(problem: Problem, near: Code, states: Mapping[str, _State]) -> Iterator[list[str]]:
    """``net.state = None``, ``net.hidden = net.init_hidden(batch_size)``, as the constructor has it."""
    # What a constructor has computed is no state that goes on.
    computed = [e for e in problem.crossing.over if any(s.function.endswith("__init__") for s in e.made)]
    constants = {holder.path.rpartition(".")[2] for edge in computed for holder in edge.holders}
    for code, start in problem.nodes(ast.FunctionDef):
        name = getattr(code.parent(start), "name", "")
        state = states.get(name) if start.name == "__init__" else None
        if state is None or not state.path:
            continue
        own, *given = parameters(start)
        for target, value in (pair for s in own_statements(code, start) for pair in handed_on(s)):
            attribute = code.text(target).removeprefix(f"{own}.")
            read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} - {own}
            handed = _handed(problem, start, name, read & set(given) - problem.names)
            if attribute in state.attributes - constants and handed is not None:
                text = code.edited(value, renamed(code, [value], {own: state.path, **handed}))
                yield state.lines(near, f"{state.path}.{attribute} = {text}")


def _handed(problem: Problem, start: Def, name: str, wanted: set[str]) -> dict[str, str] | None:
    """What the one call of a constructor hands it for some of its arguments; None where that is not written out."""
    calls = [(code, call) for code in problem.codes() for call in calls_named(code.tree, name)]
    texts = {
        one: code.text(value)
        for code, call in (calls if len(calls) == 1 else ())
        for one in wanted
        if isinstance(value := argument(start, one, call), ast.Constant | ast.Name | ast.Attribute)
    }
    return texts if texts.keys() == wanted else None


def _ahead(problem: Problem, turn: Iteration) -> Iterator[list[str]]:
    """The line ahead of the loop that gives a carried name its first value; a dict of states that was empty then is emptied."""
    code, outside = turn.code, scope(turn.code, turn.need)
    carried = {h.path for edge in problem.crossing.over for h in edge.holders if h.scope == turn.function}
    of_dicts = {path.partition("[")[0] for path in carried}
    others = [one for one in problem.codes() if outside is code.tree and one is not code]
    ahead = [(code, s) for s in own_statements(code, outside) if s.lineno < turn.body[0].lineno]
    for where, first in [*ahead, *((other, s) for other in others for s in other.tree.body)]:
        if not isinstance(first, ast.Assign) or not binds(first):
            continue
        if ast.unparse(first.value) in ("{}", "dict()") and binds(first) <= of_dicts:
            yield [f"{where.text(first.targets[0])}.clear()"]
        elif not isinstance(first.value, (ast.List, ast.Dict)) and binds(first) <= carried:
            yield as_lines(where, first)


def _is_reset(function: Def, attributes: set[str], begun: set[str], resets: Collection[str] = ()) -> bool:
    """Whether a function does nothing but give attributes a value that is none of their old ones, one of these among them,
    be it by resets that it calls. Others it may only give what a constructor gave them: ``begun``. Its own names are free.
    """
    kept = {re.split(r"[.\[]", path)[0] for path in attributes}
    nodes = [s for top in function.body for s in ast.walk(top) if isinstance(s, ast.stmt)]
    done = [s for s in nodes if not isinstance(s, ast.For | ast.If | ast.Pass)]
    done = done[ast.get_docstring(function) is not None :]

    own = {n.id for s in done for n in assigned(s) if isinstance(n, ast.Name)}

    def holds(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in kept

    def resets_one(statement: ast.stmt) -> bool:
        if not isinstance(statement, ast.Assign):
            return isinstance(statement, ast.Expr) and called_name(statement.value) in resets
        anew = calls_named(statement.value, "detach") or not any(map(holds, ast.walk(statement.value)))
        return bool(anew) and all(holds(one) or key_of(one) in own for one in assigned(statement))

    touches = any(isinstance(s, ast.Expr) or any(map(holds, assigned(s))) for s in done)
    return touches and all(resets_one(s) or ast.unparse(s) in begun for s in done)


def _begun(cls: ast.ClassDef) -> Iterator[str]:
    """The statements by which a constructor, or a method that it calls, gives attributes a value, by ``setattr`` as well."""
    methods = {method.name: method for method in cls.body if isinstance(method, ast.FunctionDef)}
    start = methods.get("__init__")
    called = {called_name(call) for call in calls(start)} if start is not None else set()
    for method in (methods[name] for name in methods.keys() & {"__init__", *called}):
        for s in ast.walk(method):
            if isinstance(s, ast.Assign) or (isinstance(s, ast.Expr) and called_name(s.value) == "setattr"):
                yield ast.unparse(s)


def _required(function: Def) -> list[str]:
    return [a.arg for a in function.args.args if a.arg not in defaults(function)]
