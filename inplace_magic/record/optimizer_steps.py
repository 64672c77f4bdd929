"""Optimizers' steps: torch's own code, many small writes, all of them at one line of the user's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .. import torch_private
from ..torch_private import pop_function_mode, push_function_mode, unobserved
from .author import Author, author_at
from .light_steps import LightSteps, by_itself
from .saved_tensors import SavedTensors


class OptimizerSteps:
    """Takes a function mode off while torch's own optimizer steps: what it is going to write is known beforehand.

    ``note`` is called with what was written. ``light``: steps that leave some parameters as they are.
    """

    def __init__(
        self,
        mode: TorchFunctionMode,
        saved: SavedTensors,
        note: Callable[[str, Author, Sequence[torch.Tensor]], None],
        light: LightSteps | None,
    ) -> None:
        self._mode, self._saved, self._note, self._light = mode, saved, note, light
        self.under_way: tuple[list[torch.Tensor], Author] | None = None

    def begin(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> int:
        """A step begins: how many tensors it writes while the mode is off; 0 where the mode stays on."""
        if not torch_private.on_top(self._mode) or not by_itself(optimizer, args, kwargs):
            return 0
        written = []
        with unobserved():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.is_inference() or parameter.layout is not torch.strided or 0 in parameter.stride():
                        return 0
                    if parameter.grad is not None:
                        written.append(parameter)
            wanted = [parameter for parameter in written if self._is_wanted(parameter)]
        author = author_at(sys._getframe(1)) if wanted else Author((), "optim", None)
        self.under_way = (wanted, author._replace(by_list=any(map(_by_list, optimizer.param_groups))))
        pop_function_mode()
        return len(written)

    def _is_wanted(self, parameter: torch.Tensor) -> bool:
        if self._light is not None and self._light.stays(parameter):
            return bool(self._saved.waiting(parameter))
        return self._saved.keep_all(parameter)

    def end(self) -> None:
        """Puts the mode back and notes what the step has written. Does nothing where no step is under way."""
        if self.under_way is None:
            return
        (wanted, author), self.under_way = self.under_way, None
        if wanted:
            self._note("step", author._replace(origin="optim", module=None), wanted)
        push_function_mode(self._mode)


def _by_list(group: Mapping[str, Any]) -> bool:
    """Whether a step updates the group's tensors in one call; torch's default where it is not said, but on a CPU."""
    said = [group.get(way) for way in ("foreach", "fused")]
    unsaid = "foreach" in group and said == [None, None]
    return any(said) or (unsaid and any(parameter.device.type != "cpu" for parameter in group["params"]))
