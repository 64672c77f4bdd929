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
from collections.abc import Collection, Iterator

from ...message import message
from ...source.bindings import argument, defaults, parameters
from ...source.blocks import loops, own_statements, scope
from ...source.dataflow import assigned, binds, called_name, calls, calls_named, handed_on
from ...source.editor import Function, names_bound
from ...source.lift import as_lines
from ...source.names import renamed
from ..analysis.iterations import Iteration, holdings, iterations
from ..analysis.meetings import standing_in
from ..analysis.placement import end_of_update
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

Def = ast.FunctionDef | ast.AsyncFunctionDef
States = dict[str, tuple[set[str], list[str]]]


@register("second_backward", "modified")
def reset_state(problem: Problem) -> Iterator[Proposal]:
    turn = next(iterations(problem), None)
    if turn is None or not turn.loop:
        return
    code = turn.code
    if not any(standing_in(code, turn.body, problem.frames(edge.made)) for edge in problem.crossing.over):
        return  # nothing in an iteration would fill it again
    top = next(iter(standing_in(code, turn.body, problem.saved)), turn.body[0])
    states = _states(problem, turn)
    resets = list(_resets(problem, turn, states))
    loop, *outer = loops(code, turn.body[0])
    if any(calls_named(around, name) for around in outer for name, _, _ in resets):
        return  # the state begins anew where an outer loop says so
    called = [(lines, alone) for name, lines, alone in resets if not calls_named(loop, name)]
    others = [] if called else [*_initials(problem, turn, states), *_ahead(problem, turn)]
    form = "reset_state: called" if called else "reset_state: initial"
    some = turn.branch[0] is not turn.body  # the state lives from one backward to the next
    for lines, alone in [*called, *((one, False) for one in others)]:
        title = f"{lines[0]} {lines[-1].strip()}" if len(lines) > 1 else lines[0]
        edit = code.insert_after(end_of_update(turn.frame), *lines) if some else code.insert_before(top, *lines)
        why = message("why_fresh_state_behind" if some else "why_fresh_state")
        begins = frozenset(states if alone else ())
        yield in_one_text(code, [edit], title, why, form, begins=begins)


def _resets(problem: Problem, turn: Iteration, states: States) -> Iterator[tuple[str, list[str], bool]]:
    """The name of each reset, with the lines that call it: functions first, as they take care of every object. With them,
    whether nothing else begins anew by it that goes on from iteration to iteration, as a counter does.
    """
    top = _top(problem)
    begun = {text for _, cls in problem.nodes(ast.ClassDef) for text in _begun(cls)}
    methods = [
        (cls, method)
        for cls in top
        if isinstance(cls, ast.ClassDef) and cls.name in states
        for method in cls.body
        if isinstance(method, Function) and len(_required(method)) == 1 and not method.name.startswith("__")
        if _sets(method, states[cls.name][0], begun)
    ]
    every = {attribute for attributes, _ in states.values() for attribute in attributes}
    for function in (s for s in top if isinstance(s, Function)):
        needed = _required(function)
        resets = _sets(function, every, begun, [method.name for _, method in methods])
        if resets and names_bound(top).issuperset(needed):
            yield function.name, [f"{function.name}({', '.join(needed)})"], True
    for cls, method in methods:
        alone = _begins_alone(cls, method, states[cls.name][0])
        for path, heads in _objects(problem, turn, cls.name, states):
            yield method.name, _below(turn, heads, f"{path}.{method.name}()"), alone


def _top(problem: Problem) -> list[ast.stmt]:
    return [s for code in problem.codes() for s in code.tree.body]


def _begins_alone(cls: ast.ClassDef, reset: Def, attributes: set[str]) -> bool:
    """Whether a reset gives no other attributes a value that a method, but for the constructor, changes as well."""
    others = [m for m in cls.body if isinstance(m, Function) and m is not reset and m.name != "__init__"]
    given, changed = (
        {name.partition(".")[2] for method in methods for s in method.body for name in binds(s)}
        for methods in ([reset], others)
    )
    return not calls_named(reset, "setattr") and not (given - attributes) & changed


def _initials(problem: Problem, turn: Iteration, states: States) -> Iterator[list[str]]:
    """``net.state = None``, ``net.hidden = net.init_hidden(batch_size)``, as the constructor has it."""
    names = names_bound(_top(problem))
    # What a constructor has computed is no state that goes on.
    computed = [e for e in problem.crossing.over if any(s.function.endswith("__init__") for s in e.made)]
    constants = {holder.path.rpartition(".")[2] for edge in computed for holder in edge.holders}
    for code, cls in ((code, cls) for code, cls in problem.nodes(ast.ClassDef) if cls.name in states):
        attributes = states[cls.name][0] - constants
        for start in (m for m in cls.body if isinstance(m, Function) and m.name == "__init__"):
            own, *given = parameters(start)
            for target, value in (pair for s in own_statements(code, start) for pair in handed_on(s)):
                attribute = code.text(target).removeprefix(f"{own}.")
                read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} - {own}
                handed = _handed(problem, start, cls.name, read & set(given) - names)
                for path, heads in _objects(problem, turn, cls.name, states):
                    if attribute in attributes and handed is not None:
                        text = code.edited(value, renamed(code, [value], {own: path, **handed}))
                        yield _below(turn, heads, f"{path}.{attribute} = {text}")


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
    ahead = [(code, s) for s in own_statements(code, outside) if s.lineno < turn.body[0].lineno]
    others = (one for one in problem.codes() if outside is code.tree and one is not code)
    ahead += [(other, s) for other in others for s in other.tree.body]
    for where, first in ahead:
        if not isinstance(first, ast.Assign) or not binds(first):
            continue
        if ast.unparse(first.value) in ("{}", "dict()") and binds(first) <= of_dicts:
            yield [f"{where.text(first.targets[0])}.clear()"]
        elif not isinstance(first.value, (ast.List, ast.Dict)) and binds(first) <= carried:
            yield as_lines(where, first)


def _objects(problem: Problem, turn: Iteration, name: str, states: States) -> Iterator[tuple[str, list[str]]]:
    """What the one object of a class is called; or each of them, with the lines that go through the items of their list or the
    parts of their module.
    """
    paths = states[name][1]
    common = _common(paths)
    if len(paths) == 1:
        yield paths[0], []
    elif common:
        one, step = problem.unused("module", turn.code, turn.need), turn.code.indent_step
        items = all(re.fullmatch(r"\[\d+\]", path[len(common) :]) for path in paths)
        head = f"for {one} in {common if items else f'{common}.modules()'}:"
        yield one, [head, f"{step}if isinstance({one}, {name}):"]


def _below(turn: Iteration, heads: list[str], line: str) -> list[str]:
    return [*heads, turn.code.indent_step * len(heads) + line]


def _common(paths: list[str]) -> str:
    """The longest path that all of some lead over."""
    steps = [re.findall(r"\.?\w+|\[[^\]]*\]", path) for path in paths]
    return "".join(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, zip(*steps)))


def _states(problem: Problem, turn: Iteration) -> States:
    """Classes whose objects hold a graph: the attributes that hold it, the paths of these objects."""
    held = holdings(problem)
    here = [
        h.path for edge in problem.crossing.over for h in edge.holders if h.scope == turn.function and "." in h.path
    ]
    seen = [path for where, names in held.items() if not where.startswith("class ") for path in names if "." in path]
    places = here or seen
    found = {}
    for where, attributes in held.items():
        paths = sorted({p.rpartition(".")[0] for p in places if p.rpartition(".")[2] in attributes})
        if where.startswith("class "):
            found[where.removeprefix("class ").split(".")[-1]] = set(attributes), paths
    return found


def _sets(function: Def, attributes: set[str], begun: set[str], resets: Collection[str] = ()) -> bool:
    """Whether a function does nothing but give attributes a value that is none of their old ones, one of these among them,
    be it by resets that it calls. Others it may only give what a constructor gave them: ``begun``.
    """
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    sets = [s for s in nodes if isinstance(s, ast.Assign)]
    called = [s for s in nodes if isinstance(s, ast.Expr) and not isinstance(s.value, ast.Constant)]
    others = [s for s in nodes if not isinstance(s, (ast.Assign, ast.Expr, ast.For, ast.If, ast.Pass))]

    def holds(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in attributes

    def is_reset(statement: ast.Assign) -> bool:
        kept = calls_named(statement.value, "detach") or not any(map(holds, ast.walk(statement.value)))
        return bool(kept) and all(map(holds, assigned(statement)))

    if others or not (called or any(holds(target) for s in sets for target in assigned(s))):
        return False
    done = [*filter(is_reset, sets), *(s for s in called if called_name(s.value) in resets)]
    return all(s in done or ast.unparse(s) in begun for s in (*sets, *called))


def _begun(cls: ast.ClassDef) -> Iterator[str]:
    """The statements by which a constructor, or a method that it calls, gives attributes a value, by ``setattr`` as well."""
    methods = {method.name: method for method in cls.body if isinstance(method, ast.FunctionDef)}
    starts = [methods[name] for name in ("__init__",) if name in methods]
    called = {called_name(call) for start in starts for call in calls(start)}
    for method in (*starts, *(methods[name] for name in called & methods.keys())):
        for s in ast.walk(method):
            sets = isinstance(s, ast.Expr) and called_name(s.value) == "setattr"
            if sets or isinstance(s, ast.Assign):
                yield ast.unparse(s)


def _required(function: Def) -> list[str]:
    return [a.arg for a in function.args.args if a.arg not in defaults(function)]
