"""The conflicts that a recorder holds, as plain records."""

from __future__ import annotations

from dataclasses import replace

from ..session.names import Names
from ..source.location import SourceRange
from ..source.sources import Sources
from ..storage import shape_of
from . import evidence as ev
from .observed import LiveConflict, LiveWrite, Stack
from .recorder import Recorder
from .trace import record_of


def records_of(recorder: Recorder, names: Names) -> tuple[ev.RecordedConflict, ...]:
    """What a recorder found, as records."""
    return tuple(
        replace(_record(conflict, recorder.sources, names), crossing=_crossing(conflict, recorder))
        for conflict in recorder.conflicts.found
    )


def _crossing(conflict: LiveConflict, recorder: Recorder) -> ev.Crossing | None:
    """The values from before the event that the needing backward went through."""
    trace, need = recorder.trace, conflict.need
    freed = conflict.freed.index if conflict.freed is not None and conflict.kind == "second_backward" else None
    moment = (
        trace.moments.get(freed) if freed is not None else conflict.write.moment if conflict.write is not None else None
    )
    if need is None or moment is None:
        return None
    found = trace.crossing(need.index, moment, conflict.stale, freed)
    return None if found is None else record_of(found, trace, lambda stack: spots(stack, recorder.sources))


def _record(conflict: LiveConflict, sources: Sources, names: Names) -> ev.RecordedConflict:
    return ev.RecordedConflict(
        kind=conflict.kind,
        save=_save(conflict, sources, names),
        write=_write(conflict.write, conflict, sources, names) if conflict.write is not None else None,
        need=conflict.need,
        freed=conflict.freed,
        family=conflict.family,
        message=conflict.message,
        known=conflict.known,
        certain=conflict.certain,
    )


def _save(conflict: LiveConflict, sources: Sources, names: Names) -> ev.Save | None:
    saved = conflict.saved
    if saved is not None and not saved.stack:
        return None  # nothing was saved: the values themselves went wrong
    if saved is None:  # an inference tensor was not saved, but made
        return ev.Save(0, spots(conflict.made, sources)) if conflict.made else None
    return ev.Save(
        saved.clock,
        spots(saved.stack, sources),
        node=conflict.node,
        version=saved.version,
        shape=shape_of(saved.alias),
        name=names.of_memory(saved.alias),
    )


def _write(write: LiveWrite, conflict: LiveConflict, sources: Sources, names: Names) -> ev.Write:
    return ev.Write(
        write.clock,
        spots(write.stack, sources),
        operation=write.operation,
        origin=write.origin,
        name=names.of(conflict.value) if write.how == "of_result" else names.of_memory(conflict.value),
        module=names.of(write.module),
        version=write.version,
        bumped=conflict.kind != "silent",
        leaf=write.leaf,
        of_leaf=write.of_leaf,
        late=write.late,
        parameter=write.parameter,
        fed=write.fed,
        of_graph=write.of_graph,
        stepped=write.stepped,
        aliases=write.aliases,
        held=write.held,
        handed=write.handed,
        by_list=write.by_list,
        how=write.how,
    )


def spots(stack: Stack, sources: Sources) -> tuple[SourceRange, ...]:
    return tuple(sources.spot(code, lasti) for code, lasti in stack)
