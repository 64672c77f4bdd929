"""Edits of a call's arguments, ``retain_graph`` first of all."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator, Sequence

from ...source.dataflow import calls
from ...source.editor import Code, Edit, Overlap, dotted
from ..problem import Frame
from ..proposal import Change, texts_of


def freeing(changes: Sequence[Change], backwards: Iterable[Frame]) -> Iterator[dict[int, str]]:
    """The texts that the changes give: with ``retain_graph=True`` taken out of the backwards, and as they stand."""
    free = [
        (frame.code, frame.code.without_argument(keyword))
        for frame in backwards
        if not hasattr(frame.statement, "body")
        for call in calls(frame.statement)
        for keyword in call.keywords
        if keyword.arg == "retain_graph" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
    ]
    for extra in [free, []] if free else [[]]:
        with contextlib.suppress(Overlap):
            yield texts_of([*changes, *extra])


def with_retain(code: Code, call: ast.Call) -> Edit | None:
    """``retain_graph=True`` put into a call of backward; None where it is there already."""
    given = next((k for k in call.keywords if k.arg == "retain_graph"), None)
    if given is not None:
        value = given.value
        return None if isinstance(value, ast.Constant) and value.value is True else code.replace(value, "True")
    path = dotted(call.func) or ""
    ahead = 3 if path.endswith("grad") else 2 if path.endswith("autograd.backward") else 1  # positions before it
    if len(call.args) > ahead:
        return None
    return add_argument(code, call, "retain_graph=True")


def with_create(code: Code, call: ast.Call) -> Edit | None:
    """``create_graph=True`` put into a call of ``autograd.grad``; None where the graph is asked to be created or kept."""
    given = {k.arg for k in call.keywords}
    if not (dotted(call.func) or "").endswith("grad") or len(call.args) > 3 or given & {"create_graph", "retain_graph"}:
        return None
    return add_argument(code, call, "create_graph=True")


def add_argument(code: Code, call: ast.Call, argument: str) -> Edit:
    """One more argument at the end of a call."""
    _, end = code.span(call)
    raw = code.cell.raw
    given = [*call.args, *call.keywords]
    if not given:
        return Edit(end - 1, end - 1, argument)
    last = max(code.span(node)[1] for node in given)
    gap = raw[last : end - 1]
    return Edit(last, last, f", {argument}") if "," not in gap else Edit(end - 1, end - 1, f" {argument}")
