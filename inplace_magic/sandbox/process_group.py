"""A process group in a copy of the process, which has none of its threads; its peers must not hear of it.

Every collective is answered as if all ranks held what this one holds. That is exact for a group of one; for a larger one
the gradients are those of this rank alone, in the run as written and in a rewritten one alike.

NOTE. Only calls from Python can be answered. DistributedDataParallel's own reduction, which is C++ and hangs from each
parameter, is switched off as ``no_sync()`` does it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ..message import message


def in_use() -> bool:
    """Whether this process is in a group."""
    distributed = torch.distributed if torch.distributed.is_available() else None
    return distributed is not None and distributed.is_initialized()


def size() -> int:
    """How many ranks the group has."""
    return int(torch.distributed.get_world_size())


def cannot_serve() -> str | None:
    """Why a copy is no use in this group, known at once; None if it serves."""
    if not in_use():
        return None
    backend = str(torch.distributed.get_backend())
    if backend not in ("gloo", "fake"):
        return message("foreign_group", backend=backend)
    for module in (
        "torch.distributed.fsdp._fully_shard._fully_shard",
        "torch.distributed.fsdp.fully_sharded_data_parallel",
    ):
        sharded = sys.modules.get(module)
        if sharded is not None and _counts(sharded):
            return message("sharded")
    return None


def _counts(module: Any) -> bool:
    """Whether anything has been sharded; the modules alone are imported by other libraries as well."""
    kinds = tuple(k for k in (getattr(module, n, None) for n in ("FSDPModule", "FullyShardedDataParallel")) if k)
    import gc

    return any(issubclass(type(o), kinds) for o in gc.get_objects()) if kinds else False


@contextmanager
def alone() -> Iterator[None]:
    """While active, in a copy: collectives come back at once. Without a group it does nothing."""
    if not in_use():
        yield
        return
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    group = distributed.ProcessGroup
    with ExitStack() as undo:
        for name, answer in _ANSWERS.items():
            if hasattr(group, name):
                _put(undo, group, name, answer)
        for owner in (distributed, sys.modules["torch.distributed.distributed_c10d"]):
            _put(undo, owner, "init_process_group", lambda *args, **kwargs: None)
            _put(undo, owner, "destroy_process_group", lambda *args, **kwargs: None)
            for name, answer in (("_broadcast_coalesced", _same_values), ("_verify_params_across_processes", _nothing)):
                if hasattr(owner, name):
                    _put(undo, owner, name, answer)
        _put(undo, DistributedDataParallel, "_pre_forward", _unsynchronised(DistributedDataParallel._pre_forward))
        yield


def _put(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _unsynchronised(plain: Callable[..., Any]) -> Callable[..., Any]:
    def _pre_forward(module: Any, *inputs: Any, **kwargs: Any) -> Any:
        module.require_backward_grad_sync = False
        reducer, module.reducer = module.reducer, _Idle()  # it makes its buckets known to the other ranks
        try:
            return plain(module, *inputs, **kwargs)
        finally:
            module.reducer = reducer

    return _pre_forward


class _Idle:
    """Stands in for DDP's reducer during a forward."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


# ---- answers --------------------------------------------------------------------------------------------------------


class _Done:
    """A collective that is over."""

    def __init__(self, result: Any = None) -> None:
        self._result = result

    def wait(self, *timeout: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result

    def get_future(self) -> Any:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._result)
        return future


def _nothing(*args: Any, **kwargs: Any) -> Any:
    return _Done()


def _same_values(group: Any, tensors: Any, *rest: Any) -> Any:
    """A broadcast of what everybody has: each tensor is written, as the real one writes it."""
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(tensor.clone())
    return _Done(list(tensors))


def _reduced(group: Any, tensors: Any, options: Any = None, *rest: Any) -> Any:
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    operation = getattr(options, "reduceOp", options)
    if operation is None or operation == torch.distributed.ReduceOp.SUM:
        with torch.no_grad():
            for tensor in tensors:
                tensor.mul_(group.size())
    return _Done(tensors)


def _filled(targets: Any, source: torch.Tensor) -> None:
    for target in targets:
        if isinstance(target, torch.Tensor):
            target.copy_(source.reshape(target.shape) if target.numel() == source.numel() else source)
        else:
            _filled(target, source)


def _gathered(group: Any, outputs: Any, inputs: Any, *rest: Any) -> Any:
    with torch.no_grad():
        for output, source in zip(outputs, inputs):
            _filled(output, source)
    return _Done(outputs)


def _gathered_flat(group: Any, output: torch.Tensor, source: torch.Tensor, *rest: Any) -> Any:
    with torch.no_grad():
        output.copy_(torch.cat([source.reshape(-1)] * group.size()).reshape(output.shape))
    return _Done([output])


def _scattered(group: Any, outputs: Any, inputs: Any, *rest: Any) -> Any:
    with torch.no_grad():
        for output, sources in zip(outputs, inputs or ()):
            output.copy_(sources[group.rank()])
    return _Done(outputs)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "allreduce": _reduced,
    "allreduce_coalesced": _reduced,
    "reduce": _reduced,
    "broadcast": _nothing,
    "barrier": _nothing,
    "monitored_barrier": _nothing,
    "allgather": _gathered,
    "gather": _gathered,
    "_allgather_base": _gathered_flat,
    "all_gather_single": _gathered_flat,
    "scatter": _scattered,
}
