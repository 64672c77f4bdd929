"""The inner step that a meta-learner makes on a model's parameters, and the statements that read what it has stepped."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ...source.bindings import handed, key_of_item, parameters
from ...source.blocks import AnyLoop, upwards
from ...source.dataflow import binds, called_name, calls, calls_named, is_called, is_step, live_in
from ...source.editor import Code, Def, Edit, Function, Loop, dotted, names_loaded
from ..analysis.meetings import before_step
from ..analysis.targets import Site, outside
from ..problem import Problem
from ..proposal import Change

_LEFT_OUT = (ast.If, ast.Try, ast.Match, ast.IfExp, ast.BoolOp, ast.Lambda)
_SEVERAL_TIMES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What is asked of a model itself, and of no weights.
_OF_THE_MODEL = frozenset({"parameters", "named_parameters", "train", "eval", "training", "zero_grad"})


def by_name(
    problem: Problem, code: Code, loop: ast.For, edits: Sequence[Edit], item: str, key: str | None, value: str
) -> str:
    """``{name: p - lr * g for (name, p), g in zip(model.named_parameters(), grads)}``: the dict of the values of a loop's items
    by their key, or by a name that each gets.
    """
    read = names_loaded([ast.parse(value, mode="eval")])
    name = key or (problem.unused("name", code, loop) if "name" in read else "name")
    held = (n for n in ast.walk(loop.target) if isinstance(n, ast.Name) and n.id == item and key is None)
    target = code.edited(loop.target, [code.replace(n, f"({name}, {item})") for n in held])
    return f"{{{name}: {value} for {target} in {code.edited(loop.iter, edits)}}}"


def with_block(code: Code, loop: ast.For) -> ast.stmt:
    """The block that holds nothing but the loop, ``with torch.no_grad():``; else the loop."""
    block = code.parent(loop)
    return block if isinstance(block, ast.With) and block.body == [loop] else loop


def owner_of(node: ast.AST | None) -> str | None:
    """``model`` of ``model.parameters()``."""
    parameters = called_name(node) in ("parameters", "named_parameters")
    return dotted(node.func.value) if parameters and isinstance(node.func, ast.Attribute) else None  # type: ignore[union-attr]


def name_of_parameter(loop: ast.For, item: str, made: ast.AST | None) -> str | None:
    """What a loop over ``model.named_parameters()`` calls the name of an item."""
    return key_of_item(loop, item) if called_name(made) == "named_parameters" else None


def without_data(code: Code, node: ast.AST, item: str) -> list[Edit]:
    """The edits by which an item is read as it is, and not past the graph: ``p`` for ``p.data``."""
    found = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr == "data")
    return [code.replace(n, item) for n in found if dotted(n.value) == item]


def nodes_beside(statements: Iterable[ast.stmt], node: ast.AST) -> list[ast.AST]:
    """The nodes of some statements, without those of one in them."""
    inside = {id(n) for n in ast.walk(node)}
    return [n for s in statements for n in ast.walk(s) if id(n) not in inside]


def task_of(
    code: Code, step: ast.stmt, read: Callable[[Sequence[ast.AST]], bool]
) -> tuple[AnyLoop | None, list[ast.stmt]] | None:
    """The farthest that the stepped weights go: to what reads them, before an optimizer steps; the loop, if it makes several
    steps, and all these statements.

    A loop is one of several steps if they are read behind it, or if a step begins with what was made of them in the
    iteration before. Those of any other loop are of one iteration.
    """
    found: tuple[AnyLoop | None, list[ast.stmt]] | None = None
    loop: AnyLoop | None = None
    behind: list[ast.stmt] = []
    ahead: list[ast.stmt] = []
    for at in upwards(code, step):
        if isinstance(at, Loop) and at is not step:
            goes_on = live_in([*ahead, step]) & {name for s in behind if read([s]) for name in binds(s)}
            loop, behind, ahead = at, [], []
            found = (loop, [loop]) if found is not None and goes_on else found
        following = code.following(at)
        behind += _before_update(following)
        ahead = [*code.preceding(at), *ahead]
        if read(behind):
            found = (loop, [*([loop] if loop is not None else []), *behind])
        if any(is_step(s) or calls_named(s, "backward") for s in following):
            break
    return found


def _before_update(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """To the last backward before a step, or to the step: gradients belong to the parameters themselves."""
    before = list(before_step(statements))
    backwards = [n for n, statement in enumerate(before) if calls_named(statement, "backward")]
    return before[: backwards[-1] + 1] if backwards else before


def calls_model(nodes: Iterable[ast.AST], model: str) -> bool:
    return any(dotted(call.func) == model for top in nodes for call in calls(top))


def readers(
    code: Code, nodes: Iterable[ast.AST], model: str, fast: str, torch: str, original: str | None = None
) -> list[Edit]:
    """Where, of some nodes, the model, or the copy of an ``original``, is called, or its parameters are asked for."""
    edits: list[Edit] = []
    for node in nodes:
        if owner_of(node) == model:
            pairs = called_name(node) == "named_parameters"
            edits.append(code.replace(node, f"{fast}.items()" if pairs else f"{fast}.values()"))
        elif isinstance(node, ast.Call) and dotted(node.func) == model:
            edits.append(code.replace(node, _functional_call(code, node, original or model, fast, torch)))
    return edits


def left_behind(problem: Problem, code: Code, nodes: Iterable[ast.AST], model: str) -> bool:
    """Whether some nodes read the model otherwise than :func:`readers` can give them the stepped weights: as an argument, by a
    part or a method of it, or in a function of the user's that is called there.
    """
    for node in nodes:
        named = dotted(node) == model and not is_called(code, node)
        if named and getattr(code.parent(node), "attr", None) not in _OF_THE_MODEL:
            return True
        if isinstance(node, ast.Call) and read_inside(problem, node, model):
            return True
    return False


def read_inside(problem: Problem, call: ast.Call, name: str) -> bool:
    """Whether a function of the user's that is called reads what the caller calls so."""
    for code, function in problem.nodes(ast.FunctionDef):
        if function.name == called_name(call):
            own, first = parameters(function), name.partition(".")[0].partition("[")[0]
            inner = {*handed(code, function, call, name), *(() if first in own or first == "self" else (name,))}
            if any(dotted(n) in inner for n in ast.walk(function)):
                return True
    return False


def readers_in_callers(
    problem: Problem, frames: Sequence[Site], model: str, fast: str, torch: str
) -> list[Change] | None:
    """Where callers of the function that steps read the model behind the call, before an optimizer steps. None where one knows
    no name for the stepped weights, or reads the model otherwise than :func:`readers` can give it these; and where they are not
    made by each call once: under a condition, several times, or by calls that this run has not come through.
    """
    found: list[Change] = []
    for inner, site in itertools.pairwise(frames):
        function = inner.code.function(inner.statement)
        handed_over = model.partition(".")[0] in parameters(function)
        given = outside(inner, site, model) if handed_over else model
        if given is None:
            return found
        kept = outside(inner, site, fast) if "." in fast else None
        beside = nodes_beside([site.statement], site.expression)
        task = task_of(site.code, site.statement, partial(calls_model, model=given))
        if calls_model(beside, given):
            return None
        if task is not None:
            left = nodes_beside(task[1], site.statement)
            once = task[0] is None and all(_runs_once(f.code, f.expression) for f in (inner, site))
            known = isinstance(function, Def) and _called_in(problem, function.name) == [site.expression]
            known = known and not _read_by_others(problem, model, [f.code.function(f.statement) for f in frames])
            if kept is None or not (once and known) or left_behind(problem, site.code, left, given):
                return None
            found += [(site.code, edit) for edit in readers(site.code, left, given, kept, torch)]
        model, fast = given, kept or ""
    return found


def _read_by_others(problem: Problem, model: str, functions: Sequence[ast.AST | None]) -> bool:
    """Whether other methods of the person's than these call the model by the name that it has in them."""
    called = ((code, call) for code, call in problem.nodes(ast.Call) if dotted(call.func) == model)
    return any(code.function(code.statement(call)) not in functions for code, call in called)


def _runs_once(code: Code, node: ast.AST) -> bool:
    """Whether each call of a node's function comes through it, once, loops aside."""
    within = itertools.takewhile(lambda above: not isinstance(above, Function), code.parents(node))
    ahead = (n for above in upwards(code, code.statement(node)) for s in code.preceding(above) for n in ast.walk(s))
    around = any(isinstance(above, _LEFT_OUT + _SEVERAL_TIMES) for above in within)
    return not around and not any(isinstance(n, (ast.Return, ast.Raise)) for n in ahead)


def _called_in(problem: Problem, name: str) -> list[ast.expr]:
    """Everything that is called, or handed on, by this name."""
    attributes = (n for _, n in problem.nodes(ast.Attribute) if n.attr == name)
    names = (n for _, n in problem.nodes(ast.Name) if n.id == name)
    parents = {id(call.func): call for _, call in problem.nodes(ast.Call)}
    return [parents.get(id(n), n) for n in (*attributes, *names)]


def _functional_call(code: Code, call: ast.Call, model: str, weights: str, torch: str) -> str:
    """``net(x, mask=m)`` as ``torch.func.functional_call(net, weights, (x,), {"mask": m})``."""
    given = ", ".join(map(code.text, call.args)) + ("," if len(call.args) == 1 else "")
    named = [f'"{one.arg}": {code.text(one.value)}' if one.arg else code.text(one) for one in call.keywords]
    options = f", {{{', '.join(named)}}}" if named else ""
    return f"{torch}.func.functional_call({model}, {weights}, ({given}){options})"
