"""The cells of a plan, run once more in the midst of what listens to them."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..diagnosis import LiveChange
from ..families import family_of
from ..gradients.backward import Stop
from ..gradients.inert import IdleSteps
from ..outcome.capture import Printed
from ..sandbox import process_group, threads
from ..sandbox.process_memory import large
from ..sandbox.side_effects import EndOfRun, ended_by
from ..session.patch_live import apply_change
from ..session.run_cell import Touched, compile_cell, errors_let_through, parse_cell, replay_cell
from ..session.shell import Shell
from ..source.document import Document
from ..source.files import staged
from ..source.location import error_stack
from ..source.own import own_names
from ..source.sources import Sources
from .compiled import uncompiled
from .conflict_records import spots
from .last_iteration import LastIteration, under_way
from .light_steps import LightSteps
from .own_warnings import OwnWarnings
from .plan import RecordOptions, ReplayPlan


def touched(shell: Shell, sources: Sources, plan: ReplayPlan) -> Touched:
    """What the plan's cells can get at. Everything, if one of them is not Python."""
    gone = frozenset(name for name, _ in own_names(shell.user_ns)) if plan.fresh else frozenset()
    try:
        code = tuple(compile_cell(shell, sources.cells[n], sources.cells[n].replayable) for n in plan.cells)
    except Exception:
        code = ()
    return Touched(code, gone)


def prepare(shell: Shell, plan: ReplayPlan) -> dict[str, Any]:
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


def names_of(shell: Shell, plan: ReplayPlan) -> dict[str, Any]:
    """The names that a run's tensors may go by: the session's, and those of the function that is resumed."""
    return shell.user_ns if plan.resumed is None else {**shell.user_ns, **plan.resumed.local}


def light_steps(look: RecordOptions) -> LightSteps | None:
    """For a large session; not where a step itself may be what is wrong and silent about it."""
    return LightSteps() if large() and not look.hidden and not look.inert else None


def with_steps(steps: LightSteps | None, look: RecordOptions, listeners: list[Any]) -> list[Any]:
    if look.inert:
        return [*listeners, IdleSteps()]
    return listeners if steps is None else [steps.counted(), *listeners, steps.lightened()]


@dataclass(frozen=True)
class Ran:
    """What became of the cells: the error that ended the last one, whether it came to its end, and the earlier ones that
    failed where the run went on.
    """

    error: BaseException | None
    finished: bool
    stumbled: tuple[int, ...]

    @property
    def ended_by_effect(self) -> bool:
        """Whether the run came to an effect that could not be played: it is then as if it had come to its end there."""
        return self.error is not None and family_of(self.error) is None and ended_by(self.error)


def run(
    shell: Shell,
    sources: Sources,
    plan: ReplayPlan,
    listeners: Sequence[Any],
    printed: Printed,
    at_last: Callable[[], None] = lambda: None,
    known: Callable[[], bool] = lambda: False,
) -> Ran:
    """Runs the cells.

    ``at_last`` is called before the last one. ``known``: whether enough is known for an interrupt, the end of the time or
    what stayed in the session to be the end of the run; else they are let through.
    """
    error: BaseException | None = None
    stumbled: list[int] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(staged(sources, afresh=plan.fresh))
        stack.enter_context(errors_let_through(shell))
        stack.enter_context(process_group.alone())
        stack.enter_context(threads.without_others())
        stack.enter_context(uncompiled())
        stack.enter_context(OwnWarnings())
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
                return Ran(None, False, tuple(stumbled))
            except EndOfRun:
                return Ran(None, True, tuple(stumbled))
            except SystemExit:  # the end of a script; a notebook's cell ends, and the session continues
                continue
            except Exception as raised:
                error = raised
                if not plan.fresh:  # what is run again in the session stops where it fails
                    break
                # from the top, an earlier cell that failed did not keep the person from going on
                if number != plan.cells[-1]:
                    stumbled.append(number)
            except BaseException:
                if not known():
                    raise
                return Ran(None, False, tuple(stumbled))
    return Ran(error, error is None, tuple(stumbled))


def _parsed(shell: Shell, cell: Document) -> ast.Module:
    return parse_cell(shell, cell, cell.replayable)


def resumable(error: BaseException, shell: Shell, sources: Sources) -> Iterator[LastIteration]:
    """The loops that a failure came out of, to be gone on with in a copy; the best way first."""
    return under_way(error, sources, partial(_parsed, shell))


def error_fields(error: BaseException | None, sources: Sources) -> dict[str, Any]:
    if error is None:
        return {}
    return {
        "error": f"{type(error).__name__}: {error}"[:2000],
        "error_family": family_of(error),
        "error_stack": spots(error_stack(error), sources),
    }
