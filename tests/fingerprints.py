"""A deep fingerprint of a session: everything its names lead to, by identity and contents, and what surrounds it.

It knows nothing of how a rerun keeps or puts back anything, and looks without changing what it looks at.
"""

from __future__ import annotations

import collections
import functools
import gc
import linecache
import os
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from inplace_magic import torch_private

ATOMS = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_SKIPPED = ("IPython", "ipykernel", "traitlets", "prompt_toolkit", "inplace_magic", "_pytest", "hypothesis")


class Ref(int):
    """An address: to be compared as it is within a process, and by order of appearance between two."""


class Fingerprint:
    """Everything reachable from some roots, and the surroundings."""

    def __init__(self, *roots: Any, shell: Any = None) -> None:
        self.kept: list[Any] = []
        self.of: dict[int, Any] = {}
        todo = list(reversed(roots))
        while todo:
            obj = todo.pop()
            if id(obj) in self.of or isinstance(obj, types.ModuleType) or type(obj).__module__.startswith(_SKIPPED):
                continue
            self.kept.append(obj)
            contents, children = describe(obj)
            self.of[id(obj)] = (type(obj).__name__, Ref(id(type(obj))), contents, [ref(child) for child in children])
            todo += [c for c in reversed(children) if not isinstance(c, ATOMS)]
        self.around = surroundings() | (of_shell(shell) if shell is not None else {})

    def differences(self, other: Fingerprint) -> Iterator[str]:
        for key in self.of.keys() | other.of.keys():
            if self.of.get(key) != other.of.get(key):
                yield f"{self.of.get(key)} became {other.of.get(key)}"[:2000]
        for key in self.around:
            if self.around[key] != other.around[key]:
                yield f"{key}: {str(self.around[key])[:300]} became {str(other.around[key])[:300]}"

    def canonical(self) -> list[Any]:
        """The same for two sessions in two processes that have gone through the same."""
        numbers: dict[int, int] = {}

        def plain(value: Any) -> Any:
            if isinstance(value, Ref):
                return ("#", numbers.setdefault(int(value), len(numbers)))
            if isinstance(value, (list, tuple)):
                return [plain(item) for item in value]
            return value

        return [plain((Ref(key), *facts)) for key, facts in self.of.items()] + [
            (name, plain(value)) for name, value in self.around.items() if name not in _OF_ONE_PROCESS
        ]


def ref(obj: Any) -> Any:
    return (type(obj).__name__, repr(obj)) if isinstance(obj, ATOMS) else Ref(id(obj))


def describe(obj: Any) -> tuple[Any, list[Any]]:  # noqa: C901 - a table of kinds
    """What an object is, and what it leads to."""
    if isinstance(obj, torch.Tensor):
        return describe_tensor(obj)
    if isinstance(obj, torch.autograd.graph.Node):
        return describe_node(obj)
    own = list(getattr(obj, "__dict__", {}).items()) if not isinstance(obj, type) else []
    flat = [part for pair in own for part in pair]
    if isinstance(obj, np.ndarray):
        inside = obj.ravel().tolist() if obj.dtype.hasobject else []
        return (obj.shape, obj.strides, obj.flags.writeable, b"" if inside else obj.tobytes()), inside
    if isinstance(obj, dict):
        return None, [part for pair in list(obj.items()) for part in pair] + flat
    if isinstance(obj, set | frozenset):
        return None, sorted(obj, key=lambda o: (str(type(o)), str(o)))
    if isinstance(obj, list | tuple | collections.deque):
        return None, list(obj) + flat
    if isinstance(obj, bytearray):
        return bytes(obj), []
    if isinstance(obj, random.Random):
        return obj.getstate(), []
    if isinstance(obj, torch.Generator):
        return obj.get_state().numpy().tobytes(), []
    if isinstance(obj, np.random.Generator):
        return str(obj.bit_generator.state), []
    if hasattr(obj, "getvalue"):
        return (obj.getvalue(), obj.tell()), []
    if isinstance(obj, types.FunctionType):
        return None, [obj.__code__, obj.__defaults__, obj.__kwdefaults__, *(obj.__closure__ or ()), *flat]
    if isinstance(obj, functools._lru_cache_wrapper):
        return tuple(obj.cache_info()), flat
    if isinstance(obj, types.GeneratorType):
        frame = obj.gi_frame
        return (None, []) if frame is None else (frame.f_lasti, [v for k, v in sorted(frame.f_locals.items())])
    if isinstance(obj, types.CellType):
        try:
            return None, [obj.cell_contents]
        except ValueError:
            return "empty", []
    if isinstance(obj, type):
        if obj.__module__ != "__main__":
            return None, []
        return None, [
            part for pair in sorted(vars(obj).items()) if pair[0] not in ("__dict__", "__weakref__") for part in pair
        ]
    if hasattr(type(obj), "__length_hint__"):
        return obj.__length_hint__(), []
    if hasattr(type(obj), "__slots__") and not own:
        return None, [getattr(obj, s, "(empty)") for s in type(obj).__slots__ if not s.startswith("__")]
    return None, flat


def describe_tensor(t: torch.Tensor) -> tuple[Any, list[Any]]:
    version = None if t.is_inference() else t._version
    node = _grad_fn(t)
    leaf = isinstance(node, str) or t.is_leaf
    retains = not leaf and t.retains_grad
    grad = t.grad if (leaf and not isinstance(node, str)) or retains else None
    facts = (version, t.requires_grad, leaf, retains, tuple(t.shape), str(t.dtype), t._is_view())
    children = [grad, node, t._backward_hooks, getattr(t, "_post_accumulate_grad_hooks", None), t.__dict__]
    if t._is_view():
        children.append(t._base)
    if t.device.type == "meta":
        return facts, children
    if t.layout is not torch.strided:
        plain = t.detach().to_dense()
        return (*facts, plain.numpy().tobytes()), children
    storage = t.untyped_storage()
    return (*facts, t.stride(), t.storage_offset(), Ref(storage._cdata), storage.nbytes(), _contents(t)), children


def _grad_fn(t: torch.Tensor) -> Any:
    try:
        return t.grad_fn
    except RuntimeError as error:  # a view whose base was changed in a forbidden way
        return str(error)


def _contents(t: torch.Tensor) -> bytes:
    # numpy() on the storage itself would make it one that cannot be resized.
    flat = torch.empty(0, dtype=torch.uint8, device="cpu").set_(t.untyped_storage())
    return flat.clone().numpy().tobytes()


def describe_node(node: Any) -> tuple[Any, list[Any]]:
    """A node of a graph, and whether each value that it saved is there still, and at which version."""
    saved = [(name, _state(node, name)) for name in dir(node) if name.startswith("_saved_")]
    return (node.name(), saved, sorted(node.metadata)), [below for below, _ in node.next_functions]


def _state(node: Any, name: str) -> str:
    try:
        value = getattr(node, name)
    except Exception as error:
        return str(error)
    return str(value._version) if isinstance(value, torch.Tensor) and not value.is_inference() else type(value).__name__


# In another process these differ by themselves.
_OF_ONE_PROCESS = frozenset({"threads of Python", "cell names"})


def surroundings() -> dict[str, Any]:
    return {
        "random": random.getstate(),
        "numpy": str(np.random.get_state()),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "modes": (
            torch._C._len_torch_function_stack(),
            torch._C._len_torch_dispatch_stack(),
            torch_private.saved_tensors_hooks() is None,
        ),
        "patches": [
            Ref(id(f))
            for f in (
                torch.autograd.backward,
                torch.autograd.grad,
                torch.autograd.graph._engine_run_backward,
                torch.autograd.graph.disable_saved_tensors_hooks,
                torch.Tensor.backward,
                torch.autograd.Function.__dict__["apply"],
                torch.autograd.function.FunctionCtx.save_for_backward,
                torch.autograd.function.FunctionCtx.mark_dirty,
                *sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks.values(),
                *sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks.values(),
            )
        ],
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
        ),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "print": str(vars(torch._tensor_str.PRINT_OPTS)),
        "numpy options": (str(np.geterr()), str(np.get_printoptions())),
        "warnings": (Ref(id(warnings.filters)), [str(f) for f in warnings.filters], Ref(id(warnings.showwarning))),
        "streams": [Ref(id(s)) for s in (sys.stdout, sys.stderr, sys.stdin, sys.displayhook, sys.excepthook)],
        "path": (Ref(id(sys.path)), list(sys.path), Ref(id(sys.argv)), list(sys.argv)),
        "last": [Ref(id(getattr(sys, n, None))) for n in ("last_type", "last_value", "last_traceback")],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "signals": [Ref(id(signal.getsignal(n))) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)],
        "recursion": sys.getrecursionlimit(),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "threads of Python": [(thread.name, thread.ident) for thread in threading.enumerate()],
        "tracing": (Ref(id(sys.gettrace())), Ref(id(sys.getprofile()))),
    }


def of_shell(shell: Any) -> dict[str, Any]:
    """What a person sees of their shell: numbers, inputs, outputs, history."""
    history = shell.history_manager
    return {
        "execution count": shell.execution_count,
        "inputs": (
            list(history.input_hist_raw),
            list(history.input_hist_parsed),
            history._i,
            history._ii,
            history._iii,
        ),
        "outputs": [(number, Ref(id(value))) for number, value in history.output_hist.items()],
        "underscores": [Ref(id(getattr(shell.displayhook, name, None))) for name in ("_", "__", "___")],
        "next input": shell.rl_next_input if hasattr(shell, "rl_next_input") else None,
        "cell names": {
            name: entry[2]
            for name, entry in linecache.cache.items()
            if len(entry) > 2 and ("ipython-input" in name or "ipykernel_" in name or "<session>" in name)
        },
        "hidden names": sorted(shell.user_ns_hidden),
        "transformers": [Ref(id(t)) for t in shell.ast_transformers],
        "publisher": Ref(id(shell.display_pub.publish.__func__))
        if hasattr(shell.display_pub.publish, "__func__")
        else Ref(id(shell.display_pub.publish)),
        "traceback": "showtraceback" in vars(shell),
    }
