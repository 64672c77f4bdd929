"""A view that was made ahead, without gradients or before its base was written, is made where it is written.

rows = [table[i] for i in range(n)]
for i, row in enumerate(rows):             for i, row in enumerate(rows):
                                               row = table[i]
    row.copy_(dist[i])                         row.copy_(dist[i])

for name, span in self.spans.items():
    self.parts[name] = self.flat[span]
...
self.parts["gate"] += delta                self.flat[self.spans["gate"]] += delta
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from ...message import message
from ...source.bindings import argument, bindings, bound, gone_through, naming_loop, parameters
from ...source.blocks import loops, upwards
from ...source.dataflow import called_name, key_of, reads, receiver
from ...source.editor import Code, atom, dotted, names_loaded
from ...source.names import first_name, own_names
from ..analysis import contents
from ..analysis.contents import put_into
from ..analysis.counted import counted, is_counter
from ..analysis.meetings import headline
from ..analysis.targets import Site, root, sites, tensor_written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_view_at_write")


@register("no_grad_view", "leaf")
def view_at_write(problem: Problem) -> Iterator[Proposal]:
    frames = sites(problem, len(problem.write_stack))
    if frames and (problem.family == "no_grad_view" or frames[0].event.late):
        yield from _made_here(problem, frames, tensor_written(frames[0]))


def _made_here(problem: Problem, frames: Sequence[Site], read: ast.expr | None) -> Iterator[Proposal]:
    """Where a view is read by a name, or as an item of what holds it, it is made."""
    code, statement = frames[0].code, frames[0].statement
    if isinstance(read, (ast.Subscript, ast.Attribute)):
        for edit in [code.replace(read, text) for text in _member(problem, frames, read)]:
            yield in_one_text(code, [edit], headline(code, code.statement(read), [edit]), _WHY, "view_at_write")
    if not isinstance(read, ast.Name):
        return
    loop = naming_loop(code, read, read.id)
    if isinstance(loop, ast.For):
        items = gone_through(loop, read.id)
        key = _key(loop, items)
        index, edits = (key, []) if key is not None else counted(problem, code, loop, rows=dotted(loop.iter))
        for text in _items(problem, frames, items, index):
            line = f"{read.id} = {text}"
            yield in_one_text(code, [*edits, code.insert_before(loop.body[0], line)], line, _WHY, "view_at_write")
    elif read.id in parameters(code.function(read)) and frames[1:]:
        given = argument(code.function(read), read.id, frames[1].expression)
        yield from _made_here(problem, frames[1:], given)
    elif found := bindings(code, read.id, statement):
        yield from _made_here(problem, frames, found[0].value)


def _member(problem: Problem, frames: Sequence[Site], read: ast.Subscript | ast.Attribute) -> Iterator[str]:
    """How ``self.rows[k]`` is made, or ``self.tail``."""
    code = frames[0].code
    if isinstance(read, ast.Subscript):
        yield from _items(problem, frames, read.value, code.text(read.slice))
        return
    for maker, one in problem.bindings(code, code.text(read), frames[0].statement):
        text = _text(maker, one.value, "") if one.value is not None else None
        yield from _seen_from(problem, frames[0], text)


def _key(loop: ast.For, items: ast.expr | None) -> str | None:
    """``k`` of ``for k, view in views.items()``."""
    if called_name(items) == "items" and isinstance(loop.target, ast.Tuple):
        return ast.unparse(loop.target.elts[0])
    return None


def _items(problem: Problem, frames: Sequence[Site], items: ast.expr | None, index: str) -> Iterator[str]:
    """How an item of a list or a dict of views is made, as a text to be read in the innermost frame."""
    if isinstance(items, ast.Call) and called_name(items) in ("items", "values"):
        items = receiver(items)
    for frame, outer in itertools.zip_longest(frames, frames[1:]):
        if items is None:
            return
        name = frame.code.text(items)
        if name in parameters(frame.code.function(frame.statement)):
            items = argument(frame.code.function(frame.statement), name, outer.expression) if outer else None
            continue
        made = [*put_into(problem, frame, name)]
        if len(made) == 1 and _stays_as_filled(problem, frames, name):
            yield from _seen_from(problem, frames[0], _text(*made[0], index))
        return


def _stays_as_filled(problem: Problem, frames: Sequence[Site], name: str) -> bool:
    """Whether a list or dict is filled once, in the order of its loops, and is not sorted, shuffled or written anew."""
    handed_on = {id(frame.statement) for frame in frames}
    begun = filled = changed = 0
    for code, s in problem.nodes(ast.stmt):
        begun += sum(key == name for key, _ in bound(code, s))
        filled += sum(code.text(into) == name for into, _ in contents.put(s))
        if isinstance(s, ast.Delete):
            changed += any(key_of(one) == name for one in s.targets)
        elif isinstance(s, ast.Expr) and name in reads(s) and id(s) not in handed_on:
            changed += called_name(s.value) not in ("append", "print")
    return begun == 1 and filled <= 1 and not changed


def _seen_from(problem: Problem, site: Site, text: str | None) -> Iterator[str]:
    """The text, where it is another look at something, and each of its names stands for one thing, at the site as well."""
    view = ast.parse(text or "None", mode="eval").body
    start = root(view)
    if text is None or start is None or start is view:
        return
    function = site.code.function(site.statement)
    own = own_names(function) if function is not None else frozenset()
    given = Counter(key for code, s in problem.nodes(ast.stmt) for key, _ in bound(code, s))
    names = {*names_loaded([view]), ast.unparse(start)}
    if first_name(ast.unparse(start)) in own | problem.names and all(given[name] <= 1 for name in names):
        yield text


def _text(code: Code, made: ast.expr, index: str) -> str | None:
    """What is put into a list or dict, as it is for the item of an index: each name of an iteration is told by the index.

    None where the index alone does not tell it: an item may have been passed over, or has a key that is computed.
    """
    key, loop = _put_under(code, made), _loop_around(code, made)
    keyed = _keyed(key, index)
    if (key is not None and not keyed) or (loop is not None and not _runs_through(code, made, loop)):
        return None
    new: dict[str, str] = {}
    for name in names_loaded([made]):
        found = naming_loop(code, made, name)
        value = _of_iteration(code, made, name) if found is None else None
        text = keyed.get(name)
        if text is None and found is not None:
            text = _by_index(code, made, found, name, keyed, index)
        elif text is None and value is not None:
            inner = _text(code, value, index)
            text = _closed(ast.parse(inner, mode="eval").body) if inner is not None else None
        if text is not None:
            new[name] = text
        elif found is not None or value is not None:
            return None
    names = [n for n in ast.walk(made) if isinstance(n, ast.Name) and n.id in new]
    return code.edited(made, [code.replace(n, new[n.id]) for n in names])


def _loop_around(code: Code, made: ast.expr) -> ast.AST | None:
    """The comprehension, or the outermost loop, in which something is made."""
    around = [above for above in code.parents(made) if hasattr(above, "generators")]
    return next(iter(around), None) or next(iter(loops(code, code.statement(made))[::-1]), None)


def _runs_through(code: Code, made: ast.expr, loop: ast.AST) -> bool:
    """Whether each iteration puts one item: under no test, with no way out."""
    if not isinstance(loop, ast.For):
        return not any(one.ifs for one in loop.generators)  # type: ignore[attr-defined]
    inside = itertools.takewhile(lambda s: s is not loop, upwards(code, code.statement(made)))
    ways_out = (ast.Break, ast.Continue, ast.Return)
    return all(s is code.statement(made) or isinstance(s, ast.For) for s in inside) and not any(
        isinstance(n, ways_out) for n in ast.walk(loop)
    )


def _put_under(code: Code, made: ast.expr) -> ast.expr | None:
    """The key of a dict, or the index, under which something is kept."""
    match code.parent(made):
        case ast.DictComp(key=key):
            return key
        case ast.Assign([ast.Subscript(slice=key), *_]):
            return key
    return None


def _keyed(key: ast.expr | None, index: str) -> dict[str, str]:
    """What the names of a key are: ``k`` for ``k``, ``i`` and ``j`` for ``(i, j)``."""
    node = ast.parse(index, mode="eval").body if index else None
    match key, node:
        case ast.Name(id=name), ast.expr():
            return {name: _closed(node)}
        case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
            return {n.id: _closed(v) for n, v in zip(names, values) if isinstance(n, ast.Name)}
    return {}


def _closed(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"


def _of_iteration(code: Code, made: ast.expr, name: str) -> ast.expr | None:
    """The value that a name is given ahead of a line, in the body of the same loop."""
    line = code.statement(made)
    ahead = code.preceding(line) if isinstance(code.parent(line), ast.For) else []
    return next((value for s in ahead[::-1] for key, value in bound(code, s) if key == name), None)


def _by_index(
    code: Code, made: ast.expr, loop: ast.For | ast.comprehension, name: str, keyed: dict[str, str], index: str
) -> str | None:
    """What a loop calls ``name`` in the iteration of an index, or of a key."""
    through, item = gone_through(loop, name), index if index.isidentifier() or index.isdecimal() else f"({index})"
    if keyed:
        of_dict = receiver(through) if isinstance(through, ast.Call) and called_name(through) == "items" else None
        return f"{code.text(of_dict)}[{index}]" if of_dict is not None else None
    if _count(through) is not None:
        return _digit(code, made, loop, item)
    if through is None:  # what enumerate counts
        return item if is_counter(loop, name) else None
    return f"{atom(code, through)}[{index}]" if root(through) is not None else None


def _count(through: ast.expr | None) -> ast.expr | None:
    """``n`` of ``range(n)``."""
    counts = isinstance(through, ast.Call) and called_name(through) == "range" and len(through.args) == 1
    return through.args[0] if counts and isinstance(through, ast.Call) else None


def _digit(code: Code, made: ast.expr, loop: ast.For | ast.comprehension, item: str) -> str:
    """The place of a loop in an item's number, where one of two loops is inside the other: ``k // 4``, ``k % 4``."""
    around = [one for above in code.parents(made) for one in getattr(above, "generators", [])[::-1]]
    around += loops(code, code.statement(made))
    inner = _count(getattr(around[0], "iter", None)) if len(around) == 2 else None
    if inner is None:
        return item
    size = atom(code, inner)
    return f"({item} % {size})" if loop is around[0] else f"({item} // {size})"
