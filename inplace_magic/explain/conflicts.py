"""From evidence to conflicts: the three places, with one plain sentence on what happened."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from ..diagnosis import Conflict, Place
from ..families import RAISED_AT_WRITE, is_of_base, overlaps_input, updates_inference
from ..message import message
from ..record.evidence import Evidence, How, RecordedConflict, Write
from ..record.operations import RESHAPES
from ..source.bindings import bound, made_last
from ..source.document import CellSource
from ..source.editor import names_loaded
from ..source.location import SourceRange
from ..source.sources import Sources
from .carried import with_carrier
from .iterations import with_iterations
from .post_mortem import SYMBOLS, LiveGraph, Stale, written_by

_NODE = re.compile(r"(Backward|Backward0|Backward1|<.*>|Impl)+$")
_MOST_STALE = 5  # conflicts shown where there was no rerun

# Nodes that keep what they give rather than what they are given.
_KEEP_OUTPUT = frozenset({
    "relu", "sigmoid", "tanh", "exp", "expm1", "sqrt", "rsqrt", "softmax", "log_softmax", "elu", "celu", "reciprocal", "tan",
    "cumprod",
})  # fmt: skip
# What people write where torch's node has a name of its own.
_OPERATORS: dict[type[ast.operator], str] = {ast.MatMult: "`@`", ast.Mult: "`*`", ast.Div: "`/`", ast.Pow: "`**`"}
_MODULES = {
    "addmm": "`nn.Linear`", "mm": "`nn.Linear`", "linear": "`nn.Linear`", "convolution": "`nn.Conv`",
    "cudnn_convolution": "`nn.Conv`", "mkldnn_convolution": "`nn.Conv`", "native_batch_norm": "`nn.BatchNorm`",
    "cudnn_batch_norm": "`nn.BatchNorm`", "native_layer_norm": "`nn.LayerNorm`", "native_group_norm": "`nn.GroupNorm`",
    "embedding": "`nn.Embedding`",
}  # fmt: skip
# Modules whose nodes are those of the layers that they are made of.
_COMPOSED = frozenset({
    "RNNCell", "GRUCell", "LSTMCell", "RNN", "GRU", "LSTM", "MultiheadAttention", "TransformerEncoderLayer",
    "TransformerDecoderLayer", "TransformerEncoder", "TransformerDecoder", "Transformer",
})  # fmt: skip
# The label at the backward, by what is wrong with the write.
_NEEDS: dict[How, str] = {
    "untrained": "feeds_none",
    "flat": "feeds_zero",
    "cleared": "feeds_cleared",
    "unregistered": "feeds_missed",
    "replaced": "feeds_missed",
    "unreached": "feeds_not_it",
    "as_data": "feeds_not",
    "as_term": "feeds_not",
    "constant": "feeds_not",
    "added_up": "feeds_sums",
    "discarded": "feeds_unused",
    "carried": "goes_through_earlier",
    "of_result": "feeds_lost",
}


def conflicts(
    evidence: Evidence | None,
    family: str,
    sources: Sources,
    raised: tuple[SourceRange, ...],
    live: LiveGraph | None = None,
) -> tuple[Conflict, ...]:
    """What is known, the conflict that stopped the cell first. At least one, even without any evidence.

    ``live`` is what the graph after the failure tells, for where there is no evidence.
    """
    clashes = relevant(evidence, family) if evidence is not None else []
    if family == "silent":  # a value that was kept and overwritten says the most
        clashes = sorted(clashes, key=lambda c: c.save is None)
    found = [
        with_carrier(
            with_iterations(_conflict(clash, family, sources, raised if i == 0 else ()), clash, evidence, sources),
            clash,
            sources,
        )
        for i, clash in enumerate(clashes)
        if evidence is not None
    ]
    return tuple(found) or _bare(family, sources, raised, live or LiveGraph())


def relevant(evidence: Evidence, family: str) -> list[RecordedConflict]:
    """The clashes that belong to the error, those whose places are known first."""
    kind = "refused" if family in RAISED_AT_WRITE or family == "inference" else family
    wrong = [c for c in evidence.clashes if c.kind != "detached"]
    if family == "silent" and not wrong:
        return list(evidence.clashes)
    mine = [c for c in wrong if c.kind == kind and (kind != "refused" or c.family == family)]
    others = [c for c in wrong if c not in mine and c.known and c.family != "overlap"]
    return [c for c in mine if c.known] + others if any(c.known for c in mine) else mine + others


def _conflict(clash: RecordedConflict, family: str, sources: Sources, raised: tuple[SourceRange, ...]) -> Conflict:
    if clash.kind == "refused":
        return _refused(clash, clash.family or family, sources, raised)
    seen = clash.need.stack if clash.need is not None else ()
    in_backward = bool(_lines(seen[:1]) & _lines(raised[1:]))  # of a Function: what called that is what needs it
    need_stack = raised if raised and not (seen and (in_backward or _on_magic(raised[0], sources))) else seen
    needed = _place(sources, need_stack)
    saved = _place(sources, clash.save.stack) if clash.save is not None else None
    node = _called(clash, sources)
    if clash.kind == "second_backward":
        freed = _place(sources, clash.freed.stack) if clash.freed is not None else None
        return Conflict(
            changed=freed,
            saved=saved,
            needed=needed,
            tensor=clash.save.name if clash.save is not None else None,
            operation="backward",
            node=node,
            sentence=message("freed_before" if clash.frees_and_needs_in_one_call else "freed_shared"),
            changed_note=message("frees"),
            saved_note=message("creates_graph"),
            needed_note=message("needs_graph"),
            calls=_calls(clash.freed.stack if clash.freed is not None else (), seen, sources),
        )
    changed = _written_at(sources, clash.write.stack) if clash.write is not None else None
    if clash.write is not None and clash.write.how == "of_result" and (made := _made_at(clash.write.name, sources)):
        changed, saved = made, changed
    if (
        clash.write is not None
        and clash.write.how == "unregistered"
        and (made := _made_at(clash.write.held[0], sources))
    ):
        changed, saved = made, changed
    what = _what(clash.write, sources)
    tensor = _tensor(clash, sources)
    return Conflict(
        changed=changed,
        saved=saved,
        needed=needed,
        tensor=tensor,
        operation=what,
        node=node,
        sentence=_overwrote(clash, what, tensor, node),
        changed_note=_changed_note(clash, tensor),
        saved_note=_saved_note(clash, node),
        needed_note=_needed_note(clash),
        calls=_calls(clash.write.stack if clash.write is not None else (), seen, sources),
    )


def _lines(stack: tuple[SourceRange, ...]) -> set[tuple[int | None, str, int]]:
    return {(spot.cell, spot.function, spot.line) for spot in stack}


def _calls(event: tuple[SourceRange, ...], need: tuple[SourceRange, ...], sources: Sources) -> tuple[Place, ...]:
    """The calls in which one function of the user's both changed what was kept, and needed it."""
    if not event or not need or (event[0].cell, event[0].function) != (need[0].cell, need[0].function):
        return ()
    callers = zip(event[:0:-1], need[:0:-1])
    found = next(((one, other) for one, other in callers if one != other), ())
    return tuple(map(sources.place, found))


def _refused(clash: RecordedConflict, family: str, sources: Sources, raised: tuple[SourceRange, ...]) -> Conflict:
    place = _place(sources, (clash.write.stack if clash.write is not None else ()) or raised)
    made = _place(sources, clash.save.stack) if clash.save is not None else None
    what = _what(clash.write, sources)
    if family == "inference":
        return Conflict(made, place, place, clash.save.name if clash.save else None, what, None,
                        message("refused_inference"), changed_note=message("creates_inference"),
                        needed_note=message("refuses_inference_write" if updates_inference(clash.message) else "refuses_inference"))  # fmt: skip
    needed = _place(sources, raised) or place
    tensor = _tensor(clash, sources)
    kind, note = f"refused_{family}", message(f"refuses_{family}")
    if is_of_base(clash.message):
        if clash.write is None:
            place, what = None, message("what_write")
        kind, note = f"refused_base_{family}", message("changes_base")
    elif overlaps_input(clash.message):
        kind, note = "refused_overlaps_input", message("refuses_overlaps_input")
    elif clash.write is not None and clash.write.late:
        kind, note = "refused_late_view", message("refuses_late_view")
    sentence = message(kind, what=what, tensor=tensor or message("it"))
    if tensor is not None and (aliases := _also_read(clash.write, sources)):
        sentence = message("refused_one_tensor", names=aliases, count=len(aliases), tensor=tensor)
    noted = message("creates_view") if made is not None else ""
    return Conflict(place, made, needed, tensor, what, None, sentence, changed_note=note, saved_note=noted)


def _on_magic(spot: SourceRange, sources: Sources) -> bool:
    """Whether all that is known is the cell magic that ran the line, as %%timeit and %%prun leave it."""
    cell = sources.cells[spot.cell] if spot.cell is not None else None
    return isinstance(cell, CellSource) and cell.magic is not None and cell.lines[spot.line - 1].startswith("%%")


def _also_read(write: Write | None, sources: Sources) -> tuple[str, ...]:
    """Names that a refused line reads beside the leaf it writes, and that are bound to that very leaf.

    Averages, targets and copies that were meant to be tensors of their own show in this way that they are none.
    """
    spot = write.stack[0] if write is not None and write.stack else None
    written = written_by(spot, sources)
    if write is None or spot is None or spot.cell is None or written is None:
        return ()
    code = sources.code(spot.cell)
    statement = code.statement_at(spot.line, spot.column) if code is not None else None
    if statement is None:
        return ()
    beside = names_loaded([statement]) - names_loaded([ast.parse(written[1], mode="eval").body])
    return tuple(f"`{name}`" for name in write.aliases if name in beside)


def _bare(family: str, sources: Sources, raised: tuple[SourceRange, ...], live: LiveGraph) -> tuple[Conflict, ...]:
    """What the traceback and the graph that is left tell, which is less than a rerun does."""
    place = _place(sources, raised)
    if family in RAISED_AT_WRITE:
        what, tensor = written_by(raised[0] if raised else None, sources) or (message("what_line"), None)
        sentence = message(f"refused_{family}", what=what, tensor=tensor or message("a_tensor"))
        return (Conflict(place, None, place, tensor, what if tensor else None, None, sentence),)
    if family == "inference":
        tensor = _one_of(live.inference, place)
        return (Conflict(None, place, place, tensor, None, None, message("refused_inference")),)
    if family == "second_backward":
        names = live.entrances
        sentence = message("freed_names", names=_few(names), count=len(names)) if names else message("freed_unknown")
        return (Conflict(None, None, place, _only(names), None, None, sentence, needed_note=message("needs_graph")),)
    known = dict.fromkeys((replace(s, shape=()) if s.names else s) for s in live.stale)
    found = [_left_stale(stale, sources, place) for stale in list(known)[:_MOST_STALE]]
    return tuple(found) or (Conflict(None, None, place, None, None, None, message("stale_unknown")),)


def _left_stale(stale: Stale, sources: Sources, place: Place | None) -> Conflict:
    """A value that the failed backward left behind as something else than what was saved."""
    node = _node_name(stale.node) or stale.node
    tensor = stale.names[0] if stale.names else None
    changed = sources.place(stale.writes[0]) if stale.writes else None
    written = written_by(stale.writes[0], sources) if stale.writes else None
    needed = message("needs")
    if stale.version is not None and stale.saved_version is not None:
        needed = message("needs_versions", node=node, saved=stale.saved_version, now=stale.version)
    if written is not None:
        sentence = message("stale_written", what=written[0], node=node)
    elif stale.names:
        kind = "stale_memory_in" if stale.function else "stale_memory"
        sentence = message(kind, node=node, names=_few(stale.names), function=stale.function)
    else:
        sentence = message("stale_shape", node=node, shape=str(stale.shape))
    return Conflict(
        changed=changed,
        saved=None,
        needed=place,
        tensor=tensor,
        operation=written[0] if written is not None else None,
        node=node,
        sentence=sentence,
        needed_note=needed,
    )


def _few(names: Sequence[str]) -> tuple[str, ...]:
    """The names, or the first of many."""
    return (*names[:2], message("others")) if len(names) > 3 else tuple(names)


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def _one_of(names: Sequence[str], place: Place | None) -> str | None:
    """The name that the line mentions, if it is one."""
    words = set(re.findall(r"\w+", place.text)) if place is not None else set()
    return _only([name for name in names if name in words])


def _place(sources: Sources, stack: tuple[SourceRange, ...]) -> Place | None:
    return sources.place(stack[0]) if stack else None


def _written_at(sources: Sources, stack: tuple[SourceRange, ...]) -> Place | None:
    """The place of a write; at the end of a chain of calls, that of its last method alone."""
    node = _node_at(sources, stack[0] if stack else None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        before = node.func.value
        if before.end_lineno == stack[0].line:
            return sources.place(replace(stack[0], column=before.end_col_offset))
    return _place(sources, stack)


def _made_at(name: str | None, sources: Sources) -> Place | None:
    """The line that gives a name of the session its value."""
    codes = [code for code in map(sources.code, sources.cells) if code is not None]
    found = made_last(codes, name) if name is not None else None
    if found is None:
        return None
    code, statement, value = found
    function = code.function(statement)
    name, columns = function.name if function is not None else "<module>", (value.col_offset, value.end_col_offset)
    return sources.place(SourceRange(code.cell.number, "", name, value.lineno, value.end_lineno, *columns))


def _node_name(node: str | None) -> str | None:
    """``relu`` for ``ReluBackward0``."""
    if node is None:
        return None
    name = _NODE.sub("", node)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if name[:1].isupper() and name.isidentifier() else name


def _what(write: Write | None, sources: Sources) -> str:
    """The write in the user's words: ``+=``, ``.mul_()``, ``optimD.step()``, ``self.act`` with inplace=True."""
    if write is None:
        return message("what_outside_python")
    spot = write.stack[0] if write.stack else None
    node = _node_at(sources, spot)
    if isinstance(node, ast.AugAssign):
        return f"`{SYMBOLS[type(node.op)]}`"
    if write.origin == "optim" and isinstance(node, ast.Call):
        return f"`{ast.unparse(node.func)}()`"
    if write.module is not None and write.origin == "nn":
        own = write.operation in ("batch_norm", "embedding")
        return f"`{write.module}`" if own else message("what_module", module=write.module)
    if write.operation == "__setitem__":
        return message("what_part_assigned")
    if write.operation == "data":
        return message("what_data_assigned")
    return f"`{write.operation}()`" if write.operation else message("what_write")


def _node_at(sources: Sources, spot: SourceRange | None) -> ast.AST | None:
    code = sources.code(spot.cell) if spot is not None else None
    if spot is None or code is None:
        return None
    node = code.at(spot)
    return node.value if isinstance(node, ast.Expr) else node


def _tensor(clash: RecordedConflict, sources: Sources) -> str | None:
    """The written tensor as the user calls it: by the text of the line, else by a path over the names."""
    write = clash.write
    missed = _how(clash) in ("unregistered", "replaced")
    if write is not None and (write.origin == "optim" or clash.kind == "detached" or missed):
        # The line calls the optimizer, not what it writes, or passes over; or it detaches what is computed of it.
        return write.name
    spot = write.stack[0] if write is not None and write.stack else None
    node = _node_at(sources, spot)
    if isinstance(node, ast.AugAssign):
        return ast.unparse(node.target)
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == (write and write.operation)
    ):
        return ast.unparse(node.func.value)
    return write.name if write is not None else None


def _overwrote(clash: RecordedConflict, what: str, tensor: str | None, node: str | None) -> str:
    write = clash.write
    if write is None and not clash.known:
        return message("changed_unfollowed")
    if write is None:
        return message("changed_outside", node=node) if node else message("changed_outside_kept")
    if write.how == "aliased":
        return message("silent_aliased", what=what, names=write.held, count=len(write.held))
    if write.how in ("unregistered", "replaced"):
        return message(write.how, tensor=tensor or message("a_tensor"), where=write.held[0])
    if write.how == "unreached":
        kind = "unreached_may_be" if clash.kind == "detached" else "unreached"
        return message(kind, tensor=tensor or message("a_tensor"))
    if clash.kind == "detached" and write.how == "constant":
        return message("constant_term")
    if write.how == "discarded":
        return message("discarded" if clash.save is None or not clash.save.stack else "discarded_partly")
    if clash.kind == "detached":
        return message("detached_part", tensor=tensor or message("a_tensor"))
    if write.how != "written":
        return message(f"silent_{write.how}", what=what)
    if write.handed:
        return message("handed_gradient", what=what)
    if clash.kind == "silent" and clash.save is None:
        return message("past_autograd", what=what)
    if write.operation == "detach_":
        return message("detached", what=what)
    if write.operation in RESHAPES:
        return message("reshaped", what=what)
    if write.origin == "optim" and tensor:
        of = {"what": what, "tensor": tensor}
        return message("overwrote_of", node=node, **of) if node else message("overwrote_kept_of", **of)
    return message("overwrote", what=what, node=node) if node else message("overwrote_kept", what=what)


def _changed_note(clash: RecordedConflict, tensor: str | None) -> str:
    """The label at the write. torch's versions are no part of it: a reader has no other use for them."""
    write = clash.write
    if write is None:
        return ""
    if clash.kind == "detached" and write.how == "as_data":
        return message("changes_detached")
    if write.how != "written":
        return message("changes_step" if write.operation == "step" else f"changes_{write.how}")
    if write.handed:
        return message("changes_handed")
    if write.operation == "detach_":
        return message("changes_detached")
    if write.operation in RESHAPES:
        return message("changes_shape")
    if write.origin == "optim" and tensor:
        return message("changes_tensor", tensor=tensor)
    if write.origin == "nn" and write.module is not None and write.operation not in ("batch_norm", "embedding"):
        return message("changes_by", module=write.module)
    return message("changes_unseen" if clash.kind == "silent" and not write.bumped else "changes")


def _how(clash: RecordedConflict) -> How:
    return clash.write.how if clash.write is not None else "written"


def _needed_note(clash: RecordedConflict) -> str:
    return message(_NEEDS.get(_how(clash), "uses_changed" if clash.kind == "silent" else "needs"))


def _saved_note(clash: RecordedConflict, node: str | None) -> str:
    if _how(clash) == "of_result":
        return message("reads_lost")
    if _how(clash) == "added_up":
        return message("stepped_by")
    if _how(clash) == "unregistered":
        return message("changes_replaced")
    if _how(clash) == "discarded":
        return message("stepped_by_rest") if clash.save is not None and clash.save.stack else ""
    if _how(clash) == "unreached":
        return message("reads_none")
    if _how(clash) == "aliased":
        return message("another_name") if clash.save is not None and clash.save.spot is not None else ""
    if node is None or clash.save is None:
        return ""
    keeps = "saves_output" if _node_name(clash.save.node) in _KEEP_OUTPUT else "saves"
    return message(keeps, node=node)


def _called(clash: RecordedConflict, sources: Sources) -> str | None:
    """The operation that kept the value as the person wrote it: ``@``, ``F.relu``, ``nn.Linear``; else torch's name."""
    if clash.save is None:
        return None
    name = _node_name(clash.save.node)
    written = _node_at(sources, clash.save.spot)
    if isinstance(written, ast.BinOp) and type(written.op) in _OPERATORS:
        return _OPERATORS[type(written.op)]
    if isinstance(written, ast.Call) and (composed := _composed(written, sources)) is not None:
        return composed
    plain = isinstance(written, ast.Call) and ast.unparse(written.func).rpartition(".")[2] in (name, "matmul")
    return _MODULES.get(name, name) if name is not None and not plain else name


def _composed(call: ast.Call, sources: Sources) -> str | None:
    """``nn.GRUCell`` where the called name is only ever bound to one: its linear parts are not what the person wrote."""
    called = ast.unparse(call.func).rpartition(".")[2]
    made = {
        ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        for code in filter(None, map(sources.code, sources.cells))
        for node in ast.walk(code.tree)
        for name, value in (bound(code, node) if isinstance(node, ast.stmt) else ())
        if name.rpartition(".")[2] == called
    }
    return f"`nn.{next(iter(made))}`" if len(made) == 1 and made <= _COMPOSED else None
