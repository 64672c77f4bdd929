"""``z.real = x`` or ``z.imag = x``: writes that torch shows to no function mode.

While a run is recorded, the two properties of ``torch.Tensor`` are Python's own around torch's. Proof: second_run.py.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from ...source.location import user_stack
from ...torch_private import unobserved
from .events import Detector

_NAMES = ("real", "imag")


class ComplexParts(Detector):
    """Logs such writes."""

    def begins(self) -> None:
        for name in _NAMES:
            if name not in vars(torch.Tensor):  # else somebody else is at work there
                self.run.put(torch.Tensor, name, self._around(name, getattr(torch.Tensor, name)))

    def _around(self, name: str, plain: Any) -> property:
        def write(tensor: torch.Tensor, value: Any) -> None:
            wanted: list[torch.Tensor] = []
            with self.run.ours, unobserved():
                wanted = self.run.about_to_write(torch.Tensor.copy_, (tensor, value), {})
            plain.__set__(tensor, value)
            if wanted:
                with self.run.ours, unobserved():
                    self.run.wrote(name, user_stack(sys._getframe(1)), wanted)

        return property(plain.__get__, write)
