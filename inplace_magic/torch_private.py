"""Every private call to torch: what it is asked for, the release it was seen in, what happens where it is gone.

All were seen in torch 2.6 to 2.14 but where one says otherwise. Where one is gone the package works on with less, as each
docstring says, and ``tests/test_torch_private.py`` takes each of them away in turn. Frames of torch's Python code are
private as well: they are looked up here by their code objects.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.overrides
import torch.utils._python_dispatch


def version_of(tensor: torch.Tensor) -> int:
    """The version counter: ``Tensor._version``. -1 for an inference tensor, which has none. Gone: -1 for all."""
    try:
        return tensor._version
    except (RuntimeError, AttributeError):
        return -1


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Sets the version counter back. Gone: raises AttributeError; the counter stays higher than the writes account for."""
    setter: Any = torch._C._autograd._unsafe_set_version_counter
    try:
        setter((tensor,), (version,))
    except TypeError:  # releases that take one tensor
        setter(tensor, version)


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a view is a view of: ``Tensor._base``; None for what is no view. Gone: None for all, and views count as bases."""
    return getattr(tensor, "_base", None)


def storage_id(storage: torch.UntypedStorage) -> int:
    """Tells one storage from another while both live: ``_cdata``. Gone: 0, so that empty storages are all alike."""
    return getattr(storage, "_cdata", 0)


def batch_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The whole batch behind what ``torch.vmap`` hands to a function: ``_functorch.get_unwrapped``; None for any other tensor,
    those of ``torch.func.grad`` among them, whose graph no hook sees. Gone: None for all, and the line that writes in there is
    not found.
    """
    functorch = getattr(torch._C, "_functorch", None)
    is_batched, get = (getattr(functorch, name, None) for name in ("is_batchedtensor", "get_unwrapped"))
    return get(tensor) if is_batched is not None and get is not None and is_batched(tensor) else None


def unobserved() -> contextlib.AbstractContextManager[Any]:
    """No function mode sees what is done within. Gone: they see it, which costs time and does no harm."""
    return getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)()


def current_node() -> Any:
    """The node whose backward runs on this thread, or None. Gone: None, and a conflict is told without its node."""
    read = getattr(torch._C, "_current_autograd_node", None)
    return read() if read is not None else None


def sequence_number(node: Any) -> int:
    """The order in which nodes of one thread were made. Gone: 0, nodes keep the order in which they are walked, and no
    tensor is followed to its second name.
    """
    read = getattr(node, "_sequence_nr", None)
    return read() if read is not None else 0


def next_sequence_number() -> int:
    """The number that this thread's next node gets: ``_get_sequence_nr``. Gone: 0, and fixes are found without a trace."""
    read = getattr(torch.autograd, "_get_sequence_nr", None)
    return read() if read is not None else 0


def saved_tensors_hooks() -> tuple[Any, Any] | None:
    """The innermost pair of hooks on saved tensors, or None where there is none. Gone, as in torch 2.6: None."""
    read = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return read(True) if read is not None else None


def saved_tensors_hooks_tell() -> bool:
    """Whether ``saved_tensors_hooks`` knows."""
    return hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")


# What a SavedTensor says of itself: torch 2.6 has none of it, 2.13 has it all. Without it, unpacking may call a hook of
# the person's.
SAVED_TENSORS_TELL = all(
    hasattr(getattr(torch._C._autograd, "SavedTensor", None), name) for name in ("data", "unpack", "unpack_hook")
)


def saved_values(node: Any) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Each SavedTensor of a node, and the call that unpacks it, which checks its version. Gone, as in torch 2.6: none.

    A value that the node itself has made cannot be unpacked without it, so the call goes by way of the node where it can.
    """
    for name in raw_names(type(node)) if SAVED_TENSORS_TELL else ():
        try:
            raw = getattr(node, name)
        except RuntimeError:
            continue  # freed
        if isinstance(raw, (tuple, list)):
            yield from ((one, one.unpack) for one in raw)
        else:
            yield raw, lambda name=name: getattr(node, name.removeprefix("_raw"))  # type: ignore[misc]


_RAW_NAMES: dict[type, tuple[str, ...]] = {}


def raw_names(kind: type) -> tuple[str, ...]:
    """The attributes under which nodes of a kind keep their SavedTensors, unpacked by nobody. Gone: none."""
    if kind not in _RAW_NAMES:
        _RAW_NAMES[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    return _RAW_NAMES[kind]


def _code_of(owner: Any, name: str) -> types.CodeType | None:
    return getattr(getattr(owner, name, None), "__code__", None)


# Both run Python code of the person's from within the engine. Gone: what is written there is not noticed.
ENGINE_CODE = _code_of(torch.autograd.graph, "_engine_run_backward")
FUNCTION_BACKWARD_CODE = _code_of(getattr(torch.autograd.function, "BackwardCFunction", None), "apply")


def applied_by() -> type:
    """What ``Function.apply`` goes on to: ``_SingleLevelFunction``. Whoever has taken it off its class (``relu = MyReLU.apply``)
    comes by here as well. Gone: ``Function``, and what was taken off before a run is not seen.
    """
    return getattr(torch.autograd.function, "_SingleLevelFunction", torch.autograd.Function)


def variable_meta() -> type | None:
    """The class of the class ``torch.autograd.Variable``, which calls it: ``VariableMeta``. Gone: None, and what it makes is not
    seen."""
    found = type(getattr(torch.autograd, "Variable", None))
    return found if found.__module__ == "torch.autograd.variable" else None


def roots_of(frame: types.FrameType) -> tuple[Any, ...] | None:
    """What the engine was called on, if this is the frame that called it, else None. Gone: None."""
    if ENGINE_CODE is None or frame.f_code is not ENGINE_CODE:
        return None
    found = frame.f_locals.get("t_outputs", ())
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def pop_function_mode() -> None:
    """Takes the innermost function mode off for a while. Gone: it stays, and sees what it need not."""
    pop = getattr(torch.overrides, "_pop_mode", None)
    if pop is not None:
        pop()


def push_function_mode(mode: torch.overrides.TorchFunctionMode) -> None:
    """Puts the mode that ``pop_function_mode`` took off back on. Gone: nothing, for it stayed on."""
    push = getattr(torch.overrides, "_push_mode", None)
    if push is not None:
        push(mode)


def retyped(tensor: torch.Tensor, kind: type, requires_grad: bool) -> torch.Tensor:
    """The same memory as a leaf of another class, such as a Parameter: ``Tensor._make_subclass``. Gone: raises AttributeError."""
    return torch.Tensor._make_subclass(kind, tensor, requires_grad)


def view_creation(tensor: torch.Tensor) -> Any:
    """How a view was made (without grad mode, as one of several); None for what is no view. Gone: None."""
    read = getattr(torch._C._autograd, "_get_creation_meta", None)
    return read(tensor).name if read is not None and tensor._is_view() else None


def set_view_creation(tensor: torch.Tensor, creation: str) -> None:
    """Sets what ``view_creation`` has told of another view. Gone: the view counts as made where it is."""
    set_creation = getattr(torch._C._autograd, "_set_creation_meta", None)
    if set_creation is not None and tensor._is_view():
        set_creation(tensor, getattr(torch._C._autograd.CreationMeta, creation))


def default_device() -> torch.device | None:
    """What ``torch.set_default_device`` was told; None where it was not. Gone: None."""
    context = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    return getattr(context, "device", None)


_STACK = (
    "DisableTorchFunction",
    "_get_function_stack_at",
    "_len_torch_function_stack",
    "_pop_torch_function_stack",
    "_push_on_torch_function_stack",
)


def function_modes() -> list[Any]:
    """Those of this thread, the one that sees a call first at the end. Gone: none."""
    if any(not hasattr(torch._C, name) for name in _STACK):
        return []
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def on_top(mode: torch.overrides.TorchFunctionMode) -> bool:
    """Whether this is the function mode that the next call meets first."""
    modes = function_modes()
    return bool(modes) and modes[-1] is mode


def set_function_modes(modes: list[Any]) -> None:
    """Only where `function_modes` has given any, or could have."""
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def pop_saved_tensors_hooks_while(those: Callable[[Any], bool]) -> None:
    """As many from the innermost one on as the question is answered yes for."""
    autograd: Any = torch._C._autograd
    while (top := saved_tensors_hooks()) is not None and those(top):
        autograd._pop_saved_tensors_default_hooks()


class around_backward:
    """Calls before(roots, retain_graph) ahead of every backward and grad, and enters the mode for the time of it.

    ``loss.backward()`` is itself a call that a function mode sees; while it lasts the mode is off, and with it what the
    person's own hooks and functions do in a backward would go unseen. Where the mode is on all the same, it stays so.

    Both go through one function of torch.autograd. Gone: the public two are wrapped, which misses what
    ``from torch.autograd import backward`` bound earlier. Not a generator, for the reason given at `unobserved`.
    """

    def __init__(self, before: Callable[..., None], mode: torch.overrides.TorchFunctionMode) -> None:
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

    def __init__(self, mode: torch.overrides.TorchFunctionMode) -> None:
        self._mode = mode
        self._pushed = False

    def __enter__(self) -> None:
        self._pushed = not on_top(self._mode)
        if self._pushed:
            torch.overrides.TorchFunctionMode.__enter__(self._mode)

    def __exit__(self, *exception: Any) -> None:
        if self._pushed and on_top(self._mode):  # else an interrupt came while torch had it off for a moment
            torch.overrides.TorchFunctionMode.__exit__(self._mode, None, None, None)


def patched() -> list[tuple[Any, str]]:
    """What is replaced while a rerun is watched: an interrupt between the replacing and its end leaves it so."""
    return [
        (torch.autograd, "_engine_run_backward"),
        (torch.autograd, "backward"),
        (torch.autograd, "grad"),
        (torch.autograd.graph, "disable_saved_tensors_hooks"),
        (torch.autograd.function.FunctionCtx, "save_for_backward"),
        (torch.autograd.function.FunctionCtx, "mark_dirty"),
        (applied_by(), "apply"),
        (torch.Tensor, "backward"),
        (torch.nn.Parameter, "__new__"),
        (torch.no_grad, "__enter__"),
        (torch.no_grad, "__exit__"),
        *([(variable, "__call__")] if (variable := variable_meta()) is not None else []),
        (torch.autograd.graph.saved_tensors_hooks, "__enter__"),
        (torch.autograd.graph.saved_tensors_hooks, "__exit__"),
    ]


def step_hooks() -> list[dict[Any, Any]]:
    """The hooks on the steps of all optimizers. Gone: an interrupt could leave one of ours, which then does nothing."""
    names = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    module = importlib.import_module("torch.optim.optimizer")  # torch.optim takes the name away from itself
    return [hooks for name in names if isinstance(hooks := getattr(module, name, None), dict)]


class out_of_sight(contextlib.ExitStack):
    """No function mode, dispatch mode or history sees what is done within. Gone: that one sees it, without harm.

    Not a generator: one that an interrupt has left half-way is closed when garbage is collected, and would set torch's
    switches in the midst of something else.
    """

    def __enter__(self) -> out_of_sight:
        self.enter_context(torch.no_grad())
        self.enter_context(getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)())
        if getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)():
            self.enter_context(
                getattr(torch.utils._python_dispatch, "_disable_current_modes", contextlib.nullcontext)()
            )
        return self


def _checkpoint(name: str) -> Any:
    import torch.utils.checkpoint

    return getattr(torch.utils.checkpoint, name, None)


# Seen in 2.13: the hooks that a checkpoint without reentry enters around its forward, those around its recomputation,
# and the Function with reentry (which is public). Gone: the hooks count as hooks of the person's own, and a packed object
# without any tensor is said not to have been looked at.
CHECKPOINT_HOOKS = tuple(kind for kind in (_checkpoint("_checkpoint_hook"),) if kind is not None)
RECOMPUTATION_HOOKS = tuple(kind for kind in (_checkpoint("_recomputation_hook"),) if kind is not None)
CHECKPOINT_FUNCTION = _checkpoint("CheckpointFunction")

# Seen in 2.13: the identity on whose nodes a module's full backward hooks hang. Gone: what such a hook writes is not
# followed into a sum that is formed after it, and gradients that it alone uses are said to be used by nobody.
MODULE_HOOK_FUNCTION = getattr(getattr(torch.nn.modules, "_functions", None), "BackwardHookFunction", None)


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The indices and values of a COO tensor, coalesced or not. Gone: none, and writes into them are not seen."""
    if not hasattr(tensor, "_indices"):
        return ()
    return tensor._indices(), tensor._values()
