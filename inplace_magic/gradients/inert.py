"""Runs in which no gradient has any effect, so that whatever two of them compute otherwise does not follow from one.

Where a rewrite changes gradients, everything after the first step differs as well, and nobody could tell what the
rewrite itself has changed. Here backwards go their way and leave zeros, and steps leave the parameters alone. Both runs
that are compared are run so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..torch_private import unobserved


def zeroed(leaves: Iterable[torch.Tensor], result: Any, wanted: Sequence[torch.Tensor] | None) -> Any:
    """What a backward is to give instead of its ``result``; what it left in the ``.grad`` of leaves becomes zero.

    The tensors in ``.grad`` stay the same objects, and their versions stay: they are no business of the program's.
    """
    if wanted is not None:
        if isinstance(result, Mapping):
            return {key: None if g is None else torch.zeros_like(g) for key, g in result.items()}
        return None if result is None else tuple(None if g is None else torch.zeros_like(g) for g in result)
    for leaf in leaves:
        if leaf.grad is None:
            continue
        if leaf.grad.layout == torch.strided:
            leaf.grad.data.zero_()
        else:
            leaf.grad = torch.zeros_like(leaf.grad)
    return result


class IdleSteps:
    """While active, optimizers step as if no parameter had a gradient. Enter it after those who listen for steps."""

    def __init__(self) -> None:
        self._hidden: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        self._handles = [
            register_optimizer_step_pre_hook(self._hide),
            register_optimizer_step_post_hook(self._show),
        ]

    def __exit__(self, *exception: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._show()

    def _hide(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._show()  # the last step has raised, and somebody has caught that
        with unobserved():
            held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            self._hidden = [(p, p.grad) for p in held]
            for parameter in held:
                parameter.grad = None

    def _show(self, *about: Any) -> None:
        hidden, self._hidden = self._hidden, []
        with unobserved():
            for parameter, gradient in hidden:
                if parameter.grad is None:
                    parameter.grad = gradient
