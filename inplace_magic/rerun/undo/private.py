"""Every private call to torch that the undo log makes, seen in torch 2.13, and what happens where one is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Gone: AttributeError, which the caller reports as something that could not be put back."""
    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def storage_key(tensor: torch.Tensor) -> int | None:
    """The same for every view, alias and ``.data`` of one storage; None for a tensor without one (sparse, wrapper).

    Gone: the address of the data, which differs for an empty storage only.
    """
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
    return getattr(storage, "_cdata", None) or storage.data_ptr()


def sequence_number() -> int:
    """Nodes made from now on have this number or a higher one. Gone: read it from a node that we make."""
    read = getattr(torch._C._autograd, "_get_sequence_nr", None)
    if read is not None:
        return read()
    with torch.enable_grad():
        node: Any = torch.zeros(1, requires_grad=True).view(1).grad_fn
    return node._sequence_nr()


@contextmanager
def unobserved() -> Iterator[None]:
    """No function mode, dispatch mode or history sees what is done within. Gone: that one sees it, without harm."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for module, name in ((torch._C, "DisableTorchFunction"), (_dispatch(), "_disable_current_modes")):
            if hasattr(module, name):
                stack.enter_context(getattr(module, name)())
        yield


def _dispatch() -> Any:
    import torch.utils._python_dispatch

    return torch.utils._python_dispatch


@contextmanager
def around_backward(before: Callable[..., None]) -> Iterator[None]:
    """Calls before(roots, retain_graph) ahead of every backward and grad.

    Both go through one function of torch.autograd. Gone: the public two are wrapped, which misses what
    ``from torch.autograd import backward`` bound earlier.
    """
    names = [n for n in ("_engine_run_backward",) if hasattr(torch.autograd, n)] or ["backward", "grad"]
    originals = {name: getattr(torch.autograd, name) for name in names}

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            before(roots, args[1] if len(args) > 1 else kwargs.get("retain_graph"))
            return original(roots, *args, **kwargs)

        return run

    for name, original in originals.items():
        setattr(torch.autograd, name, wrap(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.autograd, name, original)


def default_device() -> Callable[[], None]:
    """Remembers whether a default device is set, and which; returns the way back. Gone: there is nothing to go back to."""
    holder = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    before = getattr(holder, "device_context", None)

    def restore() -> None:
        if getattr(holder, "device_context", None) is not before:
            torch.set_default_device(None if before is None else before.device)

    return restore


def print_options() -> Any:
    """The object that holds torch.set_printoptions. Gone: None, and they are not put back."""
    return getattr(torch._tensor_str, "PRINT_OPTS", None)
