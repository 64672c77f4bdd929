"""What is known about one failure (places, conflicts, fixes), as frozen plain records.

Nothing here holds a live object of the session; a record can be kept, pickled and turned into json.
"""

from __future__ import annotations

import math
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .message import Message, kind_of, read_message

Gradients = Literal["same", "truncated", "different", "unknown"]


def shown_path(path: str) -> str:
    """A path relative to the working directory if it lies inside of it, else as it is."""
    try:
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(os.getcwd()))
    except (OSError, ValueError):
        return path
    return path if inside.startswith(os.pardir) else inside


@dataclass(frozen=True)
class Place:
    """A line of the user's own code.

    ``cell`` is the execution count, or None where the code lies in a file (then ``filename`` is set). ``line`` is
    1-based, in the cell as the user sees it, magics counted. ``columns`` are 0-based character offsets of the
    expression in ``text``, which has no indent (end exclusive; where it goes on in the next line, the line's end), or
    None if unknown.
    """

    cell: int | None
    line: int
    text: str
    filename: str | None = None
    function: str | None = None
    columns: tuple[int, int] | None = None

    @property
    def label(self) -> str:
        """``In[3]:15`` or ``model.py:15``, as a person reads it."""
        if self.cell is not None:
            return f"In[{self.cell}]:{self.line}"
        return f"{shown_path(self.filename) if self.filename else '?'}:{self.line}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "cell": self.cell,
            "line": self.line,
            "text": self.text,
            "filename": self.filename,
            "function": self.function,
            "columns": None if self.columns is None else list(self.columns),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Place:
        columns = data.get("columns")
        named = {name: data[name] for name in ("cell", "line", "text", "filename", "function")}
        return cls(**named, columns=None if columns is None else (columns[0], columns[1]))


@dataclass(frozen=True)
class Conflict:
    """One tensor that backward needed and that was no longer what had been saved.

    Of a freed graph, ``changed`` is the backward that freed it; where that is the very line that needs it again, in a
    loop, it is the line that takes the graph from one iteration into another.

    ``changed_note``, ``saved_note`` and ``needed_note`` say in a few words what happened at each place
    ("x went from version 0 to 1", "relu's gradient needs this output", "needed here"). ``calls``: where ``changed`` and
    ``needed`` lie in one function that was called for each, these two calls.
    """

    changed: Place | None
    saved: Place | None
    needed: Place | None
    tensor: str | None
    operation: str | None
    node: str | None
    sentence: str
    changed_note: str = ""
    saved_note: str = ""
    needed_note: str = ""
    carries: str = ""
    calls: tuple[Place, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        def place(p: Place | None, note: str) -> dict[str, Any] | None:
            return None if p is None else p.to_dict() | {"note": note}

        return {
            "changed": place(self.changed, self.changed_note),
            "saved": place(self.saved, self.saved_note),
            "needed": place(self.needed, self.needed_note),
            "tensor": self.tensor,
            "operation": self.operation,
            "node": self.node,
            "sentence": self.sentence,
            "changed_note": self.changed_note,
            "saved_note": self.saved_note,
            "needed_note": self.needed_note,
            "carries": self.carries,
            "calls": [place.to_dict() for place in self.calls],
            "messages": _messages(self),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conflict:
        places: dict[str, Any] = {name: _place(data[name]) for name in ("changed", "saved", "needed")}
        plain = ("tensor", "operation", "node", "sentence", "changed_note", "saved_note", "needed_note", "carries")
        calls = tuple(Place.from_dict(call) for call in data.get("calls", ()))
        return cls(**places, **{name: _text(data, name) for name in plain}, calls=calls)


def place_of_items(path: str) -> str:
    """``bank[…].h`` for ``bank[3].h``: all items of a container in one."""
    return re.sub(r"\[\d+\]", "[…]", path)


@dataclass(frozen=True)
class LiveChange:
    """A change of one live object that goes with a fix, so that what is already built need not be built again.

    ``path`` is an expression over the user's names (``net.act``, ``attn.M``). ``kind`` is ``"set"`` (the attribute
    ``attribute`` gets ``value``), ``"detach"`` (the tensor, or each tensor of the container, is cut off from its
    graph) or ``"clone"`` (the tensor is replaced by its own copy).
    """

    kind: Literal["set", "detach", "clone"]
    path: str
    attribute: str | None = None
    value: bool | int | float | str | None = None

    @property
    def text(self) -> str:
        """The change as the line of code that does it."""
        if self.kind == "set":
            return f"{self.path}.{self.attribute} = {self.value!r}"
        return f"{self.path} = {self.path}.{self.kind}()"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "attribute": self.attribute, "value": self.value}


@dataclass(frozen=True)
class Fix:
    """A rewrite that has been tried.

    ``cells`` maps execution count to the whole new source of that cell; ``files`` maps a file's path to its new text.
    ``run`` lists the cells that have to run again, in order, the failing one last. ``verified`` is True only if the
    rewritten cells ran past the failure without our hooks; False where they then end with another error that the code
    as written has as well. ``gradients`` is measured against the values as saved;
    ``untrained`` are leaves, those that optimizers step if there are any, that get no gradient any more. ``changes`` are
    clauses: what a person reads otherwise after this fix than after the code as written ("prints 0.742 instead of
    1.126", "a.grad is None afterwards"). ``gradients`` is "same" only where there are none. ``once``: the error with which
    the failing cell ends where it is run a second time in this session, whatever its text; empty if it does not.
    """

    title: str
    why: str
    rule: str
    diff: str
    cells: Mapping[int, str]
    verified: bool
    gradients: Gradients
    proof: str = ""
    run: tuple[int, ...] = ()
    live: tuple[LiveChange, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    untrained: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    once: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "why": self.why,
            "rule": self.rule,
            "diff": self.diff,
            "cells": {str(n): text for n, text in self.cells.items()},
            "files": dict(self.files),
            "run": list(self.run),
            "live": [change.text for change in self.live],
            "live_changes": [change.to_dict() for change in self.live],
            "verified": self.verified,
            "gradients": self.gradients,
            "untrained": list(self.untrained),
            "changes": list(self.changes),
            "proof": self.proof,
            "once": self.once,
            "messages": _messages(self),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fix:
        plain = ("title", "why", "rule", "diff", "verified", "gradients", "proof", "untrained", "changes")
        return cls(
            **{name: _text(data, name) for name in plain},
            cells=_by_number(data["cells"]),
            files=dict(data["files"]),
            run=tuple(data["run"]),
            live=tuple(LiveChange(**change) for change in data["live_changes"]),
            once=_text(data, "once") if "once" in data else "",
        )


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What is known about one failure, best fix first. ``changed``, ``saved`` and ``needed`` are the first conflict's.

    ``sources`` and ``cell_ids`` give, by execution count, the text that was diagnosed and the front end's id of every
    cell that a place or a fix mentions; ``files`` the same by path, for files that a fix rewrites. ``notes`` are single lines that a person should read: what was not done and
    why. ``seconds`` is the time from the error to this record. ``off`` is how far off the gradients are that are
    silently wrong: by leaf, relative to those from the values as they were saved, as far as it was measured.
    """

    family: str
    headline: str
    cell: int | None
    conflicts: tuple[Conflict, ...] = ()
    fixes: tuple[Fix, ...] = ()
    notes: tuple[str, ...] = ()
    sources: Mapping[int, str] = field(default_factory=dict)
    cell_ids: Mapping[int, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    off: Mapping[str, float] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def changed(self) -> Place | None:
        return self.conflicts[0].changed if self.conflicts else None

    @property
    def saved(self) -> Place | None:
        return self.conflicts[0].saved if self.conflicts else None

    @property
    def needed(self) -> Place | None:
        return self.conflicts[0].needed if self.conflicts else None

    @property
    def sentence(self) -> str:
        return self.conflicts[0].sentence if self.conflicts else ""

    @property
    def may_be_meant(self) -> bool:
        """Whether it tells of what a person may have written on purpose: a part of what is trained that is detached, a term of a
        loss that is computed without gradients, a leaf whose gradient is read and is None as a detach has cut it off,
        gradients that nothing uses."""
        return kind_of(self.sentence) in (
            "detached_part",
            "constant_term",
            "unreached_may_be",
            "discarded",
            "discarded_partly",
        )

    def __repr__(self) -> str:
        """The report, as a terminal shows it."""
        from .report import text

        return text.render(self, width=100, color=False, whole=True)

    def _repr_html_(self) -> str:
        from .report import html

        return html.render(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain json-ready data; also the payload of ``application/vnd.inplace-magic.v1+json``."""

        def place(p: Place | None) -> dict[str, Any] | None:
            return None if p is None else p.to_dict()

        return {
            "version": 1,
            "id": self.id,
            "family": self.family,
            "headline": self.headline,
            "sentence": self.sentence,
            "seconds": self.seconds,
            "cell": self.cell,
            "notes": list(self.notes),
            "off": {leaf: error if math.isfinite(error) else None for leaf, error in self.off.items()},
            "changed": place(self.changed),
            "saved": place(self.saved),
            "needed": place(self.needed),
            "conflicts": [c.to_dict() for c in self.conflicts],
            "fixes": [f.to_dict() for f in self.fixes],
            "sources": {str(n): text for n, text in self.sources.items()},
            "cell_ids": {str(n): i for n, i in self.cell_ids.items()},
            "files": dict(self.files),
            "messages": _messages(self),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Diagnosis:
        """The very diagnosis of which ``to_dict`` made this, by way of json or not. Raises KeyError for what it is not."""
        return cls(
            **{name: _text(data, name) for name in ("family", "headline", "cell", "notes", "seconds", "id")},
            conflicts=tuple(Conflict.from_dict(conflict) for conflict in data["conflicts"]),
            fixes=tuple(Fix.from_dict(fix) for fix in data["fixes"]),
            sources=_by_number(data["sources"]),
            cell_ids=_by_number(data["cell_ids"]),
            files=dict(data["files"]),
            off={leaf: math.inf if error is None else error for leaf, error in data["off"].items()},
        )


def _messages(record: Any) -> dict[str, Any]:
    """The kinds and arguments of a record's sentences, by its fields, so that they can be said in another language."""
    found: dict[str, Any] = {}
    for one in fields(record):
        value = getattr(record, one.name)
        texts = value if isinstance(value, tuple) else (value,)
        if any(isinstance(text, Message) for text in texts):
            kinds = [text.to_dict() if isinstance(text, Message) else None for text in texts]
            found[one.name] = kinds if isinstance(value, tuple) else kinds[0]
    return found


def _text(data: Mapping[str, Any], name: str) -> Any:
    """A field as it was, its sentences with their kinds."""
    value, kinds = data[name], data.get("messages", {}).get(name)
    if isinstance(value, (list, tuple)):
        return tuple(_message(kind, text) for kind, text in zip(kinds or [None] * len(value), value))
    return _message(kinds, value)


def _message(kind: Mapping[str, Any] | None, text: Any) -> Any:
    try:
        return text if kind is None else read_message(kind)
    except KeyError:  # written by another version of ours
        return text


def _place(data: Mapping[str, Any] | None) -> Place | None:
    return None if data is None else Place.from_dict(data)


def _by_number(texts: Mapping[str, str]) -> dict[int, str]:
    return {int(number): text for number, text in texts.items()}
