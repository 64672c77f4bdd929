"""Two tensors that share memory part where the sharing begins, so that a write into one leaves the other.

residual = x.detach()             residual = x.detach().clone()
shown = x.data.cpu().numpy()      shown = x.data.cpu().numpy().copy()
rows = bias.expand(4, 3)          rows = bias.expand(4, 3).clone()
out = x                           out = x.clone()
x[1:] = x[:-1]                    x[1:] = x[:-1].clone()
live[live] = fooled               live[live.clone()] = fooled

pose = self.poses[i]              pose = self.poses[i].clone()
pose += self.shift                pose += self.shift      # and self.poses keeps no graph
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from ...families import is_of_base
from ...message import message
from ...source.bindings import bindings, later, own_statements
from ...source.dataflow import called_name
from ...source.editor import Code, Function, atom, dotted
from ..analysis.iterations import holdings
from ..analysis.targets import VIEW_METHODS, Site, by_this_line, is_inplace_name, meant_for_whole, root, written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_memory_apart")
_ALIASES = frozenset({"detach", "numpy", "from_numpy", "as_tensor", "from_dlpack", "asarray", "data"})
_SPREADS = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold"})
_OWN_MEMORY = frozenset({"clone", "copy", "contiguous", "tolist"})


@register(
    "modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "inference", "overlap", "silent"
)  # fmt: skip
def clone_alias(problem: Problem) -> Iterator[Proposal]:
    """The written name was bound to another look at the memory of something else."""
    write, event = written(problem), problem.clash.write
    if write is None or event is None or is_of_base(problem.clash.message) or not by_this_line(event, write):
        return
    name = write.root_text
    for binding in bindings(write.code, name, write.statement)[:1] if name is not None else ():
        if binding.value is not None:
            yield from _copied(problem, write, binding.value)
    if problem.family == "overlap":
        yield from _shifted(write)
        yield from _where_kept(problem, write)


def _copied(problem: Problem, write: Site, value: ast.expr) -> Iterator[Proposal]:
    code, name = write.code, write.root_text
    shares = _SPREADS if problem.family == "overlap" else _ALIASES
    if problem.family in ("modified", "silent", "overlap") and _shares(value, shares):
        yield in_one_text(
            code, [code.replace(value, _copy(code, value))], _copy(code, value), _WHY, "clone_alias", local=True
        )
    elif _looks_at(value):
        plain, whole = dotted(value) is not None, write.target is write.root
        drops = not plain and meant_for_whole(write)
        form = "name, refused" if plain and problem.family != "modified" else "name" if plain or whole else "view"
        form = "clone_before_write: " + ("view, meant for more" if drops else form)
        edits, title = [code.replace(value, _copy(code, value))], f"{name} = {_copy(code, value)}"
        yield in_one_text(code, edits, title, message("why_name_copied", name=name), form, local=True, lossless=drops)


def _looks_at(value: ast.expr) -> bool:
    """Whether a value is another tensor, or a view of one, under a new name."""
    views = VIEW_METHODS - {"numpy", "unbind", "chunk", "split", "values"}
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in views
    return called or dotted(value) is not None or isinstance(value, ast.Subscript)


def _shares(value: ast.expr, ways: frozenset[str]) -> bool:
    """Whether an expression's chain holds one of the ways to share memory, and no copy behind it."""
    node: ast.expr = value
    while not isinstance(node, ast.Name):
        name = node.attr if isinstance(node, ast.Attribute) else called_name(node)
        if name in ways:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and name not in _OWN_MEMORY:
            node = node.func.value
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return False
    return False


def _copy(code: Code, value: ast.expr) -> str:
    array = isinstance(value, ast.Call) and called_name(value) in ("numpy", "asarray")
    return f"{atom(code, value)}.{'copy' if array else 'clone'}()"


def _where_kept(problem: Problem, write: Site) -> Iterator[Proposal]:
    """``self.state[p] = {"m": one.expand_as(p)}``: what is written is an item of what an object keeps."""
    bound = bindings(write.code, write.root_text or "", write.statement)[:1]
    found = [root(b.value) for b in bound if b.value is not None] or [write.root]
    for code in problem.codes() if isinstance(found[0], ast.Attribute) else ():
        kept = [s for s in ast.walk(code.tree) if isinstance(s, ast.Assign) and _fills(s, found[0])]
        below = [n for s in kept for n in ast.walk(s.value) if isinstance(n, ast.Call)]
        spread = [n for n in below if called_name(n) in _SPREADS and not _has_own_memory(code, n)]
        edits = [code.replace(n, _copy(code, n)) for n in spread]
        if edits:
            yield in_one_text(code, edits, _copy(code, spread[0]), _WHY, "clone_alias", local=True)


def _has_own_memory(code: Code, node: ast.expr) -> bool:
    above = code.parent(node)
    return isinstance(above, ast.Attribute) and above.attr in _OWN_MEMORY


def _fills(statement: ast.Assign, kept: ast.expr | None) -> bool:
    held = [root(target) for target in statement.targets]
    return kept is not None and any(h is not None and ast.unparse(h) == ast.unparse(kept) for h in held)


# ---- one tensor on both sides of a write -----------------------------------------------------------------------------


def _shifted(write: Site) -> Iterator[Proposal]:
    """A tensor is written from another stretch of itself, or where it says itself."""
    code, statement = write.code, write.statement
    if write.target is None or write.root is None:
        return
    origin = _origin(code, write.root, statement)
    parts = [p for p in _operands(write) if p is not write.target and _origin(code, p, statement) == origin]
    for chosen in [[part] for part in parts] + [parts] * (len(parts) > 1):
        edits = [code.replace(part, f"{atom(code, part)}.clone()") for part in chosen]
        why = message("why_copy_is_read")
        yield in_one_text(code, edits, code.edited(statement, edits), why, "clone_alias", local=True)


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


# ---- a graph that an object keeps ------------------------------------------------------------------------------------


@register("second_backward")
def clone_kept(problem: Problem) -> Iterator[Proposal]:
    """A graph that an object keeps because it was written through another look at the object's tensor."""
    names = {n for scope, held in holdings(problem).items() if scope.startswith("class ") for n in held}
    for code in problem.codes() if names else ():
        for function in ast.walk(code.tree):
            for statement in own_statements(code, function) if isinstance(function, Function) else ():
                if isinstance(statement, ast.Assign) and _kept_and_written(code, statement, names):
                    text = _copy(code, statement.value)
                    edit = code.replace(statement.value, text)
                    yield in_one_text(code, [edit], text, _WHY, "clone_alias: kept", local=True)


def _kept_and_written(code: Code, statement: ast.Assign, names: Container[str]) -> bool:
    """``x = self.kept[i]``, where ``x`` is written later on."""
    held, target = root(statement.value), statement.targets[0]
    if not isinstance(held, ast.Attribute) or held.attr not in names or not isinstance(target, ast.Name):
        return False
    return any(
        isinstance(into, ast.Name) and into.id == target.id
        for top in later(code, statement)
        for node in ast.walk(top)
        for into in _written(node)
    )


def _written(node: ast.AST) -> Iterator[ast.expr | None]:
    """The names of the tensors that a statement or a call writes."""
    if isinstance(node, ast.AugAssign):
        yield root(node.target)
    elif isinstance(node, ast.Assign):
        yield from (root(target) for target in node.targets if isinstance(target, ast.Subscript))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_inplace_name(node.func.attr):
        yield root(node.func.value)
