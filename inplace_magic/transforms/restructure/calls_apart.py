"""Two calls of one statement get a statement each, so that something can stand between them, or they can change places.

d, g = step(opt_d, loss_d), step(opt_g, loss_g)      d = step(opt_d, loss_d)
                                                     g = step(opt_g, loss_g)

return self.step_d(x), self.step_g(x)                first = self.step_d(x)
                                                     second = self.step_g(x)
                                                     return first, second

By itself it mends nothing: what does is proposed for the text that it leaves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import calls, handed_on, reads
from ...source.editor import Code
from ..problem import Problem, shared
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_calls_apart")
_AT_ONCE = (ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.Call, ast.keyword)


@register("modified", "second_backward")
def calls_apart(problem: Problem) -> Iterator[Proposal]:
    same = shared(problem.lost, problem.needed)
    if not same:
        return
    code, statement, both = same[-1][0].code, same[-1][0].statement, [frame.node for frame in same[-1]]
    if not all(isinstance(n, ast.Call) and _made_at_once(code, statement, n) for n in both):
        return
    (begin, end), (start, _) = map(code.span, both)
    made = [code.span(one)[1] for one in calls(statement)]
    if any(last <= start and not begin < last <= end for last in made):
        return  # another call would change its place
    pairs = handed_on(statement)
    if {*both} <= {value for _, value in pairs} and not _read_anew(pairs):
        lines = [f"{code.text(target)} = {code.text(value)}" for target, value in pairs]
        edits = [code.insert_before(statement, *lines[:-1]), code.replace(statement, lines[-1])]
    else:
        names = [problem.unused(name, code, statement) for name in ("first", "second")]
        lines = [f"{name} = {code.text(call)}" for name, call in zip(names, both)]
        edits = [code.insert_before(statement, *lines), *map(code.replace, both, names)]
    yield in_one_text(code, edits, lines[0], _WHY, "restructure: calls apart")


def _made_at_once(code: Code, statement: ast.stmt, call: ast.AST) -> bool:
    """Whether a call is made once where its statement runs: not in a comprehension, nor behind a condition."""
    within = (above for above in code.parents(call) if statement in code.parents(above))
    return all(isinstance(above, _AT_ONCE) for above in within)


def _read_anew(pairs: list[tuple[ast.expr, ast.expr]]) -> bool:
    """Whether a value of one assignment would be read, where it was the old one that was read: ``a, b = f(b), g(a)``."""
    bound = [ast.unparse(target) for target, _ in pairs]
    return any(reads(value) & {*bound[:at]} for at, (_, value) in enumerate(pairs))
