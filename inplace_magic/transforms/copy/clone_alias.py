"""Two tensors that share memory part where the sharing begins, so that a write into one leaves the other.

residual = x.detach()             residual = x.detach().clone()
shown = x.data.cpu().numpy()      shown = x.data.cpu().numpy().copy()
save(x.detach())                  save(x.detach().clone())
rows = bias.expand(4, 3)          rows = bias.expand(4, 3).clone()
out = x                           out = x.clone()
x[1:] = x[:-1]                    x[1:] = x[:-1].clone()
live[live] = fooled               live[live.clone()] = fooled

stage.copy_(t)                    stage.copy_(t)
return stage                      return stage.clone()    # and the next call leaves it alone

kept.append(w.grad)               kept.append(w.grad.clone())

x = torch.from_numpy(frame)       x = torch.from_numpy(frame).clone()    # others fill the frame anew
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence, Set

from ...message import message
from ...source.bindings import argument, bindings, later, loop_of, reads
from ...source.blocks import own_statements, scope
from ...source.dataflow import assigned, called_name, calls, calls_named
from ...source.editor import Code, Edit, Function, dotted
from ..analysis.contents import OWN_MEMORY, shares
from ..analysis.meant import goes_on_with, has_two_names, meant_for_whole, reads_itself
from ..analysis.meetings import updates_weights
from ..analysis.targets import (
    SEVERAL_VIEWS,
    VIEW_METHODS,
    Site,
    chain,
    handed_down,
    root_text,
    seen_through,
    sites,
    tensor_written,
    written_by,
    written_here,
)
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY, _GIVEN_OUT = message("why_memory_apart"), message("why_copy_is_given_out")
_TAKES_OVER = ("from_numpy", "as_tensor", "from_dlpack", "frombuffer")
_SPREADS = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold"})
_LINKS = 3  # names that one thing is handed on under
_VIEWS = VIEW_METHODS - SEVERAL_VIEWS - {"numpy", "values"}


@register(
    "modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "inference", "overlap", "silent"
)  # fmt: skip
def clone_alias(problem: Problem) -> Iterator[Proposal]:
    """The written name was bound to another look at the memory of something else."""
    write, event = written_here(problem), problem.clash.write
    path = re.sub(r"\[.*?\]", "", (event.name if event is not None else None) or "")
    known: set[str | None] = {path, f"self.{path.rpartition('.')[2]}"}
    if problem.family == "overlap" and event is not None and event.origin == "optim":
        yield from _where_spread(problem, known)
    if write is None:
        return
    tensor = tensor_written(write)
    name = write.code.text(tensor) if tensor is not None else ""
    for binding in bindings(write.code, name, write.statement)[:1]:
        if binding.value is not None:
            yield from _copied(problem, write, name, binding.value)
    if problem.family in ("modified", "silent"):
        yield from _handed_over(problem)
        yield from _taken_over(problem)
    if problem.family == "overlap":
        yield from _shifted(write)
        loop = loop_of(write.code, write.statement, write.root_text or "")
        items = [n for n in ast.walk(loop.iter) if isinstance(n, (ast.Name, ast.Attribute))] if loop is not None else []
        yield from _where_spread(problem, {write.root_text, *map(write.code.text, items), *known} - {None})


def _copied(problem: Problem, write: Site, name: str, value: ast.expr) -> Iterator[Proposal]:
    code = write.code
    if problem.family in ("modified", "silent") and shares(value):
        local = code.function(write.statement) is not None and not reads(code, name, later(code, write.statement))
        # What nothing reads on is written for the sake of the other.
        apart = not local and is_detached(value) and not updates_weights(problem)
        itself = reads_itself(write)
        form = "clone_alias: of itself" if itself else "clone_alias"
        yield _parted(code, [value], meant=apart or itself or _is_picture(problem), form=form)
    elif dotted(value) is not None or isinstance(value, ast.Subscript) or called_name(value) in _VIEWS:
        plain = dotted(value) is not None
        drops = not plain and meant_for_whole(write)
        form = "meant for more" if drops else "name, refused" if plain and problem.family != "modified" else "name"
        form = f"clone_before_write: {form}"
        apart = plain and has_two_names(write)
        why = message("why_names_apart") if apart else message("why_name_copied", name=name)
        edit = code.behind(value, ".clone()")
        yield in_one_text(code, [edit], f"{name} = {edit.text}", why, form, lossless=drops, meant=apart)


def _handed_over(problem: Problem) -> Iterator[Proposal]:
    """Another look at a tensor, past its graph, was handed to the code that writes: as what it writes, where that is told."""
    meant, frames, names = _is_picture(problem), sites(problem), dict(handed_down(problem))
    for inner, caller in itertools.pairwise(frames):
        call, code = caller.expression, caller.code
        known = argument(inner.code.function(inner.statement), names.get(inner, ""), call)
        given = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
        for one in given if known is None else [known]:
            bound = bindings(code, code.text(one), caller.statement)[:1] if isinstance(one, ast.Name) else []
            value = bound[0].value if bound else one
            if value is not None and shares(value):
                shown = bound[0].statement if bound else caller.node
                yield _parted(code, [value], shown, meant=meant)


def _taken_over(problem: Problem) -> Iterator[Proposal]:
    """What the graph keeps is a look at memory that others write past torch: ``torch.from_numpy(observation)``."""
    if problem.clash.write is None or problem.clash.write.bumped or problem.clash.write.operation:
        return  # torch's own operations write it
    for frame in problem.saved[::-1]:
        code, line = frame.code, frame.statement.end_lineno or 0
        ahead = [s for s in own_statements(code, scope(code, frame.statement)) if s.lineno <= line]
        for call in [call for s in ahead[::-1] for call in calls_named(s, *_TAKES_OVER)][:1]:
            yield _parted(code, [call], code.statement(call))


def _is_picture(problem: Problem) -> bool:
    """Whether what is written lies in a weight, and the write is part of an expression that shows or saves it. An update is a
    statement of its own.
    """
    frames = sites(problem)
    return bool(frames) and updates_weights(problem) and goes_on_with(frames)


def _parted(
    code: Code,
    values: Sequence[ast.expr],
    shown: ast.AST | None = None,
    why: str = _WHY,
    meant: bool = False,
    form: str = "clone_alias",
) -> Proposal:
    """Each of the values replaced by a copy; ``shown``: what is to be read as the title, if not the first copy alone."""
    edits = [copied(code, value) for value in values]
    title = edits[0].text if shown is None else code.edited(shown, edits)
    return in_one_text(code, edits, title, why, form, meant=meant)


def copied(code: Code, value: ast.expr) -> Edit:
    """A copy of a tensor, or of an array, in its place."""
    return code.behind(value, ".copy()" if called_name(value) in ("numpy", "asarray") else ".clone()")


def is_detached(value: ast.expr) -> bool:
    """Whether a value was detached under a name of its own: whoever does that writes into it because nobody is to see it."""
    return any(called_name(node) == "detach" for node in chain(value))


def _where_spread(problem: Problem, names: Set[str | None]) -> Iterator[Proposal]:
    """What gave one of the names memory that several elements share, or gave it to what the name was made from: an
    expression, or what a function of the user's returns."""
    for _ in range(_LINKS):
        made = [
            (code, value)
            for code, node in problem.nodes(ast.AST)
            for kept, value in _kept(code, node)
            if kept is None or kept in names
        ]
        called = {called_name(call) for _, value in made for call in calls(value)}
        made += [(code, n.value) for code, n in problem.nodes(ast.Return) if n.value and _name_of(code, n) in called]
        for code in dict.fromkeys(code for code, _ in made):
            below = [n for one, value in made if one is code for n in calls_named(value, *_SPREADS)]
            spread = [n for n in below if getattr(code.parent(n), "attr", "") not in OWN_MEMORY]
            if spread:
                yield _parted(code, spread)
        read = [(code, n) for code, value in made for n in ast.walk(value) if isinstance(n, (ast.Name, ast.Attribute))]
        names = {code.text(n) for code, n in read} - names


def _kept(code: Code, node: ast.AST) -> Iterator[tuple[str | None, ast.expr]]:
    """Under what name a node keeps what; None where that is not written out: ``self.register_buffer(name, x.expand(3, 4))``."""
    if isinstance(node, ast.Assign):
        yield from ((root_text(code, target), node.value) for target in assigned(node))
    elif called_name(node) in ("register_buffer", "register_parameter", "setattr") and isinstance(node, ast.Call):
        for name, value in [node.args[called_name(node) == "setattr" :][:2]] if len(node.args) > 1 else []:
            yield f"self.{name.value!s}" if isinstance(name, ast.Constant) else None, value


def _name_of(code: Code, node: ast.AST) -> str | None:
    """The name of the function that a node stands in."""
    return getattr(code.function(node), "name", None)


# ---- one tensor on both sides of a write -----------------------------------------------------------------------------


def _shifted(write: Site) -> Iterator[Proposal]:
    """A tensor is written from another stretch of itself, or where it says itself."""
    code, statement = write.code, write.statement
    if write.target is None or write.root is None:
        return
    origin = _origin(code, write.root, statement)
    parts = [p for p in _operands(write) if p is not write.target and _origin(code, p, statement) == origin]
    for chosen in [[part] for part in parts] + [parts] * (len(parts) > 1):
        yield _parted(code, chosen, statement, message("why_copy_is_read"))


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
    name = root_text(code, node)
    for _ in range(4):
        name = (seen_through(code, name, statement) if name is not None else None) or name
    return name


# ---- a buffer that is given out --------------------------------------------------------------------------------------


@register("silent")
def clone_returned(problem: Problem) -> Iterator[Proposal]:
    """A buffer that a function fills and gives out is given out as a copy, so that the next call leaves it alone."""
    shared = problem.clash.write is not None and problem.clash.write.how == "shared"
    for write in sites(problem, depth=1 if shared else 2):
        code, name = write.code, write.root_text
        function = code.function(write.statement)
        if shared:  # `b.grad = buffer`, which is the gradient of another leaf already
            given = [_given_out(write.statement), *_kept_gradients(code)]
        elif name is not None and isinstance(function, Function):
            given = [v for s in own_statements(code, function) if root_text(code, v := _given_out(s)) == name]
        else:
            continue
        for how in ("clone",) if shared else ("clone", "copy"):  # of a tensor, of an array
            yield from _as_copies(code, given, how)


@register("modified")
def clone_given_out(problem: Problem) -> Iterator[Proposal]:
    """What another method, or another function beside the one that writes, gives out of that memory: ``return self.queue``."""
    for write in sites(problem, depth=1):
        code, name, own = write.code, write.root_text, write.code.function(write.statement)
        if name is None or not isinstance(own, Function) or isinstance(code.parent(own), ast.Module):
            continue
        functions = [s for s in code.block(own) if isinstance(s, Function) and s is not own]
        given = [s.value for f in functions for s in own_statements(code, f) if isinstance(s, ast.Return)]
        values = [one for one in given if root_text(code, one) == name]
        if not any(_written_through(problem, f.name) for f in functions):
            yield from _as_copies(code, values, "clone", "clone_at_save")


def _written_through(problem: Problem, function: str) -> bool:
    """Whether what a function gives out is written: ``bank.get().zero_()``, ``bank.get()[0] = 1``."""
    targets = (target for _, node in problem.nodes(ast.AST) for target in written_by(node))
    return any(calls_named(target, function) for target in targets)


def _as_copies(
    code: Code, values: Iterable[ast.expr | None], how: str, form: str = "clone_returned"
) -> Iterator[Proposal]:
    for value in (one for one in values if one is not None):
        edit = code.behind(value, f".{how}()")
        yield in_one_text(code, [edit], code.edited(code.statement(value), [edit]), _GIVEN_OUT, form)


def _given_out(statement: ast.stmt) -> ast.expr | None:
    """What is returned, or kept by an object."""
    kept = isinstance(statement, ast.Assign) and all(isinstance(t, ast.Attribute) for t in statement.targets)
    return statement.value if isinstance(statement, ast.Return) or kept else None  # type: ignore[attr-defined]


def _kept_gradients(code: Code) -> Iterator[ast.expr]:
    """``kept.append(w.grad)``: what the next backward adds to, or its seed."""
    for value in (call.args[0] for call in calls_named(code.tree, "append") if len(call.args) == 1):
        if called_name(getattr(value, "value", None)) == "grad" or getattr(value, "attr", "") == "grad":
            yield value
