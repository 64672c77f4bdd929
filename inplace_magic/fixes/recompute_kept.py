"""A prediction that an object keeps from its forward is made once more where the later loss reads it.

def forward(self, real):                  def forward(self, real):
    self.pred = self.D(self.fake)             self.pred = self.D(self.fake)

def g_step(self):                         def g_step(self):
                                              self.pred = self.D(self.fake)
    loss = softplus(-self.pred).mean()        loss = softplus(-self.pred).mean()
    loss.backward()                           loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.editor import Code, Function, dotted, names_loaded
from . import Problem, Proposal, register
from .flow import frames, reads, roots, simple, slice_of

_WHY = "The later loss gets a graph of its own, through the weights as they are by then."


@register("modified", "second_backward", rank=37)
def recompute_kept(problem: Problem) -> Iterator[Proposal]:
    saved = frames(problem, problem.save_stack)
    for code, backward in reversed(frames(problem, problem.need_stack)):
        function = code.function(backward)
        if not isinstance(function, Function) or backward not in function.body:
            continue
        used, _ = slice_of(function.body[: function.body.index(backward)], roots(backward))
        for other, statement in reversed(saved):
            kept = _kept(other, statement)
            if kept is None or other is not code or code.function(statement) is function:
                continue
            # What a constructor made once, the whole of the function is better off with anew.
            anew = getattr(other.function(statement), "name", "") == "__init__"
            readers = [s for s in (function.body if anew else used) if kept in reads(s) and (anew or simple(s))]
            if readers:
                line = " ".join(code.text(statement).split())
                yield Proposal(
                    title=f"{line} again in {function.name}()",
                    why=_WHY,
                    rule="recompute",
                    texts={code.cell.number: code.apply(code.insert_before(readers[0], line))},
                )
                return


def _kept(code: Code, statement: ast.stmt) -> str | None:
    """The attribute of ``self`` that a statement fills from attributes of ``self`` alone."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    name = dotted(statement.targets[0])
    if name is None or not name.startswith("self.") or name.count(".") != 1:
        return None
    function = code.function(statement)
    local = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)} if function is not None else set()
    local |= {
        n.id
        for s in getattr(function, "body", [])
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return name if not names_loaded([statement.value]) & (local - {"self"}) else None
