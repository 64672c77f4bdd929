"""Every private call to torch that the undo log makes, seen in torch 2.13, and what happens where one is gone."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...torch_private import saved_tensors_hooks, set_version

__all__ = ["saved_tensors_hooks", "set_version"]


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


class unobserved(ExitStack):
    """No function mode, dispatch mode or history sees what is done within. Gone: that one sees it, without harm.

    Not a generator: one that an interrupt has left half-way is closed when garbage is collected, and would set torch's
    switches in the midst of something else.
    """

    def __enter__(self) -> unobserved:
        self.enter_context(torch.no_grad())
        self.enter_context(getattr(torch._C, "DisableTorchFunction", nullcontext)())
        if getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)():
            self.enter_context(getattr(_dispatch(), "_disable_current_modes", nullcontext)())
        return self


def observing() -> bool:
    """Whether function modes see anything on this thread. Gone: they are taken to."""
    return getattr(torch._C, "_is_torch_function_enabled", lambda: True)()


def _dispatch() -> Any:
    import torch.utils._python_dispatch

    return torch.utils._python_dispatch


_STACK = (
    "DisableTorchFunction",
    "_get_function_stack_at",
    "_len_torch_function_stack",
    "_pop_torch_function_stack",
    "_push_on_torch_function_stack",
)


def stacks() -> Iterator[Callable[[], None]]:
    """The ways back for what torch pushes and pops: an interrupt in the midst of that leaves it askew.

    Function modes and whether they are on, the default device (which is one of them), and hooks on saved tensors.
    Gone: an interrupt at the wrong moment could leave a mode of ours behind.
    """
    if any(not hasattr(torch._C, name) for name in _STACK):
        return
    switch: Any = torch._C.DisableTorchFunction()
    switch.__enter__()  # notes how it was
    switch.__exit__(None, None, None)
    modes = function_modes()
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    devices = [(context, "device_context"), (_device_module(), "CURRENT_DEVICE")]
    before = [getattr(owner, name, None) for owner, name in devices]

    def modes_and_devices() -> None:
        switch.__exit__(None, None, None)
        for (owner, name), value in zip(devices, before):
            if getattr(owner, name, None) is not value:
                setattr(owner, name, value)
        set_function_modes(modes)

    yield modes_and_devices
    hooks = saved_tensors_hooks()
    yield lambda: pop_saved_tensors_hooks(lambda top: not _same_hooks(top, hooks))


def function_modes() -> list[Any]:
    """Those of this thread, the one that sees a call first at the end. Gone: none."""
    if any(not hasattr(torch._C, name) for name in _STACK):
        return []
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def on_top(mode: TorchFunctionMode) -> bool:
    """Whether this is the function mode that the next call meets first."""
    modes = function_modes()
    return bool(modes) and modes[-1] is mode


def set_function_modes(modes: list[Any]) -> None:
    """Only where `function_modes` has given any, or could have."""
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def pop_saved_tensors_hooks(those: Callable[[Any], bool]) -> None:
    """As many from the innermost one on as the question is answered yes for."""
    autograd: Any = torch._C._autograd
    while (top := saved_tensors_hooks()) is not None and those(top):
        autograd._pop_saved_tensors_default_hooks()


def _same_hooks(a: Any, b: Any) -> bool:
    return b is not None and all(x is y for x, y in zip(a, b))


def _device_module() -> Any:
    import torch.utils._device

    return torch.utils._device


class around_backward:
    """Calls before(roots, retain_graph) ahead of every backward and grad, and enters the mode for the time of it.

    ``loss.backward()`` is itself a call that a function mode sees; while it lasts the mode is off, and with it what the
    person's own hooks and functions do in a backward would go unseen. Where the mode is on all the same, it stays so.

    Both go through one function of torch.autograd. Gone: the public two are wrapped, which misses what
    ``from torch.autograd import backward`` bound earlier. Not a generator, for the reason given at `unobserved`.
    """

    def __init__(self, before: Callable[..., None], mode: TorchFunctionMode) -> None:
        self._before, self._mode = before, mode
        self._originals: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> None:
        names = [n for n in ("_engine_run_backward",) if hasattr(torch.autograd, n)] or ["backward", "grad"]
        self._originals = {name: getattr(torch.autograd, name) for name in names}
        for name, original in self._originals.items():
            setattr(torch.autograd, name, self._wrap(original))

    def __exit__(self, *exception: Any) -> None:
        for name, original in self._originals.items():
            setattr(torch.autograd, name, original)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        before, mode = self._before, self._mode

        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            before(roots, args[1] if len(args) > 1 else kwargs.get("retain_graph"))
            with _Seeing(mode):
                return original(roots, *args, **kwargs)

        return run


class _Seeing:
    """The mode on, without what else comes with it. Not a generator, for the reason given at `unobserved`."""

    def __init__(self, mode: TorchFunctionMode) -> None:
        self._mode = mode
        self._pushed = False

    def __enter__(self) -> None:
        self._pushed = not on_top(self._mode)
        if self._pushed:
            TorchFunctionMode.__enter__(self._mode)

    def __exit__(self, *exception: Any) -> None:
        if self._pushed and on_top(self._mode):  # else an interrupt came while torch had it off for a moment
            TorchFunctionMode.__exit__(self._mode, None, None, None)


def patched() -> list[tuple[Any, str]]:
    """What is replaced while a rerun is watched: an interrupt between the replacing and its end leaves it so."""
    return [
        (torch.autograd, "_engine_run_backward"),
        (torch.autograd, "backward"),
        (torch.autograd, "grad"),
        (torch.autograd.graph, "disable_saved_tensors_hooks"),
        (torch.autograd.function.FunctionCtx, "save_for_backward"),
        (torch.autograd.function.FunctionCtx, "mark_dirty"),
        (torch.autograd.Function, "apply"),
        (torch.Tensor, "backward"),
        (torch.nn.Parameter, "__new__"),
    ]


def step_hooks() -> list[dict[Any, Any]]:
    """The hooks on the steps of all optimizers. Gone: an interrupt could leave one of ours, which then does nothing."""
    names = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    module = importlib.import_module("torch.optim.optimizer")  # torch.optim takes the name away from itself
    return [hooks for name in names if isinstance(hooks := getattr(module, name, None), dict)]


def print_options() -> Any:
    """The object that holds torch.set_printoptions. Gone: None, and they are not put back."""
    return getattr(torch._tensor_str, "PRINT_OPTS", None)
