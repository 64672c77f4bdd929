"""A digest of a gradient: a few numbers that are linear in it, so that gradients are compared without being kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..torch_private import unobserved

_SAMPLES = 64
_SUMS = 32


def digest(tensor: torch.Tensor | None) -> tuple[float, ...] | None:
    """Up to 64 elements and 32 sums over stretches of a dense or sparse gradient: linear in it, and without a copy.

    Empty, as where nobody has looked, for a tensor whose values cannot be read: inside ``torch.vmap``, on ``meta``.
    """
    try:
        return None if tensor is None else _digest(tensor)
    except RuntimeError:
        return ()


def _digest(tensor: torch.Tensor) -> tuple[float, ...]:
    with unobserved(), torch.no_grad():
        flat = (tensor.to_dense() if tensor.layout != torch.strided else tensor).detach().reshape(-1)
        if flat.dtype.is_complex:
            flat = torch.view_as_real(flat).reshape(-1)
        n = flat.numel()
        if n <= _SAMPLES:
            return tuple(map(float, flat.tolist()))
        stretch = n // _SUMS
        samples, rest = flat[:: -(-n // _SAMPLES)], flat[stretch * _SUMS :]
        stretches = flat[: stretch * _SUMS].view(_SUMS, stretch)
        if flat.dtype.is_floating_point and flat.dtype.itemsize >= 4:  # brought over in one piece
            return tuple(torch.cat((samples, stretches.sum(1), rest.sum(0, keepdim=True))).tolist())
        sums = stretches.sum(1, dtype=None if flat.dtype.itemsize >= 4 else torch.float32)
        return (*map(float, samples.tolist()), *sums.tolist(), float(rest.sum()))


def close(a: Sequence[float] | None, b: Sequence[float] | None) -> bool:
    """Whether two digests are those of one gradient, to 1e-4 of its size (float32 sums differ in order)."""
    if a == () or b == ():  # nobody has looked
        return True
    if a is None or b is None:
        missing = a if b is None else b
        return missing is None or all(x == 0 for x in missing)  # no gradient and a zero one are one thing
    if len(a) != len(b):
        return False
    scale = max((abs(x) for x in (*a, *b) if math.isfinite(x)), default=0.0)
    return all(_near(x, y, 1e-4 * scale + 1e-7) for x, y in zip(a, b))


def _near(x: float, y: float, tolerance: float) -> bool:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x == y or (math.isnan(x) and math.isnan(y))
    return abs(x - y) <= tolerance
