"""Which tensors a call is about to write, and the mode that has them copied first.

The operations that write are those that the recorder knows. Here one too many costs a copy and one too few a tensor, so
all that may write is counted: by schema, by a way out of torch's sight, by a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ...record.operations import HARMLESS, writer
from . import private

if TYPE_CHECKING:
    from . import UndoLog

# Through these the memory itself gets out of torch's sight, so it counts as written. Not data_ptr: every kernel asks.
_ESCAPES = frozenset(
    ["numpy", "__array__", "__dlpack__", "untyped_storage", "storage", "_typed_storage", "__setstate__", "module_load"]
)


class CopyOnWrite(TorchFunctionMode):
    """Calls `UndoLog.before_write` for each tensor that a call within is about to write."""

    def __init__(self, log: UndoLog) -> None:
        super().__init__()
        self._log = log
        self._backward = private.around_backward(log.before_backward, self)

    def __enter__(self) -> CopyOnWrite:
        self._backward.__enter__()
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._backward.__exit__(*exception)
        # An interrupt within torch's own pushing and popping has lost us already; the stack is put right with all else.
        with suppress(RuntimeError) if exception[0] is not None else nullcontext():
            super().__exit__(*exception)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        announce(self._log, func, args, kwargs)
        return func(*args, **kwargs)


def announce(log: UndoLog, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Tell the log what the call will write. For a mode of one's own; `CopyOnWrite` is this and nothing else."""
    plan = _plan(func)
    if plan is None and "out" not in kwargs:
        return
    if plan is _retains:
        log.before_history(args[0])
        return
    differentiable = torch.is_grad_enabled() and plan is not _escaping and _name(func) not in HARMLESS
    with private.unobserved():
        differentiable = differentiable and any(t.requires_grad for t in _tensors((args, kwargs)))
        for tensor in _written(plan, args, kwargs):
            if differentiable:
                log.before_history(tensor)
            log.before_write(tensor)


_Plan = Callable[[tuple[Any, ...], dict[str, Any]], "Iterator[torch.Tensor]"]
_plans: dict[Any, _Plan | None] = {}


def _plan(func: Callable[..., Any]) -> _Plan | None:
    try:
        return _plans[func]
    except KeyError:
        plan = _plans[func] = _make_plan(func)
        return plan
    except TypeError:  # not hashable
        return _make_plan(func)


def _written(plan: _Plan | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    if plan is not None:
        yield from plan(args, kwargs)
    yield from _tensors(kwargs.get("out"))


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", "")


def _make_plan(func: Callable[..., Any]) -> _Plan | None:
    name = _name(func).partition(".")[0]
    if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return _all if _mutates(func) else None
    if name in _ESCAPES:
        return _escaping
    if name == "retain_grad":
        return _retains
    if name == "__set__":
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        return _first if attribute in ("real", "imag") else None
    if name.startswith(("_fused_", "_amp_")) and name.endswith("_"):
        return _all
    if name in HARMLESS:
        return _first  # no write, but the tensor is not what it was
    targets = writer(func)
    if targets is not None:
        return lambda args, kwargs: iter(targets(args, kwargs))
    return _statistics if "batch_norm" in name or "instance_norm" in name else None


def _mutates(op: torch._ops.OpOverload | torch._ops.OpOverloadPacket) -> bool:
    """By its schema; of a packet's overloads those with ``out=`` do not count, which is looked at for each call."""
    if isinstance(op, torch._ops.OpOverload):
        return op._schema.is_mutable
    arguments = [a for name in op.overloads() for a in getattr(op, name)._schema.arguments]
    return any(a.alias_info is not None and a.alias_info.is_write and not a.kwarg_only for a in arguments)


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    return _tensors(args[0] if args else next(iter(kwargs.values()), None))


def _escaping(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    return _first(args, kwargs)


def _retains(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Writes nothing, but there is no way back from a gradient that is retained."""
    return iter(())


def _all(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    return _tensors((args, kwargs))


def _statistics(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Running statistics are the vectors that want no gradient."""
    return (t for t in _tensors((args[1:], kwargs)) if t.dim() == 1 and not t.requires_grad)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
