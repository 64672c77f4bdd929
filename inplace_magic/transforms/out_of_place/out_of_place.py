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
for w, head in zip(ws, heads):    for i, (w, head) in enumerate(zip(ws, heads)):
    d = head(x)                       d = head(x)
    w += d                            ws[i] = w + d
for i, t in enumerate(ts):        pair = list(pair)                       # a tuple's items cannot be set
    pair[i].copy_(t)              for i, t in enumerate(ts):
                                      pair[i] = t.clone()
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import replace

from ...message import message
from ...source.bindings import gone_through, is_dead_store, key_of_item, parameters
from ...source.blocks import loops, scope
from ...source.dataflow import binds, key_of, reads
from ...source.editor import Code, dotted
from ...source.lift import unwrapped
from ..analysis.counted import counted
from ..analysis.meant import are_apart, is_lost, meant_for_whole, updates_by_another_look
from ..analysis.targets import Site, chain, has_key, loop_to_keep, reads_gradient, tensor_written, written
from ..grad_mode.inference_mode import modes
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
    if write is None or write.event.origin == "optim" or updates_by_another_look(problem, write):
        return
    if problem.family == "silent" and problem.clash.save is None and any(map(is_alias, chain(write.target))):
        return  # ``h.data = h.data.clamp(min=0)``: the graph would hear of it no more than it does now
    tensor = tensor_written(write)
    if isinstance(tensor, ast.Name) and is_lost(problem, write, tensor.id):
        return
    more = meant_for_whole(write) and not isinstance(tensor, ast.Subscript)
    apart = tensor is write.root and are_apart(problem, write)
    why = _APART if apart else _WHY
    for kind, rewrite in _rewrites(problem, write, tensor, "meant for more" if more else "statement"):
        lossless = rewrite.unsure or (more and kind != "container")  # which all who go through it see
        form = f"out_of_place: {kind}"
        yield in_one_text(write.code, rewrite.edits, rewrite.line, why, form, lossless=lossless, meant=apart)


def _rewrites(problem: Problem, write: Site, tensor: ast.expr | None, form: str) -> Iterator[tuple[str, Rewrite]]:
    code, statement = write.code, write.statement
    in_place = [n for n in [write.expression, *ast.walk(statement)] if isinstance(n, ast.Call) and writes_in_place(n)]
    rewrite = rewritten(problem, code, statement, write.target, next(iter(in_place), None), tensor)
    # A part of a tensor is still written in place; an item of a list or dict is not.
    target = statement.target if isinstance(statement, ast.AugAssign) else None
    if rewrite is None or (isinstance(target, ast.Subscript) and target is not tensor):
        return
    bound = rewrite.target is not None  # else the value alone goes on: ``yield t.squeeze_()``
    loop = loop_to_keep(write, tensor.id) if bound and isinstance(tensor, ast.Name) else None
    if loop is not None and isinstance(tensor, ast.Name):
        if write.event.of_leaf and reads_gradient(statement):
            return  # a leaf is updated: no other tensor is to be stepped in its place
        if isinstance(statement, ast.AugAssign):
            rewrite = augmented(code, statement, heard=True)
        held, key = _container(loop, tensor.id)
        if held is not None:
            if loop.body == [statement]:
                yield from _comprehension(code, loop, rewrite, held, key)
            else:
                yield from _by_index(problem, code, loop, statement, rewrite, held, key)
        return  # bound anew, the name of the loop would leave what it goes through as it was
    yield from _outside_block(code, statement, rewrite)
    yield form, rewrite
    yield from _tuple(code, tensor, statement, rewrite)


# ---- around the statement ---------------------------------------------------------------------------------------


def _comprehension(
    code: Code, loop: ast.For, rewrite: Rewrite, held: str, key: str | None
) -> Iterator[tuple[str, Rewrite]]:
    """A loop that does nothing but write into each tensor of a list or dict: the container is made anew."""
    each = f"for {code.text(loop.target)} in {code.text(loop.iter)}"
    made = f"[{rewrite.value} {each}]" if key is None else f"{{{key}: {rewrite.value} {each}}}"
    if not loop.orelse and code.alone(loop) and not is_dead_store(code, held, loop):
        edits = (code.replace(loop, f"{held} = {made}"),)
        yield "container", replace(rewrite, edits=edits, target=held, value=made)


def _by_index(
    problem: Problem, code: Code, loop: ast.For, statement: ast.stmt, rewrite: Rewrite, held: str, key: str | None
) -> Iterator[tuple[str, Rewrite]]:
    """A loop that does more than write into each tensor of a list or dict: each new one is put in its place."""
    index, edits = (key, []) if key is not None else counted(problem, code, loop)
    target = f"{held}[{index}]"
    put = code.replace(statement, f"{target} = {rewrite.value}")
    yield "container", replace(rewrite, edits=(*edits, put), target=target)


def _container(loop: ast.For, name: str) -> tuple[str | None, str | None]:
    """The list or dict whose items a loop calls ``name``, and of a dict their key."""
    match through := gone_through(loop, name), key_of_item(loop, name):
        case ast.Call(ast.Attribute(of_dict, "items"), []), str(key):
            return dotted(of_dict), key
    return dotted(through), None


def _tuple(code: Code, tensor: ast.expr | None, statement: ast.stmt, rewrite: Rewrite) -> Iterator[tuple[str, Rewrite]]:
    """A tuple, whose items cannot be set, is made a list ahead of the loops that set them. What has texts for keys is none."""
    if isinstance(tensor, ast.Subscript) and rewrite.target is not None and not has_key(tensor):
        held = code.text(tensor.value)
        key, function = key_of(tensor.value), scope(code, statement)
        around = itertools.takewhile(lambda loop: key not in binds(loop), loops(code, statement))
        edit = code.insert_before([statement, *around][-1], f"{held} = list({held})")
        # What a function was handed and does not give back is the caller's, who would see nothing of it.
        given_back = any(key in reads(s) for s in ast.walk(function) if isinstance(s, ast.Return))
        unsure = rewrite.unsure or (key in parameters(function) and not given_back)
        yield "container", replace(rewrite, edits=(edit, *rewrite.edits), unsure=unsure)


def _outside_block(code: Code, statement: ast.stmt, rewrite: Rewrite) -> Iterator[tuple[str, Rewrite]]:
    """A write under no_grad that was hidden from the graph, made out of place, has to be seen by it."""
    inner, block = statement, code.parent(statement)
    while isinstance(block, ast.For) and block.body == [inner]:
        inner, block = block, code.parent(block)
    if not isinstance(block, ast.With) or block.body != [inner] or not code.alone(block) or rewrite.target is None:
        return
    alone = len(block.items) == 1 and any(modes(block, "no_grad"))
    if alone and (edit := unwrapped(code, block, block.body, rewrite.edits)) is not None:
        yield "outside no_grad", replace(rewrite, edits=(edit,))
