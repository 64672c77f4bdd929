"""A replay to be made somewhere else, as a frozen record: which cells, how far, what is changed beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..diagnosis import LiveChange
from ..session.patch_live import apply_change, patch_functions, renew_module
from ..session.run_cell import Touched, compile_cell
from ..session.shell import Shell
from ..source.document import FileSource
from ..source.sources import Sources
from .evidence import Evidence
from .plan import RecordOptions, ReplayPlan, StopRule
from .replay import listen, record
from .run_cells import touched


@dataclass(frozen=True)
class SessionChanges:
    """What accepting a fix does to a session before any cell runs: live functions, modules and objects are changed.

    ``texts`` are rewritten cells by number, ``sources`` as they were written.
    """

    sources: Sources
    texts: dict[int, str] = field(default_factory=dict)
    live: tuple[LiveChange, ...] = ()

    def make(self, shell: Shell) -> None:
        """Raises what the rewritten text of a module raises, or a path that leads nowhere."""
        for number, text in self.texts.items():
            patch_functions(self.sources, number, text, lambda cell: compile_cell(shell, cell), shell.user_ns)
            document = self.sources.cells[number]
            if isinstance(document, FileSource):
                renew_module(document, text)
        for change in self.live:
            apply_change(change, shell.user_ns)


@dataclass(frozen=True)
class RecordRequest:
    """``replay.record`` in a sandbox."""

    sources: Sources
    plan: ReplayPlan
    stop: StopRule
    options: RecordOptions
    changes: SessionChanges | None = None

    def __call__(self, shell: Shell, tell: Callable[[Evidence], None] | None = None) -> Evidence:
        if self.changes is not None:
            self.changes.make(shell)
        return record(shell, self.sources, self.plan, self.stop, self.options, None if self.options.hidden else tell)

    def touched(self, shell: Shell) -> Touched:
        return touched(shell, self.sources, self.plan)


@dataclass(frozen=True)
class ListenRequest:
    """``replay.listen`` in a sandbox."""

    sources: Sources
    plan: ReplayPlan
    stop: StopRule
    options: RecordOptions
    changes: SessionChanges | None = None

    def __call__(self, shell: Shell, tell: Callable[[Evidence], None] | None = None) -> Evidence:
        changes = self.changes
        prepare = None if changes is None else lambda: changes.make(shell)
        return listen(shell, self.sources, self.plan, self.stop, self.options, prepare)

    def touched(self, shell: Shell) -> Touched:
        return touched(shell, self.sources, self.plan)
