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
import builtins
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...message import message
from ...source.bindings import argument, bindings, bound, gone_through, key_of_item, naming_loop, parameters
from ...source.blocks import loops, upwards
from ...source.dataflow import binds, called_name, key_of, reads, rebinds, receiver, simple
from ...source.editor import Code, Edit, atom, dotted, names_loaded
from ...source.names import own_names
from ..analysis import contents
from ..analysis.contents import put_into
from ..analysis.counted import counted, is_counter
from ..analysis.meetings import headline
from ..analysis.targets import Site, root, sites, tensor_written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_view_at_write")


@dataclass(frozen=True)
class _Made:
    """A view where it is made: the expression, in its text, and the statement that has begun the list or dict it is put into."""

    code: Code
    node: ast.expr
    begun: ast.stmt

    @property
    def loops(self) -> list[ast.AST]:
        """What goes through the items, the innermost first."""
        within = [one for above in self.code.parents(self.node) for one in getattr(above, "generators", [])[::-1]]
        return [*within, *loops(self.code, self.code.statement(self.node), without=[self.begun])]

    @property
    def in_turn(self) -> bool:
        """Whether each iteration puts one item: under no test, with no way out."""
        around = self.loops
        statement = self.code.statement(self.node)
        for_loops = [one for one in around if isinstance(one, ast.stmt)]
        inside = (
            itertools.takewhile(lambda s: s is not for_loops[-1], upwards(self.code, statement)) if for_loops else ()
        )
        ways_out = (ast.Break, ast.Continue, ast.Return, ast.While, ast.AsyncFor)
        return all(s is statement or isinstance(s, ast.For) for s in inside) and not any(
            getattr(one, "ifs", []) or any(isinstance(n, ways_out) for n in ast.walk(one)) for one in around
        )


@register("no_grad_view", "leaf")
def view_at_write(problem: Problem) -> Iterator[Proposal]:
    frames = sites(problem, len(problem.write_stack))
    if frames and (problem.family == "no_grad_view" or frames[0].event.late):
        yield from _made_here(problem, frames, tensor_written(frames[0]))


def _made_here(
    problem: Problem, frames: Sequence[Site], read: ast.expr | None, seen: frozenset[str] = frozenset()
) -> Iterator[Proposal]:
    """Where a view is read by a name, or as an item of what holds it, it is made."""
    code, statement = frames[0].code, frames[0].statement
    if isinstance(read, (ast.Subscript, ast.Attribute)):
        for edit in [code.replace(read, text) for text in _member(problem, frames, read)]:
            yield _seen_anew(code, [edit], headline(code, code.statement(read), [edit]))
    if not isinstance(read, ast.Name) or read.id in seen:
        return
    loop = naming_loop(code, read, read.id)
    if isinstance(loop, ast.For):
        items, key = gone_through(loop, read.id), key_of_item(loop, read.id)
        of_dict = called_name(items) == "items" and key is not None
        if called_name(items) == "values":
            return  # which are told by their keys
        index, edits = (str(key), []) if of_dict else counted(problem, code, loop, rows=dotted(loop.iter))
        for text in _items(problem, frames, items, index):
            line = f"{read.id} = {text}"
            yield _seen_anew(code, [*edits, code.insert_before(loop.body[0], line)], line)
    elif read.id in parameters(code.function(read)) and frames[1:]:
        given = argument(code.function(read), read.id, frames[1].expression)
        yield from _made_here(problem, frames[1:], given)
    elif found := bindings(code, read.id, statement):
        value = found[0].value
        if value is not None:
            for text in _seen_from(problem, frames[0], _Made(code, value, found[0].statement), ""):
                line = f"{read.id} = {text}"
                yield _seen_anew(code, [code.insert_before(statement, line)], line)
        yield from _made_here(problem, frames, value, seen | {read.id})


def _member(problem: Problem, frames: Sequence[Site], read: ast.Subscript | ast.Attribute) -> Iterator[str]:
    """How ``self.rows[k]`` is made, or ``self.tail``."""
    code = frames[0].code
    if isinstance(read, ast.Subscript):
        yield from _items(problem, frames, read.value, code.text(read.slice))
        return
    for maker, one in problem.bindings(code, code.text(read), frames[0].statement):
        if one.value is not None:
            yield from _seen_from(problem, frames[0], _Made(maker, one.value, one.statement), "")


def _items(problem: Problem, frames: Sequence[Site], items: ast.expr | None, index: str) -> Iterator[str]:
    """How an item of a list or a dict of views is made, as a text to be read in the innermost frame."""
    if isinstance(items, ast.Call) and called_name(items) == "items":
        items = receiver(items)
    for frame, outer in itertools.zip_longest(frames, frames[1:]):
        if items is None:
            return
        name = frame.code.text(items)
        if name in parameters(frame.code.function(frame.statement)):
            items = argument(frame.code.function(frame.statement), name, outer.expression) if outer else None
            continue
        made, begun = [*put_into(problem, frame, name)], _begun_once(problem, frames, name)
        if len(made) == 1 and begun is not None:
            code, node = made[0]
            yield from _seen_from(problem, frames[0], _Made(code, node, begun), index)
        return


def _begun_once(problem: Problem, frames: Sequence[Site], name: str) -> ast.stmt | None:
    """The statement that begins a list or dict, if that is filled once and is not sorted, shuffled or written anew."""
    handed_on = {id(frame.statement) for frame in frames}
    begun: list[ast.stmt] = []
    filled = changed = 0
    for code, s in problem.nodes(ast.stmt):
        begun += [s for key, _ in bound(code, s) if key == name]
        filled += sum(code.text(into) == name for into, _ in contents.put(s))
        if isinstance(s, ast.Delete):
            changed += any(key_of(one) == name for one in s.targets)
        elif isinstance(s, ast.Expr) and name in reads(s) and id(s) not in handed_on:
            changed += called_name(s.value) not in ("append", "print")
    return begun[0] if len(begun) == 1 and filled <= 1 and not changed else None


def _seen_anew(code: Code, edits: Sequence[Edit], line: str) -> Proposal:
    return in_one_text(code, edits, line, _WHY, "view_at_write", lossless=True)


def _seen_from(problem: Problem, site: Site, made: _Made, index: str) -> Iterator[str]:
    """The view's text, where it is another look at something, and each of its names stands for one thing, here as there."""
    text = _text(made, made.node, index)
    view = ast.parse(text or "None", mode="eval").body
    start = root(view)
    if text is None or start is None or start is view:
        return
    function = site.code.function(site.statement)
    own = own_names(function) if function is not None else frozenset()
    alike = function is not None and function is made.code.function(made.node)
    methods = [made.code.parent(made.code.function(made.node) or made.node), site.code.parent(function or site.node)]
    of_object = methods[0] is methods[1] and isinstance(methods[0], ast.ClassDef)
    known = problem.names - own | (own if alike else set()) | {*vars(builtins)} | ({"self"} if of_object else set())
    names = {*names_loaded([view])} - {*names_loaded([ast.parse(index or "None", mode="eval").body])}
    paths = {ast.unparse(n) for n in ast.walk(view) if isinstance(n, ast.Attribute)}
    others = (names | paths) - {ast.unparse(start), "self"}
    if names <= known and not _changes(problem, others, ast.unparse(start)):
        yield text


def _changes(problem: Problem, read: set[str], base: str) -> bool:
    """Whether what a view was made by is given another value, or another content, or the base another tensor, by some line."""
    last = {path.rpartition(".")[2] for path in read | {base}}
    given: Counter[str] = Counter()
    for _, s in problem.nodes(ast.stmt):
        named = binds if isinstance(s, ast.AugAssign) else rebinds
        keys = named(s) if simple(s) else ()  # those within a block come by themselves
        given.update(key.rpartition(".")[2] for key in keys)
        call = s.value if isinstance(s, ast.Expr) else None
        if isinstance(call, ast.Call) and key_of(receiver(call) or call) in read:  # ``slots.sort()``
            return True
    return any(given[name] > 1 for name in last)


def _text(made: _Made, node: ast.expr, index: str) -> str | None:
    """What is put into a list or dict, as it is for the item of an index: each name of an iteration is told by the index.

    None where the index alone does not tell it: an item may have been passed over, is counted from the end, or has a key that
    is computed.
    """
    code, key = made.code, _put_under(made.code, made.node)
    keyed = _keyed(key, index)
    from_end = index.strip().startswith("-")
    if (key is not None and not keyed) or from_end or not made.in_turn:
        return None
    new: dict[str, str] = {}
    for name in names_loaded([node]):
        loop = naming_loop(code, node, name)
        value = _of_iteration(code, node, name) if loop is None else None
        text = keyed.get(name)
        if text is None and loop is not None:
            text = _by_index(made, loop, name, keyed, index)
        elif text is None and value is not None:
            inner = _text(made, value, index)
            text = _closed(ast.parse(inner, mode="eval").body) if inner is not None else None
        if text is not None:
            new[name] = text
        elif loop is not None or value is not None:
            return None
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in new]
    return code.edited(node, [code.replace(n, new[n.id]) for n in names])


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
    made: _Made, loop: ast.For | ast.comprehension, name: str, keyed: dict[str, str], index: str
) -> str | None:
    """What a loop calls ``name`` in the iteration of an index, or of a key; None where that does not tell it.

    Of a key the number too: ``list(names).index(key)``.
    """
    through = gone_through(loop, name)
    if keyed:
        of_dict = receiver(through) if isinstance(through, ast.Call) and called_name(through) == "items" else None
        if of_dict is not None:
            key = keyed.get(key_of_item(loop, name) or "")
            return f"{made.code.text(of_dict)}[{key}]" if key is not None else None
        for item, key in keyed.items() if is_counter(loop, name) else ():
            items = dotted(gone_through(loop, item))
            if items is not None:
                return f"list({items}).index({key})"
        return None
    digit = _digit(made, loop, index)
    if digit is None or _count(through) is not None:
        return digit
    if through is None:  # what enumerate counts
        return digit if is_counter(loop, name) else None
    return f"{atom(made.code, through)}[{digit}]" if root(through) is not None else None


def _count(through: ast.expr | None) -> ast.expr | None:
    """``n`` of ``range(n)``."""
    counts = isinstance(through, ast.Call) and called_name(through) == "range" and len(through.args) == 1
    return through.args[0] if counts and isinstance(through, ast.Call) else None


def _digit(made: _Made, loop: ast.For | ast.comprehension, index: str) -> str | None:
    """The place of a loop in an item's number: the number itself, or ``k // 4`` and ``k % 4`` of two loops, one in the other."""
    around = made.loops
    item = index if index.isidentifier() or index.isdecimal() else f"({index})"
    if not index or loop not in around or len(around) > 2:
        return None
    if len(around) == 1:
        return item
    inner = _count(getattr(around[0], "iter", None))
    if inner is None:
        return None
    size = atom(made.code, inner)
    return f"({item} % {size})" if loop is around[0] else f"({item} // {size})"
