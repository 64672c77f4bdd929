"""Views that were made all at once may not be written; views made one by one may.

for box in boxes:                         for i in range(len(boxes)):
                                              box = boxes[i]
    box[:, 0].clamp_(0, w)                    box[:, 0].clamp_(0, w)

for t, m, s in zip(image, mean, std):     for i, (m, s) in enumerate(zip(mean, std)):
                                              t = image[i]
    t.sub_(m).div_(s)                         t.sub_(m).div_(s)

a, b = x.unbind(0)                        a, b = x[0], x[1]
a += 1                                    a += 1
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.editor import Code, Edit, atom, dotted
from ..analysis.targets import Site, bindings, loop_of, root, scope, sites
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_index_views")


@register("multi_output_view", "no_grad_view")
def index_views(problem: Problem) -> Iterator[Proposal]:
    for write in sites(problem, depth=2):
        name = write.root_text
        if name is None:
            continue
        loop = loop_of(write.code, write.statement, name)
        if loop is not None:
            edits = _loop(write.code, loop, name)
            if edits is not None:
                yield _proposal(write.code, edits, f"{name} = {_source_text(write.code, loop, name)}", "in the loop")
        yield from _unpacked(write, name)


def _proposal(code: Code, edits: list[Edit], title: str, form: str) -> Proposal:
    return Proposal(title, _WHY, f"index_views: {form}", {code.cell.number: code.apply(*edits)}, local=True)


# ---- loops ------------------------------------------------------------------------------------------------------


def _loop(code: Code, loop: ast.For, name: str) -> list[Edit] | None:
    if loop.body[0].lineno == loop.lineno:
        return None
    source, index = _source_text(code, loop, name), _index(code, loop)
    header = _header(code, loop, name, index)
    if source is None or header is None:
        return None
    target, through = header
    start, _ = code.span(loop.target)
    _, end = code.span(loop.iter)
    return [Edit(start, end, f"{target} in {through}"), code.insert_before(loop.body[0], f"{name} = {source}")]


def _header(code: Code, loop: ast.For, name: str, index: str) -> tuple[str, str] | None:
    """What the loop goes through without the tensor that is written: (target, iterable)."""
    target, through = loop.target, loop.iter
    if isinstance(target, ast.Name) and target.id == name and _tensor(through):
        return index, f"range(len({code.text(_whole(through))}))"
    if not isinstance(target, ast.Tuple) or not isinstance(through, ast.Call) or through.keywords:
        return None
    called = getattr(through.func, "id", "")
    names = [getattr(e, "id", None) for e in target.elts]
    if called == "enumerate" and len(through.args) == 1 and names[1:] == [name] and _tensor(through.args[0]):
        return index, f"range(len({code.text(_whole(through.args[0]))}))"
    if called != "zip" or len(through.args) != len(names) or name not in names:
        return None
    rest = [(code.text(e), code.text(a)) for e, a, n in zip(target.elts, through.args, names) if n != name]
    if not rest or not _tensor(through.args[names.index(name)]):
        return None
    if len(rest) == 1:
        return f"{index}, {rest[0][0]}", f"enumerate({rest[0][1]})"
    return f"{index}, ({', '.join(t for t, _ in rest)})", f"enumerate(zip({', '.join(a for _, a in rest)}))"


def _source_text(code: Code, loop: ast.For, name: str) -> str | None:
    """The expression for one item: ``boxes[i]``."""
    through = loop.iter
    if isinstance(through, ast.Call) and isinstance(loop.target, ast.Tuple):
        names = [getattr(e, "id", None) for e in loop.target.elts]
        called = getattr(through.func, "id", "")
        if called == "enumerate" and through.args:
            through = through.args[0]
        elif called == "zip" and name in names and len(through.args) == len(names):
            through = through.args[names.index(name)]
        else:
            return None
    return f"{atom(code, _whole(through))}[{_index(code, loop)}]"


def _tensor(node: ast.expr) -> bool:
    """Whether an expression can be indexed over and over: a name, an attribute, a part of one."""
    node = _whole(node)
    return dotted(node) is not None or (isinstance(node, ast.Subscript) and root(node) is not None)


def _whole(node: ast.expr) -> ast.expr:
    """``x`` of ``x.unbind(0)``, which gives what going through ``x`` gives."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unbind":
        owner, dims = node.func.value, [*node.args, *(k.value for k in node.keywords)]
        if dotted(owner) == "torch" and dims:
            owner, dims = dims[0], dims[1:]
        if all(isinstance(dim, ast.Constant) and dim.value == 0 for dim in dims):
            return owner
    return node


def _index(code: Code, loop: ast.For) -> str:
    """A name for the index: the loop's own if it counts already, else a free one."""
    if isinstance(loop.iter, ast.Call) and getattr(loop.iter.func, "id", "") == "enumerate":
        first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
        if isinstance(first, ast.Name):
            return first.id
    taken = {n.id for n in ast.walk(scope(code, loop)) if isinstance(n, ast.Name)}
    taken |= {a.arg for a in ast.walk(scope(code, loop)) if isinstance(a, ast.arg)}
    return next(n for n in ("i", "j", "k", "idx", "index", "n_", "i_", "index_") if n not in taken)


# ---- unpacking --------------------------------------------------------------------------------------------------


def _unpacked(write: Site, name: str) -> Iterator[Proposal]:
    """``a, b = x.unbind(1)`` (or ``= x``) in the function of the write."""
    code = write.code
    for binding in bindings(code, name, write.statement)[:2]:
        statement = binding.statement
        if binding.value is not None or not isinstance(statement, ast.Assign):
            continue
        target = statement.targets[0]
        if not isinstance(target, (ast.Tuple, ast.List)) or any(isinstance(e, ast.Starred) for e in target.elts):
            continue
        form = _item_form(code, statement.value)
        if form is not None:
            text = ", ".join(form.format(i) for i in range(len(target.elts)))
            yield _proposal(code, [code.replace(statement.value, text)], f"{code.text(target)} = {text}", "unpacked")


def _item_form(code: Code, value: ast.expr) -> str | None:
    """How one of the views reads on its own, with ``{}`` for its number."""
    if dotted(value) is not None:
        return f"{code.text(value)}[{{}}]"
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "unbind":
        return None
    given = [*value.args, *(k.value for k in value.keywords)]
    owner = value.func.value
    if dotted(owner) == "torch" and given:
        owner, given = given[0], given[1:]
    try:
        dim = ast.literal_eval(given[0]) if given else 0
    except ValueError:
        return None
    if not isinstance(dim, int) or dim < -1:
        return None
    inside = "..., {}" if dim == -1 else ":, " * dim + "{}"
    text = atom(code, owner).replace("{", "{{").replace("}", "}}")
    return f"{text}[{inside}]"
