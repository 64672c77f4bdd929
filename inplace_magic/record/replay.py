"""A replay: some cells run once more in a sandbox, watched, and what was seen as plain records."""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from ..diagnosis import LiveChange
from ..families import RAISED_AT_WRITE, family_of
from ..gradients.backward import GradientTrace, Stop, graph_of
from ..gradients.inert import IdleSteps
from ..outcome.capture import Printed, outcome
from ..sandbox import process_group, threads
from ..sandbox.process_memory import large
from ..sandbox.side_effects import EndOfRun, ended_by
from ..session.names import Names, graph_holders
from ..session.patch_live import apply_change
from ..session.run_cell import Touched, compile_cell, errors_let_through, parse_cell, replay_cell
from ..source.document import Cell, Sources
from ..source.files import staged
from ..source.location import SourceRange, error_stack
from ..source.own import own_names
from ..torch_private import sequence_number
from . import evidence as ev
from .compiled import uncompiled
from .last_iteration import LastIteration, under_way
from .light_steps import LightSteps
from .observed import LiveConflict, LiveWrite, Stack
from .recorder import Recorder
from .silent.events import REFERENCE
from .silent.stream import EventStream
from .trace import record_of

_FURTHER = 4  # passes that a long replay goes past the first conflict at most
_RUNAWAY = 4  # times as many passes as the run that it is compared with, and a replay is ended
_SHORT = 30_000  # Recorder.work of a run that is short, so that it goes to the end: half a second or so


@dataclass(frozen=True)
class ReplayPlan:
    """What to run: ``cells`` in order, the failing one last; from an empty namespace if ``fresh``.

    ``cut`` are paths to tensors of the session that are detached first: they hold what the failed run has left behind.
    ``resumed``: of the last cell only the iterations of a loop run that was under way when it failed.
    """

    cells: tuple[int, ...]
    fresh: bool = False
    cut: tuple[str, ...] = ()
    resumed: LastIteration | None = field(default=None, compare=False)


@dataclass(frozen=True)
class StopRule:
    """How far a replay goes: to the end of the cell, or, where the cell is long, a little past the failure.

    ``passes`` is the number of backwards after which it has gone far enough; None if that is not known yet. ``exactly``:
    it ends there, as the run did that it is compared with. ``conflict`` is the pass of the first conflict. ``again``: the
    last cell is run a second time, once it has come to its end. ``whole``: it goes to the end however long that is.
    """

    passes: int | None = None
    exactly: bool = False
    conflict: int | None = None
    again: bool = False
    whole: bool = False


@dataclass(frozen=True)
class RecordOptions:
    """How the recorder looks at a run, see ``Recorder``. ``hidden``: also at writes that torch does not see.

    ``inert``: no gradient has any effect in this run (gradients/inert.py).
    """

    update_leaves: bool = False
    keep_graphs: bool = False
    hidden: bool = False
    inert: bool = False

    @classmethod
    def at(cls, family: str) -> RecordOptions:
        """The way to look at a failure of this family."""
        return cls(
            update_leaves=family in ("leaf", "view_of_leaf"),
            keep_graphs=family == "second_backward",
            hidden=family == "silent",
        )


def touched(shell: Any, sources: Sources, plan: ReplayPlan) -> Touched:
    """What the plan's cells can get at. Everything, if one of them is not Python."""
    gone = frozenset(name for name, _ in own_names(shell.user_ns)) if plan.fresh else frozenset()
    try:
        code = tuple(compile_cell(shell, sources.cells[n], sources.cells[n].replayable) for n in plan.cells)
    except Exception:
        code = ()
    return Touched(code, gone)


def far_enough(conflict: int) -> int:
    """How many passes a long replay goes, given the pass of the first conflict.

    Past a second iteration, where the conflict was met in the first one. Each of them is paid for again in every run
    of a rewrite.
    """
    return conflict + 1 + min(_FURTHER, conflict + 1)


def record(
    shell: Any,
    sources: Sources,
    plan: ReplayPlan,
    reach: StopRule,
    look: RecordOptions | None = None,
    tell: Callable[[ev.Evidence], None] | None = None,
) -> ev.Evidence:
    """Runs the plan under the recorder. To be called inside a sandbox: it changes the session.

    Where it has turned out to be long by the first conflict, what is known by then is told by ``tell``, and it goes on
    to ``far_enough`` passes.
    """
    look = look or RecordOptions()
    light = _light(look)
    options: dict[str, Any] = {"update_leaves": look.update_leaves, "keep_graphs": look.keep_graphs, "light": light}
    recorder = EventStream(sources, REFERENCE, **options) if look.hidden else Recorder(sources, **options)
    holders: list[tuple[str, Any]] = []
    brought: dict[str, None] = {}

    def around(event: ev.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]) -> tuple[Any, bool]:
        result, given_up = recorder.around_backward(event, roots, call)
        if given_up:
            _, _, nodes = graph_of(roots)
            brought.update((path, None) for path, node in holders if node in nodes)
        return result, given_up

    met: list[int] = []  # the pass of the first conflict
    told = False

    def conflict() -> int | None:
        if not met:
            known = next((c for c in recorder.conflicts.found if c.known), None)
            if known is not None:
                met.append(known.need.index if known.need is not None else trace.done)
        return met[0] if met else None

    def long() -> bool:
        return recorder.work > _SHORT and not reach.whole

    def enough(done: int, event: ev.Backward) -> bool:
        first = conflict()
        return first is not None and done >= far_enough(first) and (told or long())

    def gone_on(done: int) -> None:
        nonlocal told
        first = conflict()
        if tell is not None and not told and first is not None and first < done < far_enough(first) and long():
            told = True
            tell(evidence(finished=False))

    def evidence(error: BaseException | None = None, finished: bool = True) -> ev.Evidence:
        names = Names(_names(shell, plan))
        return ev.Evidence(
            cells=plan.cells,
            fresh=plan.fresh,
            clashes=(*(clashes := clashes_of(recorder, names)), *_unheard(error, clashes, sources)),
            passes=trace.passes(names.of),
            carriers=tuple(brought),
            inplace_modules=tuple(names.inplace),
            inference_tensors=tuple(names.inference),
            seconds=time.monotonic() - start,
            finished=finished,
            first=conflict(),
            outcome=outcome(_names(shell, plan), printed.text, recorder.value_of) if over else None,
            work=recorder.work,
            **_error(error, sources),
        )

    trace = GradientTrace(
        sources, around=around, enough=enough, gone_on=gone_on, conflict=conflict, tick=recorder.tick, inert=look.inert
    )
    printed, over = Printed(), False
    start = time.monotonic()
    kept = _prepare(shell, plan)
    if not plan.fresh:
        holders.extend(graph_holders(shell.user_ns))  # not the local ones of a frame: they cannot be cut by name
    error, finished = _run(shell, sources, plan, _listeners(light, look, [trace.listening(), recorder]), printed)
    over = True
    if _ended_by_effect(error):  # what was recorded before it stands
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
    shell: Any,
    sources: Sources,
    plan: ReplayPlan,
    reach: StopRule,
    look: RecordOptions,
    prepare: Callable[[], None] | None = None,
) -> ev.Evidence:
    """Runs the plan under plain autograd and only listens to the gradients. To be called inside a sandbox."""
    light = _light(look)

    def enough(done: int, event: ev.Backward) -> bool:
        if reach.passes is None or done < reach.passes:
            return False
        return reach.exactly or done >= _RUNAWAY * (reach.passes + 1)

    trace = GradientTrace(sources, enough=enough, conflict=lambda: reach.conflict, inert=look.inert)
    printed, marks = Printed(), _Mark()
    start = time.monotonic()
    kept = _prepare(shell, plan)
    if prepare is not None:
        prepare()
    holders = [] if plan.fresh else graph_holders(shell.user_ns)
    error, finished = _run(shell, sources, plan, _listeners(light, look, [trace.listening()]), printed, marks.set)
    if _ended_by_effect(error) and (reach.conflict is None or trace.done > reach.conflict):
        error, finished = None, False
    names = Names(_names(shell, plan))
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
        outcome=outcome(_names(shell, plan), printed.text),
        **_error(error, sources),
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


def _fails_again(shell: Any, sources: Sources, plan: ReplayPlan, marks: _Mark) -> str | None:
    """The family of the error with which the last cell fails when it is run once more, or None.

    A cell that goes back through a graph made above it can never be run a second time by itself, and nobody expects
    that it can.
    """
    trace = GradientTrace(sources, digests=False)
    error, _ = _run(shell, sources, ReplayPlan(plan.cells[-1:]), [trace.listening()], Printed())
    family = family_of(error)
    return family if family is not None and marks.after(trace.last_graph) else None


def _prepare(shell: Any, plan: ReplayPlan) -> dict[str, Any]:
    """Empties the namespace for a fresh plan; what was in it is handed out, so that nothing of it is finalised."""
    if not plan.fresh:
        for path in plan.cut:
            apply_change(LiveChange("detach", path), shell.user_ns)
        return {}
    kept = dict(own_names(shell.user_ns))
    for name in kept:
        del shell.user_ns[name]
    torch.set_grad_enabled(True)
    return kept


def _names(shell: Any, plan: ReplayPlan) -> dict[str, Any]:
    """The names that a run's tensors may go by: the session's, and those of the function that is resumed."""
    return shell.user_ns if plan.resumed is None else {**shell.user_ns, **plan.resumed.local}


def _light(look: RecordOptions) -> LightSteps | None:
    """For a large session; not where a step itself may be what is wrong and silent about it."""
    return LightSteps() if large() and not look.hidden and not look.inert else None


def _listeners(steps: LightSteps | None, look: RecordOptions, listeners: list[Any]) -> list[Any]:
    if look.inert:
        return [*listeners, IdleSteps()]
    return listeners if steps is None else [steps.counted(), *listeners, steps.lightened()]


def _run(
    shell: Any,
    sources: Sources,
    plan: ReplayPlan,
    listeners: Sequence[Any],
    printed: Printed,
    at_last: Callable[[], None] = lambda: None,
) -> tuple[BaseException | None, bool]:
    """Runs the cells: (the error that ended the last one or None, whether it came to its end).

    ``at_last`` is called before the last one.
    """
    error: BaseException | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(staged(sources, afresh=plan.fresh))
        stack.enter_context(errors_let_through(shell))
        stack.enter_context(process_group.alone())
        stack.enter_context(threads.without_others())
        stack.enter_context(uncompiled())
        stack.enter_context(contextlib.redirect_stdout(printed))
        for listener in listeners:
            stack.enter_context(listener)
        for number in plan.cells:
            error = None
            if number == plan.cells[-1]:
                at_last()
            try:
                if plan.resumed is not None and number == plan.cells[-1]:
                    plan.resumed.run(partial(_parsed, shell), sources)
                else:
                    replay_cell(shell, sources.cells[number])
            except Stop:
                return None, False
            except EndOfRun:
                return None, True
            except SystemExit:  # the end of a script; a notebook's cell ends, and the session goes on
                continue
            except Exception as raised:
                error = raised
                if not plan.fresh:  # what is run again in the session stops where it fails
                    break
                # from the top, an earlier cell that failed did not keep the person from going on
    return error, error is None


def _ended_by_effect(error: BaseException | None) -> bool:
    """Whether a run came to an effect that could not be played: it is then as if it had come to its end there."""
    return error is not None and family_of(error) is None and ended_by(error)


def _parsed(shell: Any, cell: Cell) -> ast.Module:
    return parse_cell(shell, cell, cell.replayable)


def resumable(error: BaseException, shell: Any, sources: Sources) -> Iterator[LastIteration]:
    """The loops that a failure came out of, to be gone on with in a copy; the best way first."""
    return under_way(error, sources, partial(_parsed, shell))


def _error(error: BaseException | None, sources: Sources) -> dict[str, Any]:
    if error is None:
        return {}
    return {
        "error": f"{type(error).__name__}: {error}"[:2000],
        "error_family": family_of(error),
        "error_stack": spots(error_stack(error), sources),
    }


def spots(stack: Stack, sources: Sources) -> tuple[SourceRange, ...]:
    return tuple(sources.spot(code, lasti) for code, lasti in stack)


def clashes_of(recorder: Recorder, names: Names) -> tuple[ev.RecordedConflict, ...]:
    """What a recorder found, as records."""
    return tuple(
        replace(_clash(clash, recorder.sources, names), crossing=_crossing(clash, recorder))
        for clash in recorder.conflicts.found
    )


def _crossing(clash: LiveConflict, recorder: Recorder) -> ev.Crossing | None:
    """The values from before the event that the needing backward went through."""
    trace, need = recorder.trace, clash.need
    freed = clash.freed.index if clash.freed is not None and clash.kind == "second_backward" else None
    moment = trace.moments.get(freed) if freed is not None else clash.write.moment if clash.write is not None else None
    if need is None or moment is None:
        return None
    found = trace.crossing(need.index, moment, clash.stale, freed)
    return None if found is None else record_of(found, trace, lambda stack: spots(stack, recorder.sources))


def _clash(clash: LiveConflict, sources: Sources, names: Names) -> ev.RecordedConflict:
    return ev.RecordedConflict(
        kind=clash.kind,
        save=_save(clash, sources, names),
        write=_write(clash.write, clash, sources, names) if clash.write is not None else None,
        need=clash.need,
        freed=clash.freed,
        family=clash.family,
        message=clash.message,
        known=clash.known,
        certain=clash.certain,
    )


def _save(clash: LiveConflict, sources: Sources, names: Names) -> ev.Save | None:
    saved = clash.saved
    if saved is not None and not saved.stack:
        return None  # nothing was saved: the values themselves went wrong
    if saved is None:  # an inference tensor was not saved, but made
        return ev.Save(0, spots(clash.made, sources)) if clash.made else None
    return ev.Save(
        saved.clock,
        spots(saved.stack, sources),
        node=clash.node,
        version=saved.version,
        shape=tuple(saved.alias.shape),
        name=names.of_memory(saved.alias),
    )


def _write(write: LiveWrite, clash: LiveConflict, sources: Sources, names: Names) -> ev.Write:
    return ev.Write(
        write.clock,
        spots(write.stack, sources),
        operation=write.operation,
        origin=write.origin,
        name=names.of_memory(clash.value),
        module=names.of(write.module),
        version=write.version,
        bumped=clash.kind != "silent",
        leaf=write.leaf,
        parameter=write.parameter,
        handed=write.handed,
        how=write.how,
    )
