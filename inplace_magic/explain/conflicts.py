"""From evidence to conflicts: the three places and one plain sentence on what happened."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from ..diagnosis import Conflict, Place
from ..families import RAISED_AT_WRITE, is_of_base, overlaps_input
from ..record.evidence import Evidence, RecordedConflict, Write
from ..source.document import Sources
from ..source.editor import Code
from ..source.location import SourceRange
from .post_mortem import SYMBOLS, LiveGraph, Stale, written_by

_NODE = re.compile(r"(Backward|Backward0|Backward1|<.*>|Impl)+$")
_MOST_STALE = 5  # conflicts shown where there was no rerun
_RESHAPES = frozenset({"unsqueeze_", "squeeze_", "t_", "transpose_", "resize_", "as_strided_", "swapaxes_"})

_REFUSED = {
    "leaf": "{what} changes {tensor} in place, and {tensor} is a leaf: the very tensor whose gradient is wanted.",
    "view_of_leaf": "{what} writes into a view of a leaf, the very tensor whose gradient is wanted.",
    "multi_output_view": "{what} writes into one of several views made at once; autograd cannot follow that.",
    "no_grad_view": "{what} writes into a view that was made while gradients were off; autograd lost track of it.",
    "overlap": "{what} writes into memory that several elements share, as expand() leaves it.",
    "out_grad": "out= overwrites a tensor, which autograd cannot follow when a gradient is needed.",
    "inference": "A tensor made in inference mode has no place in a graph: autograd can neither save nor change it.",
}
_MADE = {"multi_output_view": "at once with others", "no_grad_view": "while gradients were off"}


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
    found = [_conflict(clash, family, sources, raised if i == 0 else ()) for i, clash in enumerate(clashes)]
    return tuple(found) or _bare(family, sources, raised, live or LiveGraph())


def relevant(evidence: Evidence, family: str) -> list[RecordedConflict]:
    """The clashes that belong to the error, those whose places are known first."""
    kind = "refused" if family in RAISED_AT_WRITE or family == "inference" else family
    mine = [c for c in evidence.clashes if c.kind == kind and (kind != "refused" or c.family == family)]
    others = [c for c in evidence.clashes if c not in mine and c.known and c.family != "overlap"]
    return [c for c in mine if c.known] + others if any(c.known for c in mine) else mine + others


def _conflict(clash: RecordedConflict, family: str, sources: Sources, raised: tuple[SourceRange, ...]) -> Conflict:
    if clash.kind == "refused":
        return _refused(clash, clash.family or family, sources, raised)
    need_stack = raised or (clash.need.stack if clash.need is not None else ())
    needed = _place(sources, need_stack)
    saved = _place(sources, clash.save.stack) if clash.save is not None else None
    node = _node_name(clash.save.node if clash.save is not None else None)
    if clash.kind == "second_backward":
        freed = _place(sources, clash.freed.stack) if clash.freed is not None else None
        return Conflict(
            changed=freed,
            saved=saved,
            needed=needed,
            tensor=clash.save.name if clash.save is not None else None,
            operation="backward",
            node=node,
            sentence=_freed_sentence(clash, sources),
            changed_note="freed here, by the backward before",
            saved_note="this part of the graph was made here" if saved else "",
            needed_note="goes back through it again",
        )
    changed = _place(sources, clash.write.stack) if clash.write is not None else None
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
        changed_note=_version_note(clash, tensor),
        saved_note=f"{node}'s gradient needs this value" if node else "",
        needed_note="",
    )


def _refused(clash: RecordedConflict, family: str, sources: Sources, raised: tuple[SourceRange, ...]) -> Conflict:
    place = _place(sources, (clash.write.stack if clash.write is not None else ()) or raised)
    made = _place(sources, clash.save.stack) if clash.save is not None else None
    what = _what(clash.write, sources)
    tensor = _tensor(clash, sources) or "it"
    sentence = _REFUSED[family].format(what=_capital(what), tensor=tensor)
    if is_of_base(clash.message):
        sentence = f"{_capital(what)} changed the base of a view that was made {_MADE[family]}; what is read here no longer follows it."
    if overlaps_input(clash.message):
        sentence = f"{_capital(what)} reads from the very memory that it writes."
    if family == "inference":
        return Conflict(made, place, place, clash.save.name if clash.save else None, what, None, sentence,
                        changed_note="made in inference mode", needed_note="met autograd")  # fmt: skip
    needed = _place(sources, raised) or place
    return Conflict(place, None, needed, _tensor(clash, sources), what, None, sentence, changed_note="")


def _bare(family: str, sources: Sources, raised: tuple[SourceRange, ...], live: LiveGraph) -> tuple[Conflict, ...]:
    """What the traceback and the graph that is left tell, which is less than a rerun does."""
    place = _place(sources, raised)
    if family in RAISED_AT_WRITE:
        what, tensor = written_by(raised[0] if raised else None, sources) or ("This line", None)
        sentence = _REFUSED[family].format(what=_capital(what), tensor=tensor or "a tensor")
        return (Conflict(place, None, place, tensor, what if tensor else None, None, sentence),)
    if family == "inference":
        tensor = _one_of(live.inference, place)
        return (Conflict(None, place, place, tensor, None, None, _REFUSED[family]),)
    if family == "second_backward":
        sentence = "This backward goes through a graph that an earlier backward has already freed."
        if live.entrances:
            sentence += f" Of your names, {listed(live.entrances)} lead into this graph."
            if len(live.entrances) == 1:
                sentence = sentence.replace(" lead ", " leads ")
        return (Conflict(None, None, place, _only(live.entrances), None, None, sentence),)
    known = dict.fromkeys((replace(s, shape=()) if s.names else s) for s in live.stale)
    found = [_left_stale(stale, sources, place) for stale in list(known)[:_MOST_STALE]]
    sentence = "A tensor that this backward needs was changed in place after it had been saved."
    return tuple(found) or (Conflict(None, None, place, None, None, None, sentence),)


def _left_stale(stale: Stale, sources: Sources, place: Place | None) -> Conflict:
    """A value that the failed backward left behind as something else than what was saved."""
    node = _node_name(stale.node)
    where = f" in {stale.function}()" if stale.function else ""
    tensor = stale.names[0] if stale.names else None
    changed = sources.place(stale.writes[0]) if stale.writes else None
    written = written_by(stale.writes[0], sources) if stale.writes else None
    went = ""
    if stale.version is not None and stale.saved_version is not None:
        went = f" from version {stale.saved_version} to {stale.version}"
    if written is not None:
        sentence = f"By its text, {written[0]} overwrote the value that {node} had kept for its gradient; no rerun has confirmed it."
    elif stale.names:
        memory = f"the memory of {listed(stale.names)}{where}"
        sentence = f"{node} had kept a value in {memory} for its gradient, and that was changed in place since."
    else:
        sentence = (
            f"{node} had kept a tensor of shape {stale.shape} for its gradient, and that was changed in place since."
        )
        sentence += " None of your names leads to it."
    return Conflict(
        changed=changed,
        saved=None,
        needed=place,
        tensor=tensor,
        operation=written[0] if written is not None else None,
        node=node,
        sentence=sentence,
        changed_note=f"{tensor} went{went}" if went and changed is not None else "",
        needed_note=f"{node}'s value went{went}" if went and changed is None else "",
    )


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and others``."""
    if len(names) > 2:
        return f"{names[0]}, {names[1]} and others"
    return " and ".join(names)


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def _one_of(names: Sequence[str], place: Place | None) -> str | None:
    """The name that the line mentions, if it is one."""
    words = set(re.findall(r"\w+", place.text)) if place is not None else set()
    return _only([name for name in names if name in words])


def _place(sources: Sources, stack: tuple[SourceRange, ...]) -> Place | None:
    return sources.place(stack[0]) if stack else None


def _node_name(node: str | None) -> str | None:
    """``relu`` for ``ReluBackward0``."""
    if node is None:
        return None
    name = _NODE.sub("", node)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if name[:1].isupper() and name.isidentifier() else name


def _what(write: Write | None, sources: Sources) -> str:
    """The write in the user's words: ``+=``, ``.mul_()``, ``optimD.step()``, ``self.act`` with inplace=True."""
    if write is None:
        return "an operation outside of Python"
    spot = write.stack[0] if write.stack else None
    node = _node_at(sources, spot)
    if isinstance(node, ast.AugAssign):
        return f"`{SYMBOLS[type(node.op)]}`"
    if write.origin == "optim" and isinstance(node, ast.Call):
        return f"`{ast.unparse(node.func)}()`"
    if write.module is not None and write.origin == "nn":
        return f"`{write.module}`, a module with inplace=True," if write.operation not in ("batch_norm", "embedding") else f"`{write.module}`"  # fmt: skip
    if write.operation == "__setitem__":
        return "the assignment to a part of it"
    if write.operation == "data":
        return "the assignment to `.data`"
    return f"`{write.operation}()`" if write.operation else "a write"


def _node_at(sources: Sources, spot: SourceRange | None) -> ast.AST | None:
    if spot is None or spot.cell is None or sources.cells[spot.cell].tree is None:
        return None
    code = Code(sources.cells[spot.cell])
    node = code.at(spot)
    return node.value if isinstance(node, ast.Expr) else node


def _tensor(clash: RecordedConflict, sources: Sources) -> str | None:
    """The written tensor as the user calls it: by the text of the line, else by a path over the names."""
    write = clash.write
    if write is not None and write.origin == "optim":
        return write.name  # the line calls the optimizer, not what it writes
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
    keeper = f"that {node} had kept for its gradient" if node else "that was kept for a gradient"
    if clash.write is None:
        return f"The value {keeper} was changed, by something that no Python line shows."
    if clash.write.handed:
        return f"{_capital(what)} changed a gradient that backward had handed over; others are handed the same tensor."
    if clash.kind == "silent" and clash.save is None:
        return f"{_capital(what)} changed values of the graph past autograd: the gradient does not know of it."
    if clash.write.operation in _RESHAPES:
        return f"{_capital(what)} changed the shape of the tensor {keeper}."
    whose = f" of {tensor}" if tensor and clash.write.origin == "optim" else ""
    return f"{_capital(what)} overwrote the value{whose} {keeper}."


def _version_note(clash: RecordedConflict, tensor: str | None) -> str:
    if clash.write is None or clash.save is None or not clash.write.bumped:
        return ""
    if clash.write.version <= clash.save.version:
        return ""
    return f"{tensor or 'the tensor'} went from version {clash.save.version} to {clash.write.version}"


def _freed_sentence(clash: RecordedConflict, sources: Sources) -> str:
    same = clash.freed is not None and clash.need is not None and clash.freed.stack[:1] == clash.need.stack[:1]
    if same:
        return "This part of the graph was made once, or in an earlier round, and the backward before has freed it."
    return "Both backwards go through the same part of the graph; the first one freed what it had saved."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
