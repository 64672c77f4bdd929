"""A value is cut off in the expression that reads it.

critic_loss(real, fake).backward()        critic_loss(real, fake.detach()).backward()

self.avg = 0.9 * self.avg + r             self.avg = 0.9 * self.avg.detach() + r

mix = e * real + (1 - e) * fake           mix = e * real + (1 - e) * fake.detach().requires_grad_()
grad(critic(mix).sum(), mix)              grad(critic(mix).sum(), mix)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...record.evidence import Edge
from ...source.dataflow import binds
from ...source.editor import Edit, atom
from ..analysis.backward_calls import asked_for_gradients, asks_for_gradients
from ..analysis.points import Use, alike, detached, uses
from ..problem import Problem, member
from ..proposal import Change, Proposal
from .candidates import candidates


def at_uses(
    problem: Problem, edges: Sequence[Edge], form: str, why: str, *, carried: bool = False
) -> Iterator[Proposal]:
    """Each edge cut at the expression that reads the value. ``carried``: whatever else reads it there reads an old one too."""
    read = [use for edge in edges for use in uses(problem, edge)]
    if carried:
        read = [same for use in read for same in alike(use)]
    found = {(id(use.frame.code), use.frame.code.span(use.node)): use for use in read}
    if any(_may_be_none(problem, use) for use in found.values()):
        return
    changes = [(use.frame.code, edit) for use in found.values() if (edit := _cut(use)) is not None]
    changes += [change for edge in edges if not uses(problem, edge) for change in _where_made(problem, edge)]
    yield from candidates(problem, changes, form, why)
    tensors = [(edge, use) for edge in edges for use in uses(problem, edge) if use.holder.shape == "Tensor"]
    asked = {use.frame.code.span(use.node) for edge, use in tensors if _asked(problem, edge)}
    if not asked and asks_for_gradients(problem, elsewhere=True):
        asked = {use.frame.code.span(use.node) for _, use in tensors}
    if asked:
        changes = [
            (c, replace(e, text=f"{e.text}.requires_grad_()") if (e.start, e.end) in asked else e) for c, e in changes
        ]
        yield from candidates(problem, changes, form, why)


def _asked(problem: Problem, edge: Edge) -> bool:
    """Whether a gradient is asked of what is made from the value, so that it has to require one without it, too."""
    return any(binds(frame.statement) & asked_for_gradients(frame) for frame in problem.frames(edge.used))


def _may_be_none(problem: Problem, use: Use) -> bool:
    """Whether the value is None at first, which a run that starts from what the failed one has left does not meet."""
    holder = use.holder
    path = f".{holder.path}" if holder.of_object else holder.path
    return member(path) in problem.none_at_first


def _cut(use: Use) -> Edit | None:
    code, above = use.frame.code, use.frame.code.parent(use.node)
    if isinstance(above, ast.Subscript) and above.value is use.node:
        return code.behind(above, ".detach()")  # one item of what is held
    new = detached(atom(code, use.node), use.holder.shape)
    return None if new is None else code.replace(use.node, new)


def _where_made(problem: Problem, edge: Edge) -> Iterator[Change]:
    """``f(g(x))``, where no name ever held what ``g`` made."""
    for user, maker in zip(problem.frames(edge.used), problem.frames(edge.made)):
        node, within_use = maker.node, user.code is maker.code and maker.node is not user.node
        if within_use and isinstance(node, ast.expr) and any(inner is node for inner in ast.walk(user.node)):
            yield maker.code, maker.code.behind(node, ".detach()")
            return
