"""Two tensors that share memory part where the sharing begins, so that a write into one leaves the other.

residual = x.detach()             residual = x.detach().clone()
shown = x.data.cpu().numpy()      shown = x.data.cpu().numpy().copy()
save(x.detach())                  save(x.detach().clone())
out = x                           out = x.clone()

ema = {n: p.detach() for …}       ema = {n: p.detach().clone() for …}
shadow[n] = p.data                shadow[n] = p.data.clone()
before = net.state_dict()         before = {key: value.clone() for key, value in net.state_dict().items()}

x = torch.from_numpy(frame)       x = torch.from_numpy(frame).clone()    # others fill the frame anew
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...message import message
from ...source.bindings import argument, bindings, later, reads
from ...source.blocks import own_statements, scope
from ...source.dataflow import called_name, calls_named, given_to, receiver
from ...source.editor import Code, Edit, dotted
from ..analysis.contents import container, put_into, shares
from ..analysis.meant import are_apart, goes_on_with, is_item, meant_for_whole, reads_itself
from ..analysis.meetings import updates_weights
from ..analysis.targets import (
    SEVERAL_VIEWS,
    VIEW_METHODS,
    Site,
    chain,
    handed_down,
    sites,
    tensor_written,
    written_here,
)
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

WHY = message("why_memory_apart")
_TAKES_OVER = ("from_numpy", "as_tensor", "from_dlpack", "frombuffer")
_VIEWS = VIEW_METHODS - SEVERAL_VIEWS - {"numpy", "values"}


@register("modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "inference", "overlap", "silent")
def clone_alias(problem: Problem) -> Iterator[Proposal]:
    """The written name was bound to another look at the memory of something else."""
    write = written_here(problem)
    if write is None:
        return
    tensor = tensor_written(write)
    name = write.code.text(tensor) if tensor is not None else ""
    for binding in bindings(write.code, name, write.statement)[:1]:
        if binding.value is not None:
            yield from _copied(problem, write, name, binding.value)
    yield from _handed_over(problem)
    yield from _taken_over(problem)
    yield from _of_items(problem, write)


def _copied(problem: Problem, write: Site, name: str, value: ast.expr) -> Iterator[Proposal]:
    code = write.code
    if problem.family in ("modified", "silent") and shares(value):
        read_on = code.function(write.statement) is None or reads(code, name, later(code, write.statement))
        # What nothing reads on is written for the sake of the other.
        apart = bool(read_on) and is_detached(value) and not updates_weights(problem)
        itself = reads_itself(write)
        form = "clone_alias: of itself" if itself else "clone_alias"
        edit = copied(code, value)
        yield in_one_text(code, [edit], edit.text, WHY, form, meant=apart or itself or _is_picture(problem))
    elif dotted(value) is not None or isinstance(value, ast.Subscript) or called_name(value) in _VIEWS:
        plain = dotted(value) is not None or is_item(value, write)
        drops = not plain and meant_for_whole(write)
        form = "meant for more" if drops else "name, refused" if plain and problem.family != "modified" else "name"
        form = f"clone_before_write: {form}"
        apart = plain and are_apart(problem, write)
        why = message("why_names_apart") if apart else message("why_name_copied", name=name)
        edit = code.behind(value, ".clone()")
        yield in_one_text(code, [edit], f"{name} = {edit.text}", why, form, lossless=drops, meant=apart)


def _handed_over(problem: Problem) -> Iterator[Proposal]:
    """Another look at a tensor, past its graph, was handed to the code that writes: as what it writes, where that is told."""
    names = dict(handed_down(problem))
    for inner, caller in itertools.pairwise(sites(problem)):
        call, code = caller.expression, caller.code
        known = argument(inner.code.function(inner.statement), names.get(inner, ""), call)
        for given in given_to(call) if known is None else [known]:
            bound = bindings(code, code.text(given), caller.statement)[:1] if isinstance(given, ast.Name) else []
            value, shown = (bound[0].value, bound[0].statement) if bound else (given, caller.node)
            if value is not None and shares(value):
                yield in_one_text(code, [copied(code, value)], shown, WHY, "clone_alias", meant=_is_picture(problem))


def _taken_over(problem: Problem) -> Iterator[Proposal]:
    """What the graph keeps is a look at memory that others write past torch: ``torch.from_numpy(observation)``."""
    for frame in problem.saved[::-1]:
        code, line = frame.code, frame.statement.end_lineno or 0
        ahead = [s for s in own_statements(code, scope(code, frame.statement)) if s.lineno <= line]
        for call in [call for s in ahead[::-1] for call in calls_named(s, *_TAKES_OVER)][:1]:
            yield in_one_text(code, [copied(code, call)], code.statement(call), WHY, "clone_alias")


def _of_items(problem: Problem, write: Site) -> Iterator[Proposal]:
    """What a list or dict holds of the memory of other tensors is copied where it is put there."""
    name, itself = container(write), reads_itself(write)
    if name is None or (updates_weights(problem) and not itself):
        return  # an update, by another look at what it updates
    put = [(code, value) for code, value in put_into(problem, write, name) if shares(value) or _is_state(value)]
    for code, value in put[:1]:
        edits = tuple((where, copied(where, one)) for where, one in put)
        title = " ".join(code.edited(code.statement(value), [edits[0][1]]).split())
        form = "clone_alias: of itself" if itself else "clone_alias"
        yield Proposal(title, WHY, form, edits, meant=itself or is_detached(value))


def _is_picture(problem: Problem) -> bool:
    """Whether what is written lies in a weight, and the write is part of an expression that shows or saves it. An update is a
    statement of its own.
    """
    frames = sites(problem)
    return bool(frames) and updates_weights(problem) and goes_on_with(frames)


def copied(code: Code, value: ast.expr) -> Edit:
    """A copy of a tensor, of an array, or of all that a state dict holds, in its place. What ``requires_grad_`` makes a leaf is
    copied ahead of that, so that the copy is the leaf.
    """
    if isinstance(value, ast.Call) and called_name(value) == "requires_grad_":
        value = receiver(value) or value
    if _is_state(value):
        return code.replace(value, f"{{key: value.clone() for key, value in {code.text(value)}.items()}}")
    return code.behind(value, ".copy()" if called_name(value) in ("numpy", "asarray") else ".clone()")


def _is_state(value: ast.expr) -> bool:
    return called_name(value) == "state_dict"


def is_detached(value: ast.expr) -> bool:
    """Whether a value was detached under a name of its own: whoever does that writes into it because nobody is to see it."""
    return any(called_name(node) == "detach" for node in chain(value))
