"""Which torch calls write into which of their arguments, told from the call alone.

torch keeps one convention for in-place work: a trailing underscore. The rest (``out=``, ``inplace=``, subscript
assignment, the fused optimizers, running statistics, ``max_norm``) is listed here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..storage import storage_key

Signature = Mapping[str, Any]  # the parameters in order, with their defaults
Targets = Callable[[Sequence[Any], Mapping[str, Any]], list[Any]]

_INPLACE_DUNDERS = frozenset(
    f"__i{name}__"
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
        "matmul",
    ]
) | {"__setitem__", "__idiv__"}
# Another shape for the same memory: no element is written.
RESHAPES = frozenset({"unsqueeze_", "squeeze_", "t_", "transpose_", "resize_", "as_strided_", "swapaxes_", "swapdims_"})
# Fill a tensor with random numbers, one for each place in memory.
SAMPLERS = frozenset({
    "bernoulli_", "normal_", "uniform_", "random_", "exponential_", "log_normal_", "geometric_", "cauchy_",
})  # fmt: skip
# A trailing underscore that changes neither data nor version.
HARMLESS = frozenset({"requires_grad_", "retain_grad_", "rename_", "share_memory_", "record_stream_"})
_ROWS = 16  # of a matrix that is written out, and items of a row


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument, lists and tuples of tensors included, and those of a small matrix, ``[[c, -s], [s, c]]``."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        rows = len(value) <= _ROWS
        for item in value:
            if isinstance(item, torch.Tensor):
                yield item
            elif rows and isinstance(item, (list, tuple)) and len(item) <= _ROWS:
                yield from (one for one in item if isinstance(one, torch.Tensor))


def _first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    if args and isinstance(args[0], torch.Tensor):
        return [args[0]]
    named = (kwargs[k] for k in ("self", "input", "tensor") if k in kwargs)
    value = args[0] if args else next(named, next(iter(kwargs.values()), None))
    return list(tensors_in(value))


def _all_lists(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    # A fused optimizer writes its parameters and every buffer of state; the gradients it may unscale as well.
    return [t for value in (*args, *kwargs.values()) if isinstance(value, (list, tuple)) for t in tensors_in(value)]


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors among a call's arguments."""
    return [tensor for value in (*args, *kwargs.values()) for tensor in tensors_in(value)]


def out_targets(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """What a call writes through ``out=``."""
    return list(tensors_in(kwargs.get("out")))


def _argument(signature: Signature, name: str) -> Callable[[Sequence[Any], Mapping[str, Any]], Any]:
    """How to read one argument of a call; its default where the call leaves it out."""
    index = list(signature).index(name)

    def get(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(name) if name in kwargs else (args[index] if index < len(args) else signature[name])

    return get


def _flagged(signature: Signature) -> Targets:
    inplace = _argument(signature, "inplace")
    return lambda args, kwargs: _first(args, kwargs) if inplace(args, kwargs) else []


def _statistics(signature: Signature, flag: str) -> Targets:
    mean, var, on = (_argument(signature, name) for name in ("running_mean", "running_var", flag))

    def targets(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        return [*tensors_in(mean(args, kwargs)), *tensors_in(var(args, kwargs))] if on(args, kwargs) else []

    return targets


def _renormalised(signature: Signature) -> Targets:
    weight, limit = _argument(signature, "weight"), _argument(signature, "max_norm")
    return lambda args, kwargs: list(tensors_in(weight(args, kwargs))) if limit(args, kwargs) is not None else []


def _signature(func: Callable[..., Any]) -> Signature:
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: None if p.default is p.empty else p.default for p in parameters}


_BATCH_NORM = dict.fromkeys(("input", "weight", "bias", "running_mean", "running_var", "training"))


def writer(func: Callable[..., Any]) -> Targets | None:
    """How to find what a call of ``func`` writes, or None if it can only write through ``out=``."""
    name = plain_name(func)
    if name in _INPLACE_DUNDERS:
        return _first
    if name.startswith("_fused_") and name.endswith("_"):
        return _all_lists
    if name.endswith("_") and not name.endswith("__"):
        return None if name in HARMLESS else _first
    if name == "batch_norm" and not inspect.isfunction(func):
        return _statistics(_BATCH_NORM, "training")
    if inspect.isfunction(func):
        signature = _signature(func)
        if "inplace" in signature:
            return _flagged(signature)
        if "max_norm" in signature and "weight" in signature:
            return _renormalised(signature)
        if "running_mean" in signature and "running_var" in signature:
            return _statistics(signature, "training" if "training" in signature else "use_input_stats")
    return None


def written(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors that this call is going to write."""
    targets = writer(func)
    found = targets(args, kwargs) if targets is not None else []
    return found + out_targets(args, kwargs) if "out" in kwargs else found


class Writers:
    """What calls write, asked for every call: what is known of a function is kept.

    ``plain`` holds the functions that can write only through ``out=``, as far as ``may_be_plain`` lets them be called
    without a closer look.
    """

    def __init__(self, may_be_plain: Callable[[Callable[..., Any]], bool]) -> None:
        self.plain: set[Any] = set()
        self._targets: dict[Any, Targets | None] = {}
        self._may_be_plain = may_be_plain

    def written(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors that this call is going to write."""
        try:
            targets = self._targets[func]
        except KeyError:
            targets = self._targets[func] = writer(func)
            if targets is None and self._may_be_plain(func):
                self.plain.add(func)
        except TypeError:  # an unhashable callable
            targets = None
        found = targets(args, kwargs) if targets is not None else None
        return [*(found or ()), *out_targets(args, kwargs)] if "out" in kwargs else found or []


def own_operands(args: Sequence[Any], kwargs: Mapping[str, Any], written: Sequence[Any]) -> frozenset[int]:
    """The storages that a call writes and reads from as another operand: ``y *= y``, ``y[0] *= y[1]``."""
    tensors = arguments(args, kwargs)
    if len(tensors) <= len(written):
        return frozenset()
    keys = [key for tensor in tensors if (key := storage_key(tensor)) is not None]
    return frozenset(key for tensor in written if (key := storage_key(tensor)) is not None and keys.count(key) > 1)


def plain_name(func: Callable[..., Any]) -> str:
    """torch's name of an operation as people know it: ``add_``, also of its overload ``add_.Tensor``, ``__setitem__``."""
    return getattr(func, "__name__", "").partition(".")[0] or str(func)
