"""A replay: some cells run once more in a sandbox, watched; what was seen becomes plain records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..families import RAISED_AT_WRITE, family_of
from ..gradients.backward import GradientTrace, graph_of
from ..outcome.capture import Printed, outcome
from ..session.names import Names, graph_holders
from ..session.shell import Shell
from ..source.location import SourceRange, error_stack
from ..source.sources import Sources
from ..torch_private import sequence_number, unobserved
from . import evidence as ev
from .conflict_records import records_of, spots
from .plan import SHORT_WORK, RecordOptions, ReplayPlan, StopRule, far_enough
from .recorder import Recorder
from .run_cells import ended_by_effect, error_fields, light_steps, names_of, prepare, run, with_steps
from .silent.events import REFERENCE
from .silent.stream import EventStream

_RUNAWAY = 4  # times as many passes as the run that it is compared with, and a replay is ended


def record(
    shell: Shell,
    sources: Sources,
    plan: ReplayPlan,
    reach: StopRule,
    look: RecordOptions | None = None,
    tell: Callable[[ev.Evidence], None] | None = None,
) -> ev.Evidence:
    """Runs the plan under the recorder. To be called inside a sandbox: it changes the session.

    Where it has turned out to be long by the first conflict, what is known by then is told by ``tell``: early, at the end
    of the backward that met it, which is enough for its lines; and when the next backward begins, which is enough to look
    for a fix. Then it continues to ``far_enough`` passes.
    """
    look = look or RecordOptions()
    light = light_steps(look)
    options: dict[str, Any] = {"update_leaves": look.update_leaves, "keep_graphs": look.keep_graphs, "light": light}
    recorder = EventStream(sources, REFERENCE, **options) if look.hidden else Recorder(sources, **options)
    holders: list[tuple[str, Any]] = []
    brought: dict[str, None] = {}

    def around(event: ev.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]) -> tuple[Any, bool]:
        begun.setdefault(event.stack, event.index)
        result, given_up = recorder.around_backward(event, roots, call)
        if given_up:
            _, _, nodes = graph_of(roots)
            brought.update((path, None) for path, node in holders if node in nodes)
        return result, given_up

    begun: dict[tuple[SourceRange, ...], int] = {}  # the first pass from each place
    first: int | None = None  # the pass of the first conflict
    far = 0  # the passes after which a long run has gone far enough, once that is known
    told_early = told = False

    def conflict() -> int | None:
        nonlocal first, far
        if first is None:
            known = next((c for c in recorder.conflicts.found if c.known), None)
            if known is not None:
                need = known.need
                first = need.index if need is not None else trace.done
                far = far_enough(first, need is not None and begun.get(need.stack, first) < first)
        return first

    def long() -> bool:
        return recorder.work > SHORT_WORK and not reach.whole

    def enough(done: int, event: ev.Backward) -> bool:
        nonlocal told_early
        if tell is not None and not told_early and conflict() is not None and long():
            told_early = True
            with unobserved():
                tell(evidence(finished=False, early=True))
        if reach.exactly and reach.passes is not None:  # to be compared with a run that ended there
            return done >= reach.passes
        return conflict() is not None and done >= far and (told or long())

    def gone_on(done: int) -> None:
        nonlocal told
        met = conflict()
        if tell is not None and not told and met is not None and met < done < far and long():
            told = True
            tell(evidence(finished=False))

    def evidence(error: BaseException | None = None, finished: bool = True, early: bool = False) -> ev.Evidence:
        names = Names(names_of(shell, plan))
        return ev.Evidence(
            cells=plan.cells,
            fresh=plan.fresh,
            clashes=(*(clashes := records_of(recorder, names)), *_unheard(error, clashes, sources)),
            passes=trace.passes(names.of),
            carriers=tuple(brought),
            inplace_modules=tuple(names.inplace),
            inference_tensors=tuple(names.inference),
            seconds=time.monotonic() - start,
            finished=finished,
            first=conflict(),
            far=far,
            early=early,
            outcome=outcome(names_of(shell, plan), printed.text, recorder.value_of) if over else None,
            work=recorder.work,
            **error_fields(error, sources),
        )

    trace = GradientTrace(
        sources, around=around, enough=enough, gone_on=gone_on, conflict=conflict, tick=recorder.tick, inert=look.inert
    )
    printed, over = Printed(), False
    start = time.monotonic()
    kept = prepare(shell, plan)
    if not plan.fresh:
        holders.extend(graph_holders(shell.user_ns))  # not the local ones of a frame: they cannot be cut by name
    listeners = with_steps(light, look, [trace.listening(), recorder])
    error, finished = run(shell, sources, plan, listeners, printed, known=lambda: conflict() is not None)
    over = True
    if ended_by_effect(error):  # what was recorded before it stands
        error, finished = None, False
    result = evidence(error, finished)
    del kept
    return result


def _unheard(
    error: BaseException | None, clashes: tuple[ev.RecordedConflict, ...], sources: Sources
) -> Iterator[ev.RecordedConflict]:
    """A refusal from inside torch, of which no call from Python tells (a Function that marks a leaf as dirty)."""
    family = family_of(error)
    if error is None or family not in RAISED_AT_WRITE or any(c.family == family for c in clashes):
        return
    write = ev.Write(0, spots(error_stack(error), sources))
    yield ev.RecordedConflict(kind="refused", write=write, family=family, message=str(error))


def listen(
    shell: Shell,
    sources: Sources,
    plan: ReplayPlan,
    reach: StopRule,
    look: RecordOptions,
    change: Callable[[], None] | None = None,
) -> ev.Evidence:
    """Runs the plan under plain autograd and only listens to the gradients. To be called inside a sandbox."""
    light = light_steps(look)

    def enough(done: int, event: ev.Backward) -> bool:
        if reach.passes is None or done < reach.passes:
            return False
        return reach.exactly or done >= _RUNAWAY * (reach.passes + 1)

    trace = GradientTrace(sources, enough=enough, conflict=lambda: reach.conflict, inert=look.inert)
    printed, marks = Printed(), _Mark()
    start = time.monotonic()
    kept = prepare(shell, plan)
    if change is not None:
        change()
    holders = [] if plan.fresh else graph_holders(shell.user_ns)
    error, finished = run(shell, sources, plan, with_steps(light, look, [trace.listening()]), printed, marks.set)
    if ended_by_effect(error) and (reach.conflict is None or trace.done > reach.conflict):
        error, finished = None, False
    names = Names(names_of(shell, plan))
    brought: tuple[str, ...] = ()
    if error is not None and holders and trace._passes:
        brought = trace.carriers(holders)
    result = ev.Evidence(
        cells=plan.cells,
        fresh=plan.fresh,
        passes=trace.passes(names.of),
        carriers=brought,
        seconds=time.monotonic() - start,
        finished=finished,
        outcome=outcome(names_of(shell, plan), printed.text),
        **error_fields(error, sources),
    )
    if reach.again and finished:
        result = replace(result, again=_fails_again(shell, sources, plan, marks))
    del kept
    return result


class _Mark:
    """A moment, told from the nodes that were made before it."""

    def __init__(self) -> None:
        self._number: int | None = None

    def set(self) -> None:
        with torch.enable_grad(), torch.inference_mode(False):
            self._number = sequence_number(torch.ones((), requires_grad=True).clone().grad_fn)

    def after(self, nodes: Iterable[Any]) -> bool:
        """Whether none of the nodes is older; False where that cannot be told."""
        numbers = [sequence_number(node) for node in nodes if not hasattr(node, "variable")]
        return self._number is not None and all(number > self._number for number in numbers)


def _fails_again(shell: Shell, sources: Sources, plan: ReplayPlan, marks: _Mark) -> str | None:
    """The family of the error with which the last cell fails when it is run once more, or None.

    A cell that goes back through a graph made above it can never be run a second time by itself, and nobody expects
    that it can.
    """
    trace = GradientTrace(sources, digests=False)
    error, _ = run(shell, sources, ReplayPlan(plan.cells[-1:]), [trace.listening()], Printed())
    family = family_of(error)
    return family if family is not None and marks.after(trace.last_graph) else None
