"""Views that were made all at once may not be written; views made one by one may.

for box in boxes:                         for i in range(len(boxes)):
                                              box = boxes[i]
    box[:, 0].clamp_(0, w)                    box[:, 0].clamp_(0, w)

for t, m, s in zip(image, mean, std):     for i, (t, m, s) in enumerate(zip(image, mean, std)):
                                              t = image[i]
    t.sub_(m).div_(s)                         t.sub_(m).div_(s)

r, g, b = image                           r, g, b = image[0], image[1], image[2]
r -= mean                                 r -= mean

for i, part in enumerate(h.split(4, 1)):  for i, part in enumerate(h.split(4, 1)):
                                              part = h[:, i * 4 : (i + 1) * 4]
    part.mul_(i)                              part.mul_(i)
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ...message import message
from ...source.bindings import Binding, argument, gone_through, loop_of
from ...source.blocks import own_statements, scope
from ...source.dataflow import binds, called_name, simple
from ...source.editor import Code, Edit, atom, dotted
from ...source.lift import bound_names, unused
from ..analysis.targets import Site, chain, root, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_index_views")


@register("multi_output_view", "no_grad_view")
def index_views(problem: Problem) -> Iterator[Proposal]:
    for write, name in _held(problem):
        code, loop = write.code, _loop(write, name)
        views = _views(code, gone_through(loop, name)) if loop is not None else None
        if loop is None or views is None:
            continue
        index, edits = _counted(code, loop)
        if isinstance(loop, ast.For):
            line = f"{name} = {views.at(index)}"
            edits.append(code.insert_before(loop.body[0], line))
        else:
            read = next(n for n in ast.walk(write.node) if isinstance(n, ast.Name) and n.id == name)
            edits.append(code.replace(read, views.at(index)))
            line = code.edited(write.statement, edits)
        yield in_one_text(code, edits, line, _WHY, "index_views")


@register("multi_output_view", "no_grad_view")
def index_items(problem: Problem) -> Iterator[Proposal]:
    """``rows = x.unbind(); rows[i].mul_(2)``: the item of what was made at once, alone or wherever it is read on."""
    for code, line, top, name, made in _picked(problem):
        views = _views(made[0], made[1].value)
        if views is None or _bound_since(problem, code, views.tensor, line, made):
            continue
        items = tuple(n for n in _items(code, top, name) if views.indexed_by(n.slice))[:1]
        for chosen in dict.fromkeys((items, _read_on(code, line, name, views))) if items else ():
            yield _indexed(code, line, *(code.replace(n, views.at(code.text(n.slice))) for n in chosen))


_Made = tuple[Code, Binding]


def _picked(problem: Problem) -> Iterator[tuple[Code, ast.stmt, ast.AST, str, _Made]]:
    """Where an item that is written may be picked, in a statement or in part of it, with the name of what it is picked from
    and where that was made: in the write itself, or where the item got a name, ``row = rows[i]``.
    """
    for write, name, code, made in _made(problem):
        held = root(made.value)
        if made.value is None or not isinstance(held, ast.Name) or not _subscripted(made.value):
            yield write.code, write.statement, write.node, name, (code, made)
            continue
        for of_all in itertools.islice(problem.bindings(code, held.id, made.statement), 1):
            yield code, made.statement, made.value, held.id, of_all


def _subscripted(value: ast.expr) -> bool:
    return any(isinstance(n, ast.Subscript) for n in chain(value))


def _bound_since(problem: Problem, code: Code, name: str, line: ast.stmt, made: _Made) -> bool:
    """Whether a name stands for something else by the line than where something was made of it."""
    known = problem.bindings(code, name, line)
    latest = next((one for one in known if one[0] is not code or one[1].statement.lineno <= line.lineno), None)
    moments = [(where.cell.number, one.statement.lineno) for where, one in (latest or made, made)]
    return moments[0] > moments[1]


def _read_on(code: Code, line: ast.stmt, name: str, views: _Views) -> tuple[ast.Subscript, ...]:
    """The items that the line and those behind it in its function read, as far as neither name is bound anew."""
    found: list[ast.Subscript] = []
    for s in own_statements(code, scope(code, line)):
        if s.lineno < line.lineno or not simple(s):
            continue
        if s is not line and binds(s) & {name, views.tensor}:
            break
        found += [n for n in _items(code, s, name) if views.indexed_by(n.slice) and (s is line or _loads(n))]
    return tuple(found)


def _loads(item: ast.Subscript) -> bool:
    return isinstance(item.ctx, ast.Load)


def _items(code: Code, top: ast.AST, name: str) -> list[ast.Subscript]:
    return [n for n in ast.walk(top) if isinstance(n, ast.Subscript) and code.text(n.value) == name]


@register("multi_output_view", "no_grad_view")
def index_unpacked(problem: Problem) -> Iterator[Proposal]:
    """``r, g, b = image``: the views of one assignment."""
    for _, _, code, made in _made(problem):
        line = made.statement
        target = line.targets[0] if isinstance(line, ast.Assign) else None
        views = _views(code, line.value) if isinstance(line, ast.Assign) else None
        if not isinstance(line, ast.Assign) or not isinstance(target, ast.Tuple) or views is None:
            continue
        if views.size is None and all(isinstance(one, ast.Name) for one in target.elts):
            edit = code.replace(line.value, ", ".join(views.at(str(i)) for i in range(len(target.elts))))
            yield _indexed(code, line, edit)


def _made(problem: Problem) -> Iterator[tuple[Site, str, Code, Binding]]:
    """The frames of the write, each with a name and where that last got what it holds."""
    for write, name in _held(problem):
        for code, made in itertools.islice(problem.bindings(write.code, name, write.statement), 1):
            yield write, name, code, made


def _indexed(code: Code, statement: ast.stmt, *edits: Edit) -> Proposal:
    return in_one_text(code, edits, code.edited(statement, edits), _WHY, "index_views")


def _loop(write: Site, name: str) -> ast.For | ast.comprehension | None:
    """The loop, or the comprehension, that binds a name around a write."""
    for above in write.code.parents(write.node):
        for one in getattr(above, "generators", ()):
            if name in {n.id for n in ast.walk(one.target) if isinstance(n, ast.Name)}:
                return one  # type: ignore[no-any-return]
    return loop_of(write.code, write.statement, name)


def _held(problem: Problem) -> Iterator[tuple[Site, str]]:
    """The frames of the write, innermost first, each with the name that it hands on to the one inside of it."""
    inner: ast.AST | None = None
    name: str | None = None
    for site in sites(problem, depth=len(problem.write_stack)):
        given = argument(inner, name, site.expression) if name is not None else None
        held = root(given) if given is not None else site.root
        inner, name = site.code.function(site.statement), site.code.text(held) if held is not None else None
        if name is not None:
            yield site, name


def _counted(code: Code, loop: ast.For | ast.comprehension) -> tuple[str, list[Edit]]:
    """The name that counts the iterations, and the edits by which there is one."""
    target = loop.target
    if called_name(loop.iter) == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        return target.elts[0].id, []
    index, items = unused("i", code), code.text(target)
    views = _views(code, loop.iter)
    if views is not None and views.whole and isinstance(target, ast.Name) and "range" not in bound_names(code):
        return index, [code.replace(target, index), code.replace(loop.iter, f"range(len({views.tensor}))")]
    items = f"({items})" if isinstance(target, ast.Tuple) and not items.startswith("(") else items
    return index, [
        code.replace(target, f"{index}, {items}"),
        code.replace(loop.iter, f"enumerate({code.text(loop.iter)})"),
    ]


@dataclass(frozen=True)
class _Views:
    """What a loop goes through: the rows of a tensor, or stretches of ``size`` of them, along a dimension."""

    tensor: str
    dim: int = 0
    size: str | None = None

    @property
    def whole(self) -> bool:
        return self.dim == 0 and self.size is None

    def indexed_by(self, index: ast.expr) -> bool:
        """Whether the index picks one of the views."""
        several = isinstance(index, ast.Slice | ast.Tuple)
        return not several and not (self.size is not None and isinstance(index, ast.UnaryOp))

    def at(self, index: str) -> str:
        index = index if index.isidentifier() or index.isdecimal() or self.size is None else f"({index})"
        stretch = index if self.size is None else f"{index} * {self.size} : ({index} + 1) * {self.size}"
        return f"{self.tensor}[{':, ' * self.dim}{f'{index} : {index} + 1' if self.size == '1' else stretch}]"


def _views(code: Code, node: ast.expr | None) -> _Views | None:
    """``x``, ``x.unbind(1)``, ``x.split(4)``, where x can be indexed over and over; None for anything else."""
    dim, size = 0, None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("unbind", "split"):
        named = {k.arg: k.value for k in node.keywords}
        given = [*node.args, *(named[name] for name in ("split_size", "dim") if name in named)]
        if node.func.attr == "split":
            stretch = given.pop(0) if given else None
            if not isinstance(stretch, (ast.Constant, ast.Name, ast.Attribute)):
                return None
            size = code.text(stretch)
        dims = [d.value for d in given if isinstance(d, ast.Constant) and isinstance(d.value, int) and d.value >= 0]
        if len(dims) != len(given):
            return None
        node, dim = node.func.value, sum(dims)
    indexed = node is not None and (dotted(node) is not None or (isinstance(node, ast.Subscript) and root(node)))
    return _Views(atom(code, node), dim, size) if node is not None and indexed else None
