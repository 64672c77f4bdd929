"""Batch norm in eval mode saves its running statistics; before a forward in train mode updates them, they are replaced
by copies, so that the update reaches only the copies.

    bn.eval()                         bn.eval()
    clean = bn(x)                     clean = bn(x)
    bn.train()                        bn.train()
    unused = bn(other)                bn.running_mean = bn.running_mean.clone()
                                      bn.running_var = bn.running_var.clone()
                                      unused = bn(other)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.editor import Code, dotted
from ..analysis.targets import Site, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_STATISTICS = ("running_mean", "running_var")
_WHY = message("why_statistics_copied")


@register("silent")
def copied_statistics(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.operation not in ("batch_norm", "instance_norm"):
        return
    frames = sites(problem, depth=8)
    names = _of_the_session(problem)
    for frame in reversed(frames) if names else ():
        if not _in_a_class(frame):
            yield _proposal(frame.code, frame.statement, names)
    for frame in frames:
        node = frame.node.value if isinstance(frame.node, ast.Expr) else frame.node
        name = dotted(node.func) if isinstance(node, ast.Call) else None
        if name is not None:
            yield _proposal(frame.code, frame.statement, [name])


def _in_a_class(frame: Site) -> bool:
    return any(isinstance(above, ast.ClassDef) for above in frame.code.parents(frame.statement))


def _of_the_session(problem: Problem) -> list[str]:
    """The layers whose statistics this very line updates, as the session calls them."""
    stack = problem.write_stack
    writes = [c.write for c in problem.evidence.clashes if c.kind == "silent" and c.write is not None]
    return sorted({w.module for w in writes if w.module is not None and w.stack[-1:] == stack[-1:]})


def _proposal(code: Code, statement: ast.stmt, names: list[str]) -> Proposal:
    if len(names) <= 2:
        lines = [f"{name}.{statistic} = {name}.{statistic}.clone()" for name in names for statistic in _STATISTICS]
        title = f"{lines[0]} and {_STATISTICS[1]}" if len(names) == 1 else f"{lines[0]} and {len(lines) - 1} more"
    else:
        lines = [
            f"for norm in ({', '.join(names)}):",
            *(f"{code.indent_step}norm.{statistic} = norm.{statistic}.clone()" for statistic in _STATISTICS),
        ]
        title = f"copies of the running statistics of {len(names)} layers"
    return in_one_text(code, [code.insert_before(statement, *lines)], title, _WHY, "silent_batch_norm")
