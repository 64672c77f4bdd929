"""A reset that the notebook defines and its loop never calls, for a state that an object carries into the next iteration.

for data, target in loader:               for data, target in loader:
    out = forward(net, data)                  reset(net)
    ...                                       out = forward(net, data)

    ...                                       net.init_hidden()

    ...                                       net.rnn.state = None

A reset is told by what it does: it gives the attribute that holds the graph another value. The last is what the
constructor does, where there is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ...message import message
from ...source.dataflow import assigned, calls_named, handed_on
from ...source.editor import Function, names_bound
from ..analysis.iterations import holdings, iterations
from ..analysis.meetings import within
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_MOST = 2
Def = ast.FunctionDef | ast.AsyncFunctionDef


@register("second_backward", "modified")
def reset_state(problem: Problem) -> Iterator[Proposal]:
    turn = next(iterations(problem), None)
    if turn is None or not turn.loop:
        return
    code = turn.code
    saved = [frame.statement for frame in problem.frames(problem.save_stack) if frame.code is code]
    top = next((inner for s in saved if (inner := within(code, turn.body, s)) is not None), turn.body[0])
    called = [lines for name, lines in _resets(problem) if not calls_named(ast.Module(turn.body, []), name)]
    form = "reset_state: called" if called else "reset_state: initial"
    for lines in (called or list(_initials(problem)))[:_MOST]:
        title = f"{lines[0]} {lines[-1].strip()}" if len(lines) > 1 else lines[0]
        proposal = in_one_text(code, [code.insert_before(top, *lines)], title, message("why_fresh_state"), form)
        yield replace(proposal, begins=frozenset(_states(problem)) if called else frozenset())


def _resets(problem: Problem) -> Iterator[tuple[str, list[str]]]:
    """The name of each reset, with the lines that call it: functions first, as they take care of every object."""
    states, bodies = _states(problem), [code.tree.body for code in problem.codes()][::-1]
    top = [s for body in bodies for s in body]
    names = names_bound(top)
    methods = [
        (cls.name, method)
        for cls in top
        if isinstance(cls, ast.ClassDef) and cls.name in states
        for method in cls.body
        if isinstance(method, Function) and len(_required(method)) == 1 and not method.name.startswith("__")
        if _sets(method, states[cls.name][0])
    ]
    every = {attribute for attributes, _ in states.values() for attribute in attributes}
    for function in (s for s in top if isinstance(s, Function)):
        needed = _required(function)
        resets = _sets(function, every) or calls_named(function, *(method.name for _, method in methods))
        if resets and needed and set(needed) <= names:
            yield function.name, [f"{function.name}({', '.join(needed)})"]
    for owner, method in methods:
        for lines in _for_all(states[owner][1], owner, f"{method.name}()"):
            yield method.name, lines


def _initials(problem: Problem) -> Iterator[list[str]]:
    """``net.state = None``, as the constructor has it."""
    states = _states(problem)
    classes = [
        s for code in problem.codes() for s in code.tree.body if isinstance(s, ast.ClassDef) and s.name in states
    ]
    for cls in classes[::-1]:
        attributes, paths = states[cls.name]
        starts = [m for m in cls.body if isinstance(m, Function) and m.name == "__init__"]
        pairs = [
            pair for start in starts for s in ast.walk(start) if isinstance(s, ast.Assign) for pair in handed_on(s)
        ]
        none = {getattr(t, "attr", None) for t, v in pairs if isinstance(v, ast.Constant) and v.value is None}
        for attribute in sorted(attributes & none):
            yield from _for_all(paths, cls.name, f"{attribute} = None")


def _for_all(paths: list[str], owner: str, what: str) -> Iterator[list[str]]:
    """What is to be done with the one object, or with all modules of its class."""
    heads = {path.split("[")[0].split(".")[0] for path in paths}
    if len(paths) == 1:
        yield [f"{paths[0]}.{what}"]
    elif len(heads) == 1:
        head = f"for module in {heads.pop()}.modules():"
        yield [head, f"    if isinstance(module, {owner}):", f"        module.{what}"]


def _states(problem: Problem) -> dict[str, tuple[set[str], list[str]]]:
    """Classes whose objects hold a graph: the attributes that hold it, the paths of these objects."""
    held = holdings(problem)
    places = [path for scope, names in held.items() if not scope.startswith("class ") for path in names if "." in path]
    found = {}
    for scope, attributes in held.items():
        paths = sorted({p.rpartition(".")[0] for p in places if p.rpartition(".")[2] in attributes})
        if scope.startswith("class "):
            found[scope.removeprefix("class ").split(".")[-1]] = set(attributes), paths
    return found


def _sets(function: Def, attributes: set[str]) -> bool:
    """Whether a function gives one of the attributes a value without the history of its old one."""

    def holds(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in attributes

    sets = [s for s in ast.walk(function) if isinstance(s, ast.Assign) and any(map(holds, assigned(s)))]
    return any(calls_named(s.value, "detach") or not any(map(holds, ast.walk(s.value))) for s in sets)


def _required(function: Def) -> list[str]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    return [a.arg for a in arguments[: len(arguments) - len(function.args.defaults)]]
