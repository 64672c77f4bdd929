"""What of torch's Python code is wrapped while a run is recorded.

Each function here makes the wrapper of one of them. ``ours`` is entered around what is not the person's own.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..families import family_of
from ..source.location import user_stack
from ..torch_private import saved_tensors_hooks, saved_tensors_hooks_tell
from .observed import Stack

Ours = contextlib.AbstractContextManager[Any]


def replace(on: contextlib.ExitStack, owner: Any, name: str, new: Any) -> None:
    """Puts something of ours in the place of torch's for a time."""
    if name in vars(owner):
        on.callback(setattr, owner, name, vars(owner)[name])
    else:
        on.callback(delattr, owner, name)
    setattr(owner, name, new)


def noting_line(plain: Callable[..., None], ours: Ours, note: Callable[[Stack], None]) -> Callable[..., None]:
    """``ctx.save_for_backward`` that notes its line: torch packs what it is given when forward is over."""

    def save_for_backward(ctx: Any, *tensors: Any) -> None:
        with ours:
            note(user_stack(sys._getframe(1)))
        plain(ctx, *tensors)

    return save_for_backward


def stepping_aside(
    plain: Callable[[str], Any], ours: Ours, hooks: Any, pack: Callable[..., Any], told: Callable[[bool], None]
) -> Callable[[str], Any]:
    """``torch.func`` refuses to run under hooks; while it runs, ours are off. Those of others it still meets.

    ``told`` learns when that begins and when it ends.

    Where torch does not tell which are the innermost, ours are taken to be.
    """
    here = threading.get_ident()
    aside = False

    def innermost() -> bool:
        if not saved_tensors_hooks_tell():
            return not aside and threading.get_ident() == here
        top = saved_tensors_hooks()
        return top is not None and top[0] == pack

    @contextlib.contextmanager
    def disable_saved_tensors_hooks(message: str) -> Iterator[None]:
        nonlocal aside
        off = False
        with ours:
            off = innermost()
            if off:
                hooks.__exit__()
                aside = True
                told(True)
        try:
            with plain(message):
                yield
        finally:
            if off:
                hooks.__enter__()
                aside = False
                told(False)

    return disable_saved_tensors_hooks


def part_of(plain: Any) -> property:
    """``x.imag = y`` as the write into a view that it is: what sets it, no function mode sees (torch 2.13)."""

    def set_part(tensor: torch.Tensor, value: Any) -> None:
        part = plain.__get__(tensor)
        part.copy_(value) if isinstance(value, torch.Tensor) else part.fill_(value)

    return property(plain.__get__, set_part)


def applying(plain: Any, call: Callable[[Callable[..., Any], Any, Sequence[Any], dict[str, Any]], Any]) -> Any:
    """``Function.apply``, which no function mode sees; ``call`` makes it. What ``torch.func`` makes of a Function is its own affair."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        bound = plain.__get__(None, cls)
        return call(bound, cls, args, kwargs) if issubclass(cls, torch.autograd.Function) else bound(*args, **kwargs)

    return classmethod(apply)


def making_parameters(
    plain: Callable[..., Any], refused: Callable[[type, torch.Tensor, RuntimeError], None] | None
) -> Any:
    """``nn.Parameter(data)``, which no function mode sees.

    An inference tensor, which it refuses, is copied and ``refused`` called; where that is None, the error is raised.
    """

    def __new__(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
        try:
            return plain(cls, data, requires_grad)
        except RuntimeError as error:
            if refused is None or family_of(error) != "inference" or not isinstance(data, torch.Tensor):
                raise
            refused(cls, data, error)
            return plain(cls, data.clone(), requires_grad)

    return staticmethod(__new__)
