"""A session of an accelerator on the CPU: whoever asks for the device gets the CPU instead.

A function mode maps what torch's functions are given; what is no such function (generators, autocast, the device's own
module) is replaced. Values may differ from the device's in the last digits, random ones altogether: the device draws
its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_TO_DEVICE = ("cuda", "xpu", "mps", "hpu", "npu", "ipu", "mtia")


class OnCPU(TorchFunctionMode):
    """Maps a kind of device to the CPU in all that torch's functions are given."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        moves = {getattr(torch.Tensor, name, None) for name in {kind, *_TO_DEVICE}} - {None}
        self._moves = moves

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self._moves:  # x.cuda()
            return args[0]
        args = tuple(self.mapped(a) for a in args)
        kwargs = {k: self.mapped(v) for k, v in (kwargs or {}).items()}
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*args, **kwargs)

    def mapped(self, value: Any) -> Any:
        """The CPU for the device, anything else as it is. A number is left alone: it is a device to few functions."""
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == self._kind else value
        if isinstance(value, str) and value.partition(":")[0] == self._kind:
            return "cpu"
        return value


@contextmanager
def on_cpu(kind: str) -> Iterator[None]:
    """While active, what asks for devices of this kind gets the CPU."""
    mode = OnCPU(kind)
    with ExitStack() as stack:
        for owner, name in ((torch, "Generator"), (torch.amp, "autocast"), (torch.amp, "GradScaler")):
            _first_mapped(stack, owner, name, mode.mapped)
        module = getattr(torch, kind, None)
        if module is not None:
            _still(stack, module)
        stack.enter_context(mode)
        yield


def _first_mapped(stack: ExitStack, owner: Any, name: str, mapped: Callable[[Any], Any]) -> None:
    """The class, made with the CPU where the device was asked for; still a class, for ``isinstance``."""
    plain = getattr(owner, name)
    if name == "Generator":  # made by __new__, which cannot be replaced

        def generator(device: Any = "cpu") -> Any:
            return plain(device=mapped(device))

        stack.enter_context(mock.patch.object(owner, name, generator))
        return
    begin = plain.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not args and "device" not in kwargs and "device_type" not in kwargs and name == "GradScaler":
            args = ("cpu",)
        begin(self, *map(mapped, args), **{k: mapped(v) for k, v in kwargs.items()})

    stack.enter_context(mock.patch.object(plain, "__init__", init))


def _still(stack: ExitStack, module: Any) -> None:
    """The device's module answers as if it were there and had nothing to do."""
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "synchronize": lambda *args, **kwargs: None,
        "empty_cache": lambda: None,
        "set_device": lambda *args: None,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "memory_allocated": lambda *args: 0,
        "max_memory_allocated": lambda *args: 0,
        "memory_reserved": lambda *args: 0,
        "reset_peak_memory_stats": lambda *args: None,
        "is_bf16_supported": lambda *args: True,
    }
    for name, answer in answers.items():
        if hasattr(module, name):
            stack.enter_context(mock.patch.object(module, name, answer))
