"""A value that was computed once and is used in every round is taken without its history.

advantages = gae(rewards, critic(state))      advantages = gae(rewards, critic(state))
                                              advantages = advantages.detach()
for _ in range(epochs):                       for _ in range(epochs):
    loss = (ratio() * advantages).mean()          loss = (ratio() * advantages).mean()
    loss.backward()                               loss.backward()

self.x = torch.cat(columns)                   self.x = torch.cat(columns).detach()

The second form is for what a constructor made and an object keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.editor import Code, Function, atom, dotted
from . import Problem, Proposal, register
from .carried_state import detached
from .flow import Earlier, assigned, binds, computed_once, frames, live_in, roots, value_reads, without_retain
from .move_forward import all_names, chain

_WHY = "What was computed once counts as given: no gradient goes back into it."


@register("second_backward", rank=15)
def cut_once(problem: Problem) -> Iterator[Proposal]:
    found = computed_once(problem)
    if found is None or found.loop is None:
        return
    kinds = all_names(problem)
    made = {name for statement in chain(problem, found) for name in binds(statement)}
    names = sorted(name for name in made & live_in(found.body) & kinds.keys() if not _only_added(found, name))
    if not names:
        return
    code = found.code
    line = f"{', '.join(names)} = {', '.join(detached(name, kinds[name]) for name in names)}"
    edits = [code.insert_before(found.loop, line), *without_retain(code, found.body)]
    yield Proposal(line, _WHY, "cut_once", {code.cell.number: code.apply(*edits)})


def _only_added(found: Earlier, name: str) -> bool:
    """Whether the value is but a term of the loss: without its history it would be a constant there."""
    losses = roots(found.need)
    terms = [s for s in found.body if name in value_reads(s)]
    return bool(terms) and all(
        (s is found.need or bool(binds(s) & losses)) and _adds(found.code, s, name) for s in terms
    )


def _adds(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether each use is added to the rest, on its own: ``loss + 0.1 * l2.mean()``."""
    uses = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
    return all(_is_term(code, use) for use in uses)


def _is_term(code: Code, node: ast.AST) -> bool:
    above = code.parent(node)
    if isinstance(above, ast.Attribute) or (isinstance(above, ast.Call) and above.func is node):
        return _is_term(code, above)
    if not isinstance(above, (ast.BinOp, ast.AugAssign)):
        return False
    if isinstance(above.op, (ast.Add, ast.Sub)):
        return True
    other = [side for side in ast.iter_child_nodes(above) if isinstance(side, ast.expr) and side is not node]
    return all(isinstance(side, ast.Constant) for side in other) and _is_term(code, above)


@register("second_backward", rank=36)
def cut_kept(problem: Problem) -> Iterator[Proposal]:
    """Where the object that keeps the value keeps it."""
    if computed_once(problem) is None:
        return
    for code, made in reversed(frames(problem, problem.save_stack)):
        function = code.function(made)
        if not isinstance(function, Function):
            return
        tainted: set[str] = set()
        for statement in function.body:
            if made is not statement and made not in list(ast.walk(statement)) and not value_reads(statement) & tainted:
                continue
            tainted |= binds(statement)
            kept = [t for t in assigned(statement) if isinstance(t, ast.Attribute)]
            if not isinstance(statement, ast.Assign) or len(kept) != 1 or len(assigned(statement)) != 1:
                continue
            value = f"{atom(code, statement.value)}.detach()"
            yield Proposal(
                title=f"{dotted(kept[0])} = {' '.join(value.split())}",
                why=_WHY,
                rule="cut_once",
                texts={code.cell.number: code.apply(code.replace(statement.value, value))},
            )
            return
