"""Taking off what of ours an interrupt has left on.

A rerun ends with all put back. Where a cell is watched as it runs for real, Ctrl-C in the midst of going on or off would
leave a listener on for good; only what is ours may be touched then.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import torch_private

_OURS = __name__.partition(".")[0] + "."


class Listeners:
    """Notes what listens now, so that what has come later, and has not gone, can be told."""

    def __init__(self) -> None:
        self._attributes = [(owner, name, _read(owner, name)) for owner, name in torch_private.patched()]
        self._steps = [(hooks, set(hooks)) for hooks in torch_private.step_hooks()]
        self._modes = torch_private.function_modes()
        self._hooks = torch_private.saved_tensors_hooks()
        self._trace = sys.gettrace()

    def take_off(self) -> None:
        """Takes off what of ours has come since then."""
        for owner, name, before in self._attributes:
            now = _read(owner, name)
            if now is not before and _is_ours(now):
                if before is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
        for hooks, known in self._steps:
            for key in [key for key, hook in hooks.items() if key not in known and _is_ours(hook)]:
                del hooks[key]
        if sys.gettrace() is not self._trace and _is_ours(sys.gettrace()):
            sys.settrace(self._trace)
        modes = torch_private.function_modes()
        stay = [mode for mode in modes if mode in self._modes or not _is_ours(type(mode))]
        if len(stay) < len(modes):
            torch_private.set_function_modes(stay)
        torch_private.pop_saved_tensors_hooks_while(lambda top: top != self._hooks and _is_ours(top[0]))


def _read(owner: Any, name: str) -> Any:
    """Of a class what lies in it: asking for a method would make a new object each time."""
    return vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)


def _is_ours(value: Any) -> bool:
    function = getattr(value, "__func__", value)
    return (getattr(function, "__module__", None) or "").startswith(_OURS)
