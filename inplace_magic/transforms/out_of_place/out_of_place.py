"""``x += y`` becomes ``x = x + y``, ``x.add_(y)`` becomes ``x = x.add(y)``: a new tensor, the saved one untouched.

x = F.relu(x)                     x = F.relu(x)
x += feature                      x = x + feature
w /= total + eps                  w = w / (total + eps)
z.mul_(2)                         z = z.mul(2)
return a.mul_(gate)               return a.mul(gate)
F.relu_(h)                        h = F.relu(h)
F.dropout(h, 0.5, inplace=True)   h = F.dropout(h, 0.5)
x.zero_()                         x = torch.zeros_like(x)
p[p < eps] = eps                  p = p.masked_fill(p < eps, eps)
p[bad] = q[bad]                   p = torch.where(bad, q, p)
torch.exp(x, out=y)               y = torch.exp(x)
boxes["out"].clamp_(0, 1)         boxes["out"] = boxes["out"].clamp(0, 1)
for t in states: t.mul_(0.9)      states = [t.mul(0.9) for t in states]
for k, t in ws.items(): t -= d    ws = {k: t - d for k, t in ws.items()}
for i, t in enumerate(ts):        pair = tuple(t.clone() for i, t in enumerate(ts))
    pair[i].copy_(t)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ...message import message
from ...source.bindings import gone_through, key_of_item
from ...source.dataflow import called_name
from ...source.editor import Code, dotted
from ...source.lift import as_lines
from ..analysis.given import saved_first, wants_given
from ..analysis.meant import has_two_names, is_lost, meant_for_whole, updates_by_another_look
from ..analysis.targets import Site, chain, loop_to_keep, tensor_written, written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .new_tensor import Rewrite, augmented, is_alias, rewritten, writes_in_place

_WHY, _APART = message("why_new_tensor"), message("why_names_apart")


@register(
    "modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "inference", "out_grad",
    "silent",
)  # fmt: skip
def out_of_place(problem: Problem) -> Iterator[Proposal]:
    write = written(problem)
    if write is None or problem.clash.write is None or problem.clash.write.origin == "optim":
        return
    if updates_by_another_look(problem, write):
        return
    if problem.family == "silent" and problem.clash.save is None and any(map(is_alias, chain(write.target))):
        return  # ``h.data = h.data.clamp(min=0)``: the graph would hear of it no more than it does now
    tensor = tensor_written(write)
    if isinstance(tensor, ast.Name) and is_lost(write, tensor.id):
        return
    more = meant_for_whole(write) and not isinstance(tensor, ast.Subscript)
    for form, rewrite in _rewrites(problem, write, tensor, "meant for more" if more else "statement"):
        given = wants_given(problem)
        lossless = given or rewrite.unsure or (more and form != "container")  # which all who go through it see
        form = f"out_of_place: {form}"
        apart = not given and has_two_names(write) and tensor is write.root
        why = _APART if apart else _WHY
        for ahead in dict.fromkeys([(), saved_first(problem, write)]):
            edits = (*ahead, *rewrite.edits)
            yield in_one_text(write.code, edits, rewrite.line, why, form, lossless=lossless, meant=apart)


def _rewrites(problem: Problem, write: Site, tensor: ast.expr | None, form: str) -> Iterator[tuple[str, Rewrite]]:
    code, statement = write.code, write.statement
    calls = (n for n in [write.expression, *ast.walk(statement)] if isinstance(n, ast.Call) and writes_in_place(n))
    rewrite = rewritten(problem, code, statement, write.target, next(calls, None), tensor)
    # A part of a tensor is still written in place; an item of a list or dict is not.
    target = statement.target if isinstance(statement, ast.AugAssign) else None
    if rewrite is None or (isinstance(target, ast.Subscript) and target is not tensor):
        return
    name = tensor.id if isinstance(tensor, ast.Name) else None
    loop = loop_to_keep(write, name) if name is not None else None
    if loop is not None and name is not None:
        anew = augmented(code, statement, heard=True) if isinstance(statement, ast.AugAssign) else rewrite
        inner = _comprehension(code, loop, name, statement, anew)
        if inner is not None:
            yield "container", inner
        return  # bound anew, the name of the loop would leave what it goes through as it was
    outside = _outside_block(code, statement, rewrite)
    if outside is not None:
        yield "outside no_grad", outside
    yield form, rewrite
    of_tuple = _tuple(code, tensor, statement, rewrite)
    if of_tuple is not None:
        yield "container", of_tuple


# ---- around the statement ---------------------------------------------------------------------------------------


def _comprehension(code: Code, loop: ast.For, name: str, statement: ast.stmt, rewrite: Rewrite) -> Rewrite | None:
    """A loop that does nothing but write into each tensor of a list or dict: the container is made anew."""
    through = gone_through(loop, name)
    if through is None or not _does_nothing_else(code, loop, statement) or rewrite.target is None:
        return None
    key, held = key_of_item(loop, name), dotted(through)
    if isinstance(through, ast.Call) and isinstance(through.func, ast.Attribute) and through.func.attr == "items":
        held = dotted(through.func.value) if key is not None and not through.args else None
        made = f"{{{key}: {rewrite.value} for {code.text(loop.target)} in {code.text(loop.iter)}}}"
    else:
        made = f"[{rewrite.value} for {code.text(loop.target)} in {code.text(loop.iter)}]"
    return _anew(code, loop, held, made) if held is not None else None


def _does_nothing_else(code: Code, loop: ast.For, statement: ast.stmt) -> bool:
    return loop.body == [statement] and not loop.orelse and code.alone(loop)


def _anew(code: Code, loop: ast.For, held: str, made: str) -> Rewrite:
    return Rewrite((code.replace(loop, f"{held} = {made}"),), held, made)


def _tuple(code: Code, tensor: ast.expr | None, statement: ast.stmt, rewrite: Rewrite) -> Rewrite | None:
    """A loop that does nothing but write into each item by its number: where the items are a tuple's, that is made anew."""
    loop = code.parent(statement)
    if not isinstance(tensor, ast.Subscript) or not isinstance(tensor.slice, ast.Name) or not isinstance(loop, ast.For):
        return None
    counted = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    given, own = ast.unparse(loop.iter), f"range(len({ast.unparse(tensor.value)}))"
    from_none = isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 1 and not loop.iter.keywords
    counts = given == own or (called_name(loop.iter) == "enumerate" and from_none)
    by_number = isinstance(counted, ast.Name) and counted.id == tensor.slice.id and counts
    if not by_number or not _does_nothing_else(code, loop, statement) or rewrite.target is None:
        return None
    made = f"tuple({rewrite.value} for {code.text(loop.target)} in {given})"
    as_many = given == own  # else as many as there are numbers
    return replace(_anew(code, loop, code.text(tensor.value), made), unsure=not as_many)


def _outside_block(code: Code, statement: ast.stmt, rewrite: Rewrite) -> Rewrite | None:
    """A write under no_grad that was hidden from the graph, made out of place, has to be seen by it."""
    inner, block = statement, code.parent(statement)
    while isinstance(block, ast.For) and block.body == [inner] and not block.orelse:
        inner, block = block, code.parent(block)
    if not isinstance(block, ast.With) or [len(block.body), len(block.items)] != [1, 1] or not code.alone(block):
        return None
    if "no_grad" not in code.text(block.items[0].context_expr) or rewrite.target is None:
        return None
    text = f"{code.newline}{code.indent(block)}".join(as_lines(code, inner, rewrite.edits))
    return replace(rewrite, edits=(code.replace(block, text),))
