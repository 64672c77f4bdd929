"""One tensor under two names: it is changed through one of them, and read through the other as if it were not.

``raw = x``, then ``x -= mean``: both are centred. ``h = o * c.tanh_()``: whoever reads ``c`` later reads its tanh. Torch
follows such a write, so that the gradient is that of what was run; what was meant is another thing.

Proof: the very tensor under both names, values that have changed, and two readings behind the write that take part in one
backward: by the other name, and by the written one or as its result. Who asks for the gradient of a name reads by it.
"""

from __future__ import annotations

import collections
import dis
import functools
import linecache
import sys
import types
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...session.user_objects import names_in
from ...source.document import FileSource
from ...source.editor import Code
from ...source.location import user_frames
from ...source.own import is_a
from ...source.second_names import Written, is_transformation, written_at
from ...torch_private import sequence_number, unobserved
from ..author import Author, author_at
from ..observed import LiveWrite, Stack, differ
from ..operations import arguments
from .events import Call, Detector, Passing, Run
from .nodes import computed, has_plain_values, node_number, node_of

_LOOKS = 32  # at what one line writes
_PENDING = 64
_READINGS = 32  # of one tensor
_CALLERS = 4
_NODES = 64  # from a result back to what it was made of

Spot = tuple[types.CodeType, int]
_Reading = tuple[Spot, frozenset[str]]  # where a frame reads a tensor, and by which names it has it then


@dataclass(frozen=True)
class _Site:
    """A user's frame that knows what was written as ``name``, and as ``others``; ``lists`` have it several times.

    ``beside``: that the name is read beside the result says enough.
    """

    spot: Spot
    place: Written
    name: str
    others: frozenset[str]
    lists: frozenset[str]
    beside: bool

    def reading(self, frames: Sequence[tuple[Spot, dict[str, object]]], tensor: torch.Tensor) -> _Reading | None:
        """How this frame, among these, reads the tensor; None where another one does."""
        for spot, names in frames:
            if _are_one(spot[0], self.spot[0]):
                known = {self.name, *self.others, *self.lists, *self.place.results}
                if any(_holds(names.get(name), tensor) for name in known):
                    return spot, frozenset(name for name, value in names.items() if _holds(value, tensor))
        return None


@dataclass
class _Changed:
    """A write that changed values. ``readings`` are calls behind it that read them, by the number of what they made: how
    each site has done so."""

    author: Author
    operation: str
    clock: int
    sites: Sequence[_Site]
    tensor: weakref.ref[torch.Tensor]
    readings: list[tuple[int, list[_Reading | None]]] = field(default_factory=list)


class SecondNames(Detector):
    """Follows writes into what has another name, or is read on beside the result."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._places: dict[Spot, Written | None] = {}
        self._looks: collections.Counter[Stack] = collections.Counter()
        self._pending: dict[int, _Changed] = {}  # by the number of the node that the write made
        self._numbers: dict[int, int] = {}  # by what was written (id)

    # ---- the write

    def calls(self, call: Call) -> None:
        tensors = [one for one in call.written if is_a(one, torch.Tensor)]
        if len(tensors) != 1 or len(self._pending) >= _PENDING:
            return
        with unobserved():
            if not has_plain_values(tensors[0]) or not computed(tensors[0]):
                return
            frame = sys._getframe(1)
            author = author_at(frame)
            if self._looks[author.stack[:2]] >= _LOOKS:
                return
            self._looks[author.stack[:2]] += 1
            sites = self._sites(tensors[0], author.stack, frame, call.name)
            if not sites:
                return
            before = tensors[0].detach().clone()
        tensor = weakref.ref(tensors[0])
        changed = _Changed(author, call.name, self.run.tick(), sites, tensor)
        self.run.after_operation(functools.partial(self._look, before, changed))

    def _sites(self, tensor: torch.Tensor, stack: Stack, frame: types.FrameType, operation: str) -> Sequence[_Site]:
        """The frames in which somebody may read the tensor behind the write under another name, the innermost first."""
        found: list[_Site] = []
        if not any(place.matters for place in map(self._place, stack[:_CALLERS]) if place is not None):
            return found
        given_back = is_transformation(operation)  # the result of what a frame calls is the tensor
        for spot, one in zip(stack[:_CALLERS], user_frames(frame)):
            place, names = self._place(spot), dict(names_in(one))
            name = next((n for n in sorted(place.names) if names.get(n) is tensor), None) if place is not None else None
            if place is None or name is None:
                break
            others = {n for n in place.later - place.rebound - {name} if names.get(n) is tensor}
            lists = {n for n in place.collected_in(name) if type(names.get(n)) is list}
            beside = given_back and place.has_result and name not in place.rebound and name in place.later
            given_back = given_back and place.gives_back(name)
            if others or lists or beside:
                found.append(_Site(spot, place, name, frozenset(others), frozenset(lists), beside))
        return found

    def _place(self, spot: Spot) -> Written | None:
        if spot not in self._places:
            where = self.run.sources.spot(*spot)
            code = self.run.sources.code(where.cell) or _of_file(where.filename)
            node = code.at(where) if code is not None else None
            self._places[spot] = written_at(code, node) if code is not None and node is not None else None
        return self._places[spot]

    def _look(self, before: torch.Tensor, changed: _Changed) -> None:
        tensor = changed.tensor()
        with unobserved():
            number = node_number(tensor)
            if tensor is None or not number or not differ(before, tensor.detach()):
                return
            self._pending.setdefault(number, changed)  # under no_grad a write makes no node of its own
            self._numbers[id(tensor)] = number
            self.run.curious.add(self)

    # ---- the readings

    def called(self, call: Call, result: Any) -> None:
        if not self._pending:
            return
        given = [one for one in arguments(call.args, call.kwargs) if id(one) in self._numbers]
        if not given:
            return
        written = {id(one) for one in call.written}
        with unobserved():
            outputs = [one for one in (result if is_a(result, (tuple, list)) else (result,)) if is_a(one, torch.Tensor)]
            node = next((found for one in outputs if (found := node_of(one)) is not None), None)
            frames: list[tuple[Spot, dict[str, object]]] = []
            for tensor in given if node is not None else ():
                number = self._numbers[id(tensor)]
                changed = self._pending.get(number)
                if changed is None or changed.tensor() is not tensor or id(tensor) in written:
                    continue
                if len(changed.readings) < _READINGS and _comes_from(node, number):
                    frames = frames or _frames(sys._getframe(1))
                    read = [site.reading(frames, tensor) for site in changed.sites]
                    changed.readings.append((sequence_number(node), read))

    # ---- the proof

    def backward_begins(self, passing: Passing) -> None:
        if not self._pending:
            return
        numbers = {sequence_number(node) for node in passing.nodes}
        for number, changed in list(self._pending.items()):
            if number in numbers:
                readings = [read for made, read in changed.readings if made in numbers]
                tensor = changed.tensor()
                if tensor is not None and any(one is tensor for one in passing.wanted):
                    frames = _frames(sys._getframe(1))
                    asked = [site.reading(frames, tensor) for site in changed.sites]
                    readings += [asked] if any(asked) else []
                names, bound = self._read(changed, readings)
                if names:
                    self._report(changed, names, bound, passing)
                del self._pending[number]
        if not self._pending:
            self._numbers.clear()
            self.run.curious.discard(self)

    def _read(self, changed: _Changed, readings: Sequence[Sequence[_Reading | None]]) -> tuple[tuple[str, ...], Stack]:
        """The names by which what was changed is read as something else; where one of them is bound."""
        for number, site in enumerate(changed.sites if len(readings) > 1 else ()):
            elsewhere = sum(known[number] is None for known in readings)
            read = collections.Counter(dict.fromkeys(site.place.returned, elsewhere))
            as_result = False
            for one in filter(None, (known[number] for known in readings)):
                place = self._place(one[0])
                if place is not None:
                    names, result = site.place.read_by(place.node)
                    read.update(names & one[1])
                    read.update(filter(None, map(place.items_of, names & one[1])))
                    as_result = as_result or result or bool(names & one[1] & site.place.results)
            others = {name for name in site.others if read[name] and (read[site.name] or as_result)}
            lists = {name for name in site.lists if read[name] > 1}
            beside = {site.name} if site.beside and read[site.name] and as_result else set[str]()
            if others or lists or beside:
                bound = next(filter(None, (_binding(site.spot, name) for name in sorted(others))), ())
                return tuple(sorted(others | lists or beside)), bound
        return (), ()

    def _report(self, changed: _Changed, names: tuple[str, ...], bound: Stack, passing: Passing) -> None:
        author = changed.author
        write = LiveWrite(author.stack, changed.clock, changed.operation, author.origin, 0, "aliased")
        write.held, write.module = names, author.module
        self._note_proven(write, passing.event, bound, changed.clock)


def _frames(frame: types.FrameType) -> list[tuple[Spot, dict[str, object]]]:
    """The user's frames around one of ours, with what their names are."""
    return [((one.f_code, one.f_lasti), dict(names_in(one))) for one in user_frames(frame)]


def _comes_from(node: Any, number: int) -> bool:
    """Whether what a call made goes back to the node of this number, by what the call itself has made on the way."""
    todo, seen = [node], 0
    while todo and seen < _NODES:
        seen += 1
        for following, _ in todo.pop().next_functions:
            if following is not None and (found := sequence_number(following)) >= number:
                if found == number:
                    return True
                todo.append(following)
    return False


def _holds(value: object, tensor: torch.Tensor) -> bool:
    """Whether a value is the very tensor, or a list that has it; no code of the user's is asked."""
    return value is tensor or (type(value) is list and any(item is tensor for item in value))


def _are_one(code: types.CodeType, other: types.CodeType) -> bool:
    """Whether two codes are one, or parts of one cell: IPython compiles its last expression by itself."""
    top = "<module>"
    return code is other or (code.co_name == other.co_name == top and code.co_filename == other.co_filename)


def _binding(spot: Spot, name: str) -> Stack:
    """The last instruction ahead of one that binds a name."""
    code, lasti = spot
    stores = [
        one.offset
        for one in dis.get_instructions(code)
        if one.opname.startswith("STORE_") and one.argval == name and one.offset < lasti
    ]
    return ((code, stores[-1]),) if stores else ()


@functools.lru_cache(maxsize=64)
def _of_file(path: str) -> Code | None:
    """A module that is no document of the session."""
    document = FileSource(0, "".join(linecache.getlines(path)), path=path)
    return Code(document) if document.tree is not None else None
