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

_Generator = torch.Generator
_TO_DEVICE = ("cuda", "xpu", "mps", "hpu", "npu", "ipu", "mtia")


class OnCPU(TorchFunctionMode):
    """Maps a kind of device to the CPU in all that torch's functions are given."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self._moves = {getattr(torch.Tensor, name, None) for name in {kind, "pin_memory", *_TO_DEVICE}} - {None}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self._moves:  # x.cuda(), x.pin_memory()
            return args[0]
        if func is torch.device:  # without a number, so that it is equal to that of a tensor
            return self.mapped(func(*args, **(kwargs or {})))
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
        for kind_of_object in (torch.amp.autocast, torch.amp.GradScaler):
            _begun_mapped(stack, kind_of_object, mode.mapped)
        stack.enter_context(mock.patch.object(torch, "Generator", _generators(mode.mapped)))
        module = getattr(torch, kind, None)
        if module is not None:
            _still(stack, module)
        stack.enter_context(mode)
        yield


def _generators(mapped: Callable[[Any], Any]) -> type:
    """Stands for ``torch.Generator``, whose ``__new__`` cannot be replaced: makes some of the CPU, and is their class."""

    class Kind(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            return _Generator(device=mapped(device))

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, _Generator)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, _Generator)

    return Kind("Generator", (), {})


def _begun_mapped(stack: ExitStack, plain: Any, mapped: Callable[[Any], Any]) -> None:
    """Objects of this class are begun with the CPU where the device was asked for."""
    begin = plain.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not args and "device" not in kwargs and plain is torch.amp.GradScaler:
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
        "manual_seed": torch.default_generator.manual_seed,  # not torch's function: that one calls these
        "manual_seed_all": torch.default_generator.manual_seed,
        "memory_allocated": lambda *args: 0,
        "max_memory_allocated": lambda *args: 0,
        "memory_reserved": lambda *args: 0,
        "reset_peak_memory_stats": lambda *args: None,
        "is_bf16_supported": lambda *args: True,
    }
    for name, answer in answers.items():
        if hasattr(module, name):
            stack.enter_context(mock.patch.object(module, name, answer))
