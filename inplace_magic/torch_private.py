"""Every private call to torch: what it is asked for, the release it was seen in, and what happens where it is gone.

All were seen in torch 2.6 to 2.14. Where one is gone the package works on with less, as each docstring says, and
``tests/test_torch_private.py`` takes each of them away in turn. Frames of torch's Python code are private as well: they
are looked up here by their code objects.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.overrides


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


def unobserved() -> contextlib.AbstractContextManager[Any]:
    """No function mode sees what is done within. Gone: they see it, which costs time and does no harm."""
    return getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)()


def current_node() -> Any:
    """The node whose backward runs on this thread, or None. Gone: None, and a conflict is told without its node."""
    read = getattr(torch._C, "_current_autograd_node", None)
    return read() if read is not None else None


def sequence_number(node: Any) -> int:
    """The order in which nodes of one thread were made. Gone: 0, and nodes keep the order in which they are walked."""
    read = getattr(node, "_sequence_nr", None)
    return read() if read is not None else 0


def next_sequence_number() -> int:
    """The number that this thread's next node gets: ``_get_sequence_nr``. Gone: 0, and fixes are found without a trace."""
    read = getattr(torch.autograd, "_get_sequence_nr", None)
    return read() if read is not None else 0


def saved_tensors_hooks() -> tuple[Any, Any] | None:
    """The innermost pair of hooks on saved tensors, or None where there is none. Gone: None."""
    read = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return read(True) if read is not None else None


def pop_saved_tensors_hooks() -> None:
    """Takes the innermost pair off. Only where ``saved_tensors_hooks`` has told one. Gone: nothing is taken off."""
    pop = getattr(torch._C._autograd, "_pop_saved_tensors_default_hooks", None)
    if pop is not None:
        pop()


def saved_values(node: Any) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Each SavedTensor of a node, and the call that unpacks it, which checks its version. Gone: none.

    A value that the node itself has made cannot be unpacked without it, so the call goes by way of the node where it can.
    """
    for name in raw_names(type(node)):
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
