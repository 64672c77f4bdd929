"""A forward in eval mode keeps the running statistics for backward: a later one in train mode must not update those.

loss = net(x)                             loss = net(x)
net.train()                               net.train()
                                          net.bn.running_mean = net.bn.running_mean.clone()
                                          net.bn.running_var = net.bn.running_var.clone()
aux = net(y)                              aux = net(y)

F.batch_norm(x, mean, var,                F.batch_norm(x, mean if training else mean.clone(), var if training else var.clone(),
             training=training)                        training=training)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import called_name
from ...source.editor import Code, atom, dotted
from ...source.modules import module_of
from ..analysis.targets import sites
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_statistics_copied")
_STATISTICS = ("running_mean", "running_var")
_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training")


@register("silent")
def copied_statistics(problem: Problem) -> Iterator[Proposal]:
    """The statistics are replaced by copies, so that an update reaches only the copies."""
    frames, names = sites(problem, depth=8), _of_the_session(problem)
    if not frames or frames[0].event.operation not in ("batch_norm", "instance_norm"):
        return
    yield from _of_a_call(frames[0].code, frames[0].expression)
    for frame in reversed(frames) if names else ():
        if not any(isinstance(above, ast.ClassDef) for above in frame.code.parents(frame.statement)):
            yield _copied(problem, frame, names)
    for frame in frames:
        name = dotted(getattr(frame.expression, "func", None))
        if name is not None:
            yield _copied(problem, frame, [name])


def _of_a_call(code: Code, call: ast.AST) -> Iterator[Proposal]:
    """``F.batch_norm(x, mean, var, training=training)`` updates what it is handed; without training it keeps that for backward."""
    if not isinstance(call, ast.Call) or called_name(call) != "batch_norm":
        return
    if isinstance(call.func, ast.Attribute) and module_of(call.func.value) != "torch.nn.functional":
        return  # ``torch.batch_norm`` has another order of arguments
    given = {**dict(zip(_BATCH_NORM, call.args)), **{k.arg: k.value for k in call.keywords if k.arg is not None}}
    updated = [given[name] for name in _STATISTICS if name in given]
    training = given.get("training")
    if updated and training is not None and not isinstance(training, ast.Constant):
        texts = [atom(code, one) for one in updated]
        edits = [code.replace(one, f"{t} if {atom(code, training)} else {t}.clone()") for one, t in zip(updated, texts)]
        title = message("title_statistics", names=(code.text(call.func),))
        yield in_one_text(code, edits, title, message("why_copy_is_saved"), "silent_batch_norm")


def _of_the_session(problem: Problem) -> list[str]:
    """The layers whose statistics this very line updates, as the session calls them."""
    writes = [one.write for one in problem.evidence.clashes if one.write is not None]
    here = [write.module for write in writes if write.stack[-1:] == problem.write_stack[-1:]]
    return sorted({module for module in here if module is not None})


def _copied(problem: Problem, frame: Frame, names: list[str]) -> Proposal:
    code, few = frame.code, len(names) <= 2
    norm = problem.unused("norm", code, frame.statement)
    owners = names if few else [norm]
    lines = [f"{owner}.{statistic} = {owner}.{statistic}.clone()" for owner in owners for statistic in _STATISTICS]
    if not few:
        lines = [f"for {norm} in ({', '.join(names)}):", *(code.indent_step + line for line in lines)]
    title = message("title_statistics", names=tuple(names) if few else message("layers", count=len(names)))
    return in_one_text(code, [code.insert_before(frame.statement, *lines)], title, _WHY, "silent_batch_norm")
