"""Optimizers' steps that write little: only small parameters move, for the others a step only counts as a write.

In a copy of a large session a real step would copy a whole model, with all that its optimizer keeps. What autograd
looks at is the version counter, so a step that only counts leads to the same failures. The small parameters (biases,
norms) move, so that what is computed with the weights from before a step can be told from what comes after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..torch_private import set_version, unobserved, version_of

_OPTIMIZERS = "torch.optim."
_MOVED = 2**20  # elements that a step may write, the smallest parameters first


def by_itself(optimizer: Optimizer, args: Any, kwargs: Any) -> bool:
    """Whether a step runs no code of the user's, and is told from the parameters alone."""
    given = [value for value in (*args, *kwargs.values()) if value is not None and value is not optimizer]
    return (
        not given  # a closure is the user's own code
        and type(optimizer).__module__.startswith(_OPTIMIZERS)
        and not optimizer._optimizer_step_pre_hooks
        and not optimizer._optimizer_step_post_hooks
        and not any(group.get("differentiable") for group in optimizer.param_groups)
    )


class _Registered:
    """Hooks for a time. Not a generator, which would be closed, and count, whenever garbage is collected."""

    def __init__(
        self, *hooks: tuple[Callable[..., Any], Callable[..., None]], then: Callable[[], None] = lambda: None
    ) -> None:
        self._hooks, self._then = hooks, then
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        self._handles = [register(hook) for register, hook in self._hooks]

    def __exit__(self, *exception: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._then()


class LightSteps:
    """Enter ``counted`` before those who listen for steps, and ``lightened`` after them."""

    def __init__(self) -> None:
        self._staying: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # with their gradients
        self._counts: dict[int, tuple[torch.Tensor, int]] = {}

    def stays(self, parameter: torch.Tensor) -> bool:
        """Whether the step under way leaves the parameter's values as they are."""
        return id(parameter) in self._staying

    def counted(self) -> _Registered:
        hooks = (register_optimizer_step_pre_hook, self._choose), (register_optimizer_step_post_hook, self._count)
        return _Registered(*hooks)

    def lightened(self) -> _Registered:
        return _Registered((register_optimizer_step_pre_hook, self._hide), then=self._count_back)

    def _choose(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._show()  # the last step has raised, and somebody has caught that
        if not by_itself(optimizer, args, kwargs):
            return
        with unobserved():
            held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            moved = 0
            for parameter in sorted(held, key=torch.Tensor.numel):
                moved += parameter.numel()
                if moved > _MOVED:
                    self._staying[id(parameter)] = parameter, parameter.grad

    def _hide(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with unobserved():
            for parameter, _ in self._staying.values():
                parameter.grad = None  # an optimizer passes over a parameter without a gradient

    def _count(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with unobserved():
            for key, (parameter, _) in self._staying.items():
                increment_version(parameter)
                self._counts[key] = parameter, self._counts.get(key, (parameter, 0))[1] + 1
        self._show()

    def _count_back(self) -> None:
        """Nothing was written, so that where a session is put back there is nothing to put back."""
        counts, self._counts = self._counts, {}
        with contextlib.suppress(AttributeError):  # gone; then the sandbox says that not all could be put back
            for parameter, count in counts.values():
                set_version(parameter, version_of(parameter) - count)

    def _show(self) -> None:
        hidden, self._staying = self._staying, {}
        with unobserved():
            for parameter, gradient in hidden.values():
                parameter.grad = gradient
