"""Which name takes a freed graph into a later backward, told from the values that the trace saw pass over."""

from __future__ import annotations

import re
from dataclasses import replace

from ..diagnosis import Conflict
from ..message import message
from ..record.evidence import RecordedConflict
from ..source.sources import Sources


def with_carrier(conflict: Conflict, seen: RecordedConflict, sources: Sources) -> Conflict:
    """The conflict with the name that carries the graph, and the line that reads it, where there is just one of each."""
    if conflict.carries or seen.kind != "second_backward" or seen.crossing is None:
        return conflict
    found = {
        (holder.path, place.label)
        for edge in seen.crossing.over
        if edge.used and not edge.root and (place := sources.place(edge.used[0])) is not None
        for holder in edge.holders
        if holder.shape == "Tensor" and re.search(rf"(?<![\w.]){re.escape(holder.path)}(?!\w)", place.text)
    }
    if len(found) != 1:
        return conflict
    ((name, place_label),) = found
    return replace(conflict, carries=message("carries_into", name=name, place=place_label))
