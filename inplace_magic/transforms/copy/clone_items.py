"""What a list or dict holds of the memory of other tensors is copied where it is put there.

ema = {n: p.detach() for n, p in named}   ema = {n: p.detach().clone() for n, p in named}
shadow[n] = p.data                        shadow[n] = p.data.clone()
before = net.state_dict()                 before = {key: value.clone() for key, value in net.state_dict().items()}
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import gone_through, loop_of
from ...source.dataflow import called_name
from ...source.editor import Code, Edit, dotted
from ..analysis.meant import reads_itself
from ..analysis.meetings import updates_weights
from ..analysis.targets import Site, written_here
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register
from .clone_alias import copied, is_detached, shares

_WHY = message("why_memory_apart")


@register("modified", "silent")
def clone_items(problem: Problem) -> Iterator[Proposal]:
    write, event = written_here(problem), problem.clash.write
    name = _container(write) if write is not None else None
    if write is None or event is None or name is None:
        return
    of_weights, itself = updates_weights(problem), reads_itself(write, event.held)
    if of_weights and not itself:
        return  # an update, by another look at what it updates
    put = [
        (code, value, edit) for code, value in _put(problem, write, name) if (edit := _copied(code, value)) is not None
    ]
    for code, value, edit in put[:1]:
        title = " ".join(code.edited(code.statement(value), [edit]).split())
        edits = tuple((where, one) for where, _, one in put)
        form = "clone_alias: of itself" if itself else "clone_alias"
        yield Proposal(title, _WHY, form, edits, meant=itself or is_detached(value))


def _container(write: Site) -> str | None:
    """The list or dict that the written tensor is an item of."""
    if write.root_text is None or isinstance(write.target, ast.Subscript):
        return write.root_text
    loop = loop_of(write.code, write.statement, write.root_text)
    given = gone_through(loop, write.root_text) if loop is not None else None
    of_dict = isinstance(given, ast.Call) and called_name(given) in ("items", "values")
    through = given.func.value if of_dict and isinstance(given.func, ast.Attribute) else given  # type: ignore[union-attr]
    return dotted(through) if through is not None else None


def _put(problem: Problem, write: Site, name: str) -> Iterator[tuple[Code, ast.expr]]:
    """What a container was made of, and what was put into it."""
    for code, binding in problem.bindings(write.code, name, write.statement):
        yield from ((code, value) for value in _items(binding.value))
    for code, node in problem.nodes(ast.Assign):
        if any(isinstance(one, ast.Subscript) and code.text(one.value) == name for one in node.targets):
            yield code, node.value
    for code, call in problem.nodes(ast.Call):
        if called_name(call) == "append" and len(call.args) == 1 and code.text(call.func) == f"{name}.append":
            yield code, call.args[0]


def _items(made: ast.expr | None) -> list[ast.expr]:
    match made:
        case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value) | ast.DictComp(value=value):
            return [value]
        case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
            return values
        case ast.Call(args=[of]) if called_name(made) in ("list", "tuple", "dict"):
            return _items(of)
    return [made] if made is not None and called_name(made) == "state_dict" else []


def _copied(code: Code, value: ast.expr) -> Edit | None:
    if called_name(value) == "state_dict":
        return code.replace(value, f"{{key: value.clone() for key, value in {code.text(value)}.items()}}")
    return copied(code, value) if shares(value) else None
