"""A reset that the notebook defines and never calls, for a state that an object carries from round to round.

for data, target in loader:               for data, target in loader:
    out = forward(net, data)                  reset(net)
    ...                                       out = forward(net, data)

    ...                                       net.init_hidden(batch_size)

    ...                                       net.rnn.state = None

The last where the constructor says so, and the class asks for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import binds, calls_named
from ...source.editor import Code, Function, names_bound
from ..analysis.iterations import holdings, rounds
from ..analysis.meetings import frames, within
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_HELPER = re.compile(r"(re)?_?(reset|init_?(hidden|state|memory)|clear|detach|repackage)", re.IGNORECASE)


@register("second_backward", "modified")
def reset_state(problem: Problem) -> Iterator[Proposal]:
    objects = _objects(problem)
    if not objects:
        return
    for turn in rounds(problem):
        if not turn.loop:
            return
        names = _known_names(problem)
        lines = [*_functions(problem, turn.body, names), *_methods(problem, turn.body, objects)][:2]
        form = "reset_state: called" if lines else "reset_state: initial"
        lines = lines or list(_initials(problem, turn.body, objects))[:1]
        saved = [s for code, s in frames(problem, problem.save_stack) if code is turn.code]
        top = next((inner for s in saved if (inner := within(turn.code, turn.body, s)) is not None), turn.body[0])
        for line in lines:
            yield Proposal(
                title=line[0].strip() if len(line) == 1 else f"{line[0]} {line[-1].strip()}",
                why=message("why_fresh_state"),
                form=form,
                texts={turn.code.cell.number: turn.code.apply(turn.code.insert_before(top, *line))},
            )
        if lines:
            return


def _objects(problem: Problem) -> dict[str, list[str]]:
    """Classes whose objects hold a graph, with the paths of these objects."""
    held = holdings(problem)
    found: dict[str, list[str]] = {}
    for scope, attributes in held.items():
        if not scope.startswith("class "):
            continue
        paths = {
            path.rpartition(".")[0]
            for other, names in held.items()
            if not other.startswith("class ")
            for path in names
            if "." in path and path.rpartition(".")[2] in attributes
        }
        found[scope.removeprefix("class ").split(".")[-1]] = sorted(paths)
    return found


def _cells(problem: Problem) -> list[Code]:
    """The earliest first."""
    return list(problem.codes())[::-1]


def _known_names(problem: Problem) -> set[str]:
    return {name for code in _cells(problem) for name in names_bound(code.tree.body)}


def _functions(problem: Problem, body: list[ast.stmt], names: set[str]) -> Iterator[list[str]]:
    """Calls of the notebook's own functions that reset something, with arguments of the same names."""
    for code in _cells(problem):
        for node in code.tree.body:
            if not isinstance(node, Function) or not _HELPER.match(node.name) or _called(body, node.name):
                continue
            needed = _required(node)
            if needed and needed[0] in names and set(needed) <= names:
                yield [f"{node.name}({', '.join(needed)})"]


def _methods(problem: Problem, body: list[ast.stmt], objects: dict[str, list[str]]) -> Iterator[list[str]]:
    """Calls of a method that resets the state, for the one object, or for all modules of its class."""
    for code in _cells(problem):
        for cls in code.tree.body:
            if not isinstance(cls, ast.ClassDef) or not objects.get(cls.name):
                continue
            for method in cls.body:
                if not isinstance(method, Function) or not _HELPER.match(method.name) or _called(body, method.name):
                    continue
                if len(_required(method)) != 1:
                    continue
                yield from _for_all(objects[cls.name], cls.name, f"{method.name}()")


def _initials(problem: Problem, body: list[ast.stmt], objects: dict[str, list[str]]) -> Iterator[list[str]]:
    """``net.state = None``, as the constructor has it, where the class looks out for that."""
    held = holdings(problem)
    for code in _cells(problem):
        for cls in code.tree.body:
            if not isinstance(cls, ast.ClassDef) or not objects.get(cls.name):
                continue
            states = {a for scope, names in held.items() if scope == f"class {cls.name}" for a in names}
            for attribute in sorted(states & _starting_as_none(cls) & _asked_for_none(cls)):
                if not any(path.endswith(f".{attribute}") for s in body for path in binds(s)):
                    yield from _for_all(objects[cls.name], cls.name, f"{attribute} = None")


def _starting_as_none(cls: ast.ClassDef) -> set[str]:
    start = next((m for m in cls.body if isinstance(m, Function) and m.name == "__init__"), None)
    statements = [s for s in (ast.walk(start) if start is not None else ()) if isinstance(s, ast.Assign)]
    return {
        target.attr
        for statement in statements
        for whole in statement.targets
        for target, value in _paired(whole, statement.value)
        if isinstance(target, ast.Attribute) and isinstance(value, ast.Constant) and value.value is None
    }


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """``self.a, self.b = 1, None`` one by one."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts)
    else:
        yield target, value


def _asked_for_none(cls: ast.ClassDef) -> set[str]:
    """Attributes of ``if self.state is None``."""
    return {
        test.left.attr
        for test in ast.walk(cls)
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Attribute)
        if isinstance(test.ops[0], (ast.Is, ast.IsNot))
    }


def _for_all(paths: list[str], name: str, what: str) -> Iterator[list[str]]:
    """What is to be done with the one object, or with all modules of its class."""
    if len(paths) == 1:
        yield [f"{paths[0]}.{what}"]
    elif len({path.split("[")[0].split(".")[0] for path in paths}) == 1:
        root = paths[0].split("[")[0].split(".")[0]
        yield [f"for module in {root}.modules():", f"    if isinstance(module, {name}):", f"        module.{what}"]


def _called(body: list[ast.stmt], name: str) -> bool:
    return any(calls_named(s, name) for s in body)


def _required(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    return [a.arg for a in arguments[: len(arguments) - len(function.args.defaults)]]
