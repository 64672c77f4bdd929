"""Two tensors that share memory part where the sharing begins, so that a write into one leaves the other.

residual = x.detach()             residual = x.detach().clone()
shown = x.data.cpu().numpy()      shown = x.data.cpu().numpy().copy()
rows = bias.expand(4, 3)          rows = bias.expand(4, 3).clone()
x[1:] = x[:-1]                    x[1:] = x[:-1].clone()
live[live] = fooled               live[live.clone()] = fooled

pose = self.poses[i]              pose = self.poses[i].clone()
pose += self.shift                pose += self.shift      # and self.poses keeps no graph
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from ...diagnosis import LiveChange
from ...message import message
from ...source.editor import Code, Function, atom
from ..analysis.iterations import holdings
from ..analysis.targets import Site, bindings, is_inplace_name, later, own_statements, root, site
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_memory_apart")
_ALIASES = frozenset({"detach", "numpy", "from_numpy", "as_tensor", "from_dlpack", "asarray"})
_SPREADS = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold"})


@register("modified", "silent", "overlap")
def clone_alias(problem: Problem) -> Iterator[Proposal]:
    write = next((s for spot in problem.write_stack[:1] if (s := site(problem, spot)) is not None), None)
    if write is None or problem.clash.write is None or problem.clash.write.origin == "optim":
        return
    if problem.family == "overlap":
        yield from _at_spread(problem, write)
        yield from _shifted(write)
    else:
        yield from _at_alias(write)


@register("second_backward")
def clone_kept(problem: Problem) -> Iterator[Proposal]:
    """A graph that an object keeps because it was written through another look at the object's tensor."""
    names = {n for scope, held in holdings(problem).items() if scope.startswith("class ") for n in held}
    for code in problem.codes() if names else ():
        for function in ast.walk(code.tree):
            for statement in own_statements(code, function) if isinstance(function, Function) else ():
                if isinstance(statement, ast.Assign) and _kept_and_written(code, statement, names):
                    yield _copied(code, statement.value, form="clone_alias: kept")


def _kept_and_written(code: Code, statement: ast.Assign, names: Container[str]) -> bool:
    """``x = self.kept[i]``, where ``x`` is written later on."""
    held, target = root(statement.value), statement.targets[0]
    if not isinstance(held, ast.Attribute) or held.attr not in names or not isinstance(target, ast.Name):
        return False
    return any(
        isinstance(written, ast.Name) and written.id == target.id
        for top in later(code, statement)
        for node in ast.walk(top)
        for written in _written(node)
    )


def _written(node: ast.AST) -> Iterator[ast.expr | None]:
    """The names of the tensors that a statement or a call writes."""
    if isinstance(node, ast.AugAssign):
        yield root(node.target)
    elif isinstance(node, ast.Assign):
        yield from (root(target) for target in node.targets if isinstance(target, ast.Subscript))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_inplace_name(node.func.attr):
        yield root(node.func.value)


def _at_alias(write: Site) -> Iterator[Proposal]:
    """The written name was bound to another look at the saved tensor's memory."""
    name = write.root_text
    if name is None:
        return
    for binding in bindings(write.code, name, write.statement)[:1]:
        if binding.value is not None and _shares(binding.value, _ALIASES, data=True):
            yield _copied(write.code, binding.value)


def _at_spread(problem: Problem, write: Site) -> Iterator[Proposal]:
    """The written tensor was spread over more elements than it has memory for."""
    name = write.root_text
    if name is None:
        return
    bound = bindings(write.code, name, write.statement)[:2]
    for binding in bound:
        if binding.value is not None and _shares(binding.value, _SPREADS):
            yield _copied(write.code, binding.value)
    for binding in bound[:1]:
        if isinstance(binding.value, ast.Subscript) and isinstance(binding.value.slice, ast.Constant):
            yield from _at_key(problem, binding.value.slice.value)
    attribute = name.rpartition(".")[2]
    if "." in name:
        for code in problem.codes():
            for value in _made(code, attribute):
                yield _copied(code, value, path=problem.clash.write.name if problem.clash.write else None)


def _at_key(problem: Problem, key: object) -> Iterator[Proposal]:
    """What was put into a dict under the key from which the written tensor came."""
    for code in problem.codes():
        for node in ast.walk(code.tree):
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if not isinstance(node, ast.Assign) or not isinstance(target, ast.Subscript):
                continue
            if not isinstance(target.slice, ast.Constant) or target.slice.value != key:
                continue
            named = bindings(code, code.text(node.value), node)[:1] if isinstance(node.value, ast.Name) else []
            for value in (node.value, *(b.value for b in named)):
                if value is not None and _shares(value, _SPREADS):
                    yield _copied(code, value)


def _made(code: Code, attribute: str) -> Iterator[ast.expr]:
    """What an attribute is given where an object is made: ``self.x = ...`` and ``register_buffer("x", ...)``."""
    for node in ast.walk(code.tree):
        value: ast.expr | None = None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            value = node.value if node.targets[0].attr == attribute else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
            named = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            value = node.args[1] if node.func.attr == "register_buffer" and named == attribute else None
        if value is not None and _shares(value, _SPREADS):
            yield value


def _shares(value: ast.expr, methods: frozenset[str], *, data: bool = False) -> bool:
    """Whether an expression's chain of calls holds one of the methods, and no copy behind it."""
    node: ast.expr = value
    while True:
        if isinstance(node, ast.Attribute):
            if data and node.attr == "data":
                return True
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in methods:
                return True
            if name in ("clone", "copy", "contiguous", "tolist") or not isinstance(node.func, ast.Attribute):
                return False
            node = node.func.value
        else:
            return False


def _copied(code: Code, value: ast.expr, path: str | None = None, form: str = "clone_alias") -> Proposal:
    array = (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("numpy", "asarray")
    )
    text = f"{atom(code, value)}.{'copy' if array else 'clone'}()"
    return Proposal(
        title=" ".join(text.split()),
        why=_WHY,
        form=form,
        texts={code.cell.number: code.apply(code.replace(value, text))},
        live=(LiveChange("clone", path),) if path is not None else (),
        spared=(code.cell.number,) if path is not None else (),
        local=True,
    )


def _shifted(write: Site) -> Iterator[Proposal]:
    """A tensor is written from another stretch of itself, or where it says itself."""
    code, statement = write.code, write.statement
    if write.target is None or write.root is None:
        return
    origin = _origin(code, write.root, statement)
    parts = [p for p in _operands(write) if p is not write.target and _origin(code, p, statement) == origin]
    for chosen in [[part] for part in parts] + [parts] * (len(parts) > 1):
        edits = [code.replace(part, f"{atom(code, part)}.clone()") for part in chosen]
        yield Proposal(
            title=" ".join(code.edited(statement, edits).split()),
            why=message("why_copy_is_read"),
            form="clone_alias",
            local=True,
            texts={code.cell.number: code.apply(*edits)},
        )


def _operands(write: Site) -> list[ast.expr]:
    """What a write reads as it is; anything computed has memory of its own."""
    statement, target = write.statement, write.target
    found: list[ast.expr] = []
    if isinstance(target, ast.Subscript):
        found += target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    call = write.node if isinstance(write.node, ast.Call) else getattr(statement, "value", None)
    written_by_call = isinstance(write.node, ast.Call) or not isinstance(statement, (ast.Assign, ast.AugAssign))
    if isinstance(call, ast.Call) and written_by_call and not isinstance(statement, ast.AugAssign):
        found += call.args
    elif isinstance(statement, (ast.Assign, ast.AugAssign)):
        found.append(statement.value)
    return found


def _origin(code: Code, node: ast.expr, statement: ast.stmt) -> str | None:
    """The name behind an expression that looks at memory: for `b`, after `b = x[1:]`, it is `x`."""
    found = root(node)
    for _ in range(4):
        bound = bindings(code, found.id, statement)[:1] if isinstance(found, ast.Name) else []
        value = bound[0].value if bound else None
        behind = root(value) if value is not None else None
        if behind is None:
            break
        found = behind
    return code.text(found) if found is not None else None
