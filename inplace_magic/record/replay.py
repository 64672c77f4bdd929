"""A replay: some cells run once more in a sandbox, watched; what was seen becomes plain records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..families import RAISED_AT_WRITE, family_of
from ..gradients.backward import GradientTrace, graph_of
from ..outcome.capture import Printed, outcome
from ..session.names import Names, graph_holders, with_items_alike
from ..session.shell import Shell
from ..source.location import SourceRange, error_stack
from ..source.sources import Sources
from ..torch_private import sequence_number, unobserved
from . import evidence as ev
from .caught import Caught
from .conflict_records import records_of, spots
from .plan import EARLY_WORK, SHORT_WORK, RecordOptions, ReplayPlan, StopRule, far_enough
from .recorder import Recorder
from .run_cells import Ran, error_fields, light_steps, names_of, prepare, run, with_steps
from .silent.events import REFERENCE
from .silent.stream import EventStream

_GOING_ON = Ran(error=None, finished=False, stumbled=())
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

    What is known by the first conflict is told by ``tell``, unless the run is over in a moment: early, at the end of the
    backward that met it, which is enough for its lines; and, where the run is long, when the next graph or the next
    backward begins, which is enough to look for a fix. Then it continues to ``far_enough`` passes.
    """
    return _Recording(shell, sources, plan, reach, look or RecordOptions(), tell).run()


class _Recording:
    """One run under the recorder, and what is known of its first conflict meanwhile."""

    def __init__(
        self,
        shell: Shell,
        sources: Sources,
        plan: ReplayPlan,
        reach: StopRule,
        look: RecordOptions,
        tell: Callable[[ev.Evidence], None] | None,
    ) -> None:
        self._shell, self._sources, self._plan, self._reach, self._tell = shell, sources, plan, reach, tell
        self._light, self._look = light_steps(look), look
        options: dict[str, Any] = {
            "update_leaves": look.update_leaves,
            "keep_graphs": look.keep_graphs,
            "light": self._light,
            "raised": look.raised,
        }
        self._recorder = EventStream(sources, REFERENCE, **options) if look.hidden else Recorder(sources, **options)
        self._trace = GradientTrace(
            sources,
            around=self._around,
            enough=self._enough,
            gone_on=self._gone_on,
            stepped=self._stepped,
            conflict=self._conflict,
            tick=self._recorder.tick,
            caught=self._recorder.caught.at,
            inert=look.inert,
        )
        self._recorder.early, self._recorder.is_past = self._trace.early, self._is_past
        self._printed = Printed()
        self._start = time.monotonic()
        self._holders: list[tuple[str, Any]] = []
        self._brought: dict[str, None] = {}
        self._begun: dict[tuple[SourceRange, ...], int] = {}  # the first pass from each place
        self._first: int | None = None  # the pass of the first conflict
        self._far = 0  # the passes after which a long run has gone far enough, once that is known
        self._told_early = self._told = self._over = False

    def run(self) -> ev.Evidence:
        kept = prepare(self._shell, self._plan)
        if not self._plan.fresh:
            self._holders = graph_holders(self._shell.user_ns)  # not a frame's local ones: they cannot be cut by name
        listeners = with_steps(self._light, self._look, [self._trace.listening(), self._recorder])
        ran = run(
            self._shell,
            self._sources,
            self._plan,
            listeners,
            self._printed,
            known=lambda: self._conflict() is not None,
        )
        self._over = True
        if ran.ended_by_effect:  # what was recorded before it stands
            ran = replace(ran, error=None, finished=False)
        result = self._evidence(ran)
        del kept
        return result

    def _around(
        self,
        event: ev.Backward,
        roots: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
        call: Callable[[bool], Any],
        wanted: Sequence[torch.Tensor] = (),
    ) -> tuple[Any, bool]:
        self._begun.setdefault(event.stack, event.index)
        result, given_up = self._recorder.around_backward(event, roots, leaves, call, wanted)
        if given_up:
            _, _, nodes = graph_of(roots)
            self._brought.update((path, None) for path, node in self._holders if node in nodes)
        return result, given_up

    def _is_past(self, need: ev.Backward) -> bool:
        """Whether a backward is one of a cell before the last, which ran as it is: nothing asks what it means."""
        return bool(need.stack) and need.stack[-1].cell in self._plan.cells[:-1]

    def _conflict(self) -> int | None:
        if self._first is None:
            known = next((c for c in self._recorder.conflicts.found if c.known), None)
            if known is not None:
                need = known.need
                first = self._first = need.index if need is not None else self._trace.done
                came_before = need is not None and self._begun.get(need.stack, first) < first
                self._far = far_enough(first, came_before)
        return self._first

    @property
    def _long(self) -> bool:
        return self._recorder.work > SHORT_WORK and not self._reach.whole

    def _enough(self, done: int, event: ev.Backward) -> bool:
        met = self._conflict() is not None
        if self._tell is not None and not self._told_early and met and self._recorder.work > EARLY_WORK:
            self._told_early = True
            with unobserved():
                self._tell(self._evidence(early=True))
        if self._reach.exactly and self._reach.passes is not None:  # to be compared with a run that ended there
            return done >= self._reach.passes
        return met and done >= self._far and (self._told or self._long)

    def _gone_on(self, done: int) -> None:
        met = self._conflict()
        if self._tell is not None and not self._told and met is not None and met < done < self._far and self._long:
            self._told = True
            self._tell(self._evidence())

    def _stepped(self, done: int) -> None:
        """With an update behind the conflict, what belongs to its iteration is known once a new graph begins."""
        if self._tell is not None and not self._told and self._conflict() is not None:
            self._recorder.at_next_save = partial(self._gone_on, done)

    def _evidence(self, ran: Ran = _GOING_ON, early: bool = False) -> ev.Evidence:
        recorder, values = self._recorder, names_of(self._shell, self._plan)
        names = Names(values)
        clashes = records_of(recorder, names)
        return ev.Evidence(
            cells=self._plan.cells,
            fresh=self._plan.fresh,
            clashes=(*clashes, *_unheard(ran.error, clashes, self._sources)),
            passes=self._trace.passes(names.of),
            carriers=tuple(self._brought),
            inplace_modules=tuple(names.inplace),
            inference_tensors=tuple(names.inference),
            seconds=time.monotonic() - self._start,
            finished=ran.finished,
            first=self._conflict(),
            far=self._far,
            early=early,
            outcome=outcome(values, self._printed.text, recorder.value_of, ahead=not self._trace.done)
            if self._over
            else None,
            work=recorder.work,
            stumbled=ran.stumbled,
            of_gradients=frozenset(recorder.gradient_values.passes),
            **error_fields(ran.error, self._sources),
        )


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

    caught = Caught(sources, look.raised).at
    trace = GradientTrace(sources, enough=enough, conflict=lambda: reach.conflict, caught=caught, inert=look.inert)
    printed, marks = Printed(), _Mark()
    start = time.monotonic()
    kept = prepare(shell, plan)
    if change is not None:
        change()
    holders = [] if plan.fresh else graph_holders(shell.user_ns)
    listeners = with_steps(light, look, [trace.listening()])
    ran = run(shell, sources, plan, listeners, printed, marks.set)
    if ran.ended_by_effect and (reach.conflict is None or trace.done > reach.conflict):
        ran = replace(ran, error=None, finished=False)
    names = Names(names_of(shell, plan))
    brought: tuple[str, ...] = ()
    if ran.error is not None and holders and trace._passes:
        brought = with_items_alike(trace.carriers(holders), holders)
    result = ev.Evidence(
        cells=plan.cells,
        fresh=plan.fresh,
        passes=trace.passes(names.of),
        carriers=brought,
        seconds=time.monotonic() - start,
        finished=ran.finished,
        outcome=outcome(names_of(shell, plan), printed.text, ahead=not trace.done),
        stumbled=ran.stumbled,
        **error_fields(ran.error, sources),
    )
    if reach.again and ran.finished:
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
    ran = run(shell, sources, ReplayPlan(plan.cells[-1:]), [trace.listening()], Printed())
    family = family_of(ran.error)
    return family if family is not None and marks.after(trace.last_graph) else None
