"""The gradient of a parameter, as it was at some moment."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass

import torch

from ...storage import storage_key
from ...torch_private import version_of
from .nodes import has_plain_values


@dataclass(frozen=True, eq=False)  # a reference to a tensor is compared as that is, element by element
class GradientAt:
    """The tensor that it was, and how often that had been written; both held weakly."""

    parameter: weakref.ref[torch.Tensor]
    tensor: weakref.ref[torch.Tensor]
    version: int
    key: int | None  # of its storage

    @classmethod
    def of(cls, parameter: torch.Tensor | None) -> GradientAt | None:
        gradient = parameter.grad if parameter is not None else None
        if parameter is None or gradient is None:
            return None
        return cls(weakref.ref(parameter), weakref.ref(gradient), version_of(gradient), storage_key(gradient))

    @property
    def size(self) -> float:
        """The sum of its values without their signs, as long as the parameter has that tensor, else 0."""
        parameter, tensor = self.parameter(), self.tensor()
        if parameter is None or tensor is None or parameter.grad is not tensor:
            return 0
        return float(tensor.abs().sum()) if has_plain_values(tensor) else math.inf

    def is_as(self, other: GradientAt) -> bool:
        """Whether it is the same tensor, not written in between."""
        return self.tensor is other.tensor and self.version == other.version

    @property
    def is_untouched(self) -> bool:
        tensor = self.tensor()
        return tensor is not None and self.version >= 0 and version_of(tensor) == self.version
