"""Views that were made all at once may not be written; views made one by one may.

for box in boxes:                         for i in range(len(boxes)):
                                              box = boxes[i]
    box[:, 0].clamp_(0, w)                    box[:, 0].clamp_(0, w)

for t, m, s in zip(image, mean, std):     for i, (t, m, s) in enumerate(zip(image, mean, std)):
                                              t = image[i]
    t.sub_(m).div_(s)                         t.sub_(m).div_(s)

r, g, b = image.t()                       r, g, b = image.t()[0], image.t()[1], image.t()[2]
r -= mean                                 r -= mean

rows = x.unbind()                         rows = x.unbind()
rows[k] += 1                              x[k] += 1

rows = x.unbind(1)                        rows = x.unbind(1)
part = rows[k][:2]                        part = x[:, k][:2]
part += 1                                 part += 1

rows = dict(zip(names, x))                rows = {key: x[i] for i, key in enumerate(names)}
rows["a"] += 1                            rows["a"] += 1

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
from ...source.bindings import Binding, gone_through, loop_of, naming_loop
from ...source.blocks import own_statements, scope
from ...source.dataflow import called_name, given_to, rebinds, receiver
from ...source.editor import Code, Edit, atom
from ..analysis.counted import counted
from ..analysis.meetings import headline
from ..analysis.targets import SEVERAL_VIEWS, handed_down, root, root_text, seen_through
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_index_views")


@register("multi_output_view", "no_grad_view")
def index_views(problem: Problem) -> Iterator[Proposal]:
    for write, given in handed_down(problem, len(problem.write_stack)):
        name = seen_through(write.code, given, write.statement) or given  # ``xy = joint[:2]``
        code, loop = write.code, naming_loop(write.code, write.node, name)
        views = _views(code, gone_through(loop, name))
        if loop is None or views is None:
            continue
        if not isinstance(loop, ast.For):
            index, edits = _index_of(problem, code, loop)
            for read in [n for n in ast.walk(write.node) if isinstance(n, ast.Name) and n.id == name][:1]:
                edits.append(code.replace(read, views.at(index)))
                yield in_one_text(code, edits, write.statement, _WHY, "index_views")
        elif views.tensor not in rebinds(*loop.body):  # else it is another tensor by then
            line, edits = _indexed(problem, code, loop, name, views)
            yield in_one_text(code, edits, line, _WHY, "index_views")


def _indexed(
    problem: Problem, code: Code, loop: ast.For, name: str, views: _Views, letter: str = "i"
) -> tuple[str, list[Edit]]:
    """The line that takes a view by its index, with the edits of the loop, and of that around it which gave what it goes through."""
    index, edits = _index_of(problem, code, loop, letter)
    line = f"{name} = {views.at(index)}"
    edits.append(code.insert_before(loop.body[0], line))
    outer = loop_of(code, loop, views.tensor)
    through = _views(code, gone_through(outer, views.tensor))
    if outer is not None and through is not None:
        edits += _indexed(problem, code, outer, views.tensor, through, chr(ord(letter) + 1))[1]
    return line, edits


@register("multi_output_view", "no_grad_view")
def index_bound(problem: Problem) -> Iterator[Proposal]:
    for write, name in handed_down(problem, len(problem.write_stack)):
        for code, made in itertools.islice(problem.bindings(write.code, name, write.statement), 1):
            if made.value is not None:
                yield from _item(write.code, write.node, name, _views(code, made.value))
                yield from _of_dict(code, made.value)
                yield from _part_of_item(problem, code, made)
            elif isinstance(made.statement, ast.Assign):
                yield from _unpacked(code, made.statement)


def _unpacked(code: Code, line: ast.Assign) -> Iterator[Proposal]:
    """``r, g, b = image``: the views of one assignment."""
    target, views = line.targets[0], _views(code, line.value)
    if views is not None and isinstance(target, ast.Tuple) and all(isinstance(one, ast.Name) for one in target.elts):
        edit = code.replace(line.value, ", ".join(views.at(str(i)) for i in range(len(target.elts))))
        yield in_one_text(code, [edit], line, _WHY, "index_views")


def _of_dict(code: Code, made: ast.expr) -> Iterator[Proposal]:
    """``dict(zip(names, image))``: each view under a key."""
    match made:
        case ast.Call(ast.Name("dict"), [ast.Call(ast.Name("zip"), [keys, rows], [])], []):
            if (views := _views(code, rows)) is not None:
                edit = code.replace(made, f"{{key: {views.at('i')} for i, key in enumerate({code.text(keys)})}}")
                yield in_one_text(code, [edit], headline(code, code.statement(made), [edit]), _WHY, "index_views")


def _part_of_item(problem: Problem, code: Code, made: Binding) -> Iterator[Proposal]:
    """``part = rows[k][:2]``, then ``part += 1``: the item is a view where the part is taken."""
    name = root_text(code, made.value)
    for other, held in itertools.islice(problem.bindings(code, name, made.statement) if name is not None else (), 1):
        views = _views(code, held.value)
        between = [s for s in own_statements(code, scope(code, made.statement)) if held.statement.lineno < s.lineno]
        ahead = [s for s in between if s.lineno < made.statement.lineno]
        if other is code and views is not None and views.tensor not in rebinds(*ahead):
            yield from _item(code, made.statement, str(name), views)


def _item(code: Code, node: ast.AST, name: str, views: _Views | None) -> Iterator[Proposal]:
    """``rows[k] += 1``, ``fill(rows[k])``: an item of what holds all the views."""
    items = (n for n in ast.walk(node) if isinstance(n, ast.Subscript) and code.text(n.value) == name)
    item = next((n for n in items if not isinstance(n.slice, ast.Slice | ast.Tuple)), None)
    behind = item is not None and isinstance(item.slice, ast.UnaryOp)  # ``rows[-1]``
    if item is not None and views is not None and not (behind and views.size is not None):
        edit = code.replace(item, views.at(code.text(item.slice)))
        yield in_one_text(code, [edit], headline(code, code.statement(node), [edit]), _WHY, "index_views")


def _index_of(
    problem: Problem, code: Code, loop: ast.For | ast.comprehension, letter: str = "i"
) -> tuple[str, list[Edit]]:
    views = _views(code, loop.iter)
    return counted(problem, code, loop, letter, views.tensor if views is not None and views.whole else None)


@dataclass(frozen=True)
class _Views:
    """What a loop goes through: the rows of a tensor, or stretches of ``size`` of them, along a dimension."""

    tensor: str
    dim: int = 0
    size: str | None = None

    @property
    def whole(self) -> bool:
        return self.dim == 0 and self.size is None

    def at(self, index: str) -> str:
        if self.size is None:
            stretch = index
        elif index.isdecimal() and self.size.isdecimal():
            stretch = f"{int(index) * int(self.size)} : {(int(index) + 1) * int(self.size)}"
        else:
            one = index if index.isidentifier() or index.isdecimal() else f"({index})"
            stretch = f"{one} : {one} + 1" if self.size == "1" else f"{one} * {self.size} : ({one} + 1) * {self.size}"
        return f"{self.tensor}[{':, ' * self.dim}{stretch}]"


def _views(code: Code, node: ast.expr | None) -> _Views | None:
    """``x``, ``x.unbind(1)``, ``list(torch.split(x, 4))``, where x can be indexed over and over; None for anything else."""
    dim, size = 0, None
    if called_name(node) in ("list", "tuple"):
        node = next(iter(given_to(node)), None)
    if isinstance(node, ast.Call) and called_name(node) in ("unbind", "split"):
        whole = receiver(node)
        given = [one for one in given_to(node) if one is not whole]
        if called_name(node) == "split":
            stretch = given.pop(0)
            if not isinstance(stretch, (ast.Constant, ast.Name, ast.Attribute)):
                return None
            size = code.text(stretch)
        dims = [d.value for d in given if isinstance(d, ast.Constant) and isinstance(d.value, int)]
        if len(dims) != len(given):
            return None
        node, dim = whole, sum(dims)
    indexed = root(node) is not None and called_name(node) not in SEVERAL_VIEWS
    return _Views(atom(code, node), dim, size) if node is not None and indexed else None
