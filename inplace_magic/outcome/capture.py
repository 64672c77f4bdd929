"""From a live namespace to the record of what it holds.

Values are digested (gradients/digest): a hundred numbers for a tensor, whatever its size, brought over from its device
in one piece.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import io
import itertools
import pickle
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..gradients.digest import digest
from ..session.names import history_of
from ..session.user_objects import join, modules_below, tensors_in, under
from ..source.own import attributes, is_a, is_own, own_names
from ..storage import shape_of
from ..torch_private import base_of, unobserved
from .kept import Leaf, Outcome, Value

_DEPTH = 5
_PATHS = 4_000  # in all, so that a session of many objects costs no more than a run
_ITEMS = 60  # of one container that are looked into, at its beginning and at its end
_ELEMENTS = 2**27  # of tensors in all; what is beyond is known by its shape alone
_PRINTED = 200_000  # bytes
_ROOTS = 4  # tensors from which a backward is tried
_TEXT = 200  # characters of a string that are kept as they are


class Printed(io.TextIOWrapper):
    """A standard output that keeps what is written to it, up to a limit; its file is that of the process."""

    def __init__(self) -> None:
        self._kept = _Kept()
        super().__init__(self._kept, encoding="utf-8", errors="surrogatepass", newline="", write_through=True)

    def fileno(self) -> int:
        return 1

    @property
    def text(self) -> str:
        return self._kept.getvalue().decode("utf-8", errors="replace")


class _Kept(io.BytesIO):
    """``text`` is read when a run is over, also if what it ran has closed its standard output."""

    name = "<stdout>"

    def close(self) -> None:
        pass

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def write(self, data: Any) -> int:
        left = _PRINTED - self.tell()
        if left > 0:
            super().write(data[:left])
        return len(data)


def outcome(
    namespace: Mapping[str, Any],
    printed: str = "",
    instead: Callable[[torch.Tensor], torch.Tensor] = lambda t: t,
    *,
    ahead: bool = False,
) -> Outcome:
    """What the user's names lead to now. ``instead`` gives the tensor that has another one's values.

    ``ahead``: also what a backward would give, by one from each of a few tensors; what their hooks do is not seen.
    """
    with unobserved(), torch.no_grad():
        capture = _Capture(instead)
        found = capture.outcome(namespace, printed)
        return replace(found, ahead=capture.ahead()) if ahead else found


class _Capture:
    def __init__(self, instead: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._instead = instead
        self._values: dict[str, Value] = {}
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self._optimizers: list[tuple[str, torch.optim.Optimizer]] = []
        self._above: set[int] = set()
        self._statistics: set[str] = set()
        self._left = _ELEMENTS

    def outcome(self, namespace: Mapping[str, Any], printed: str) -> Outcome:
        for name, value in own_names(namespace):
            self._visit(name, value, _DEPTH)
        holders: dict[int, list[str]] = {}
        for path, optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    holders.setdefault(id(parameter), []).append(path)
        leaves = {
            path: Leaf(self._digest(t.grad), tuple(dict.fromkeys(holders.get(id(t), ()))), is_a(t, torch.nn.Parameter))
            for path, t in self._tensors
            if _is_leaf(t)
        }
        computed = frozenset(path for path, t in self._tensors if history_of(t) is not None)
        return Outcome(printed, self._values, leaves, computed, _generators(), frozenset(self._statistics))

    def ahead(self) -> dict[str, dict[str, tuple[float, ...] | None] | None]:
        leaves = {path: t for path, t in self._tensors if _is_leaf(t)}
        roots: dict[int, tuple[str, torch.Tensor]] = {}
        for path, tensor in self._tensors:
            root = self._instead(tensor)
            if history_of(root) is not None and len(roots) < _ROOTS:
                roots.setdefault(id(tensor), (path, root))
        return {path: self._gradients(root, leaves) for path, root in roots.values()}

    def _gradients(
        self, root: torch.Tensor, leaves: Mapping[str, torch.Tensor]
    ) -> dict[str, tuple[float, ...] | None] | None:
        """By weights that tell the elements apart. None where a backward fails."""
        weights = torch.arange(root.numel(), device=root.device).cos().view(root.shape).to(root.dtype)
        try:
            found = torch.autograd.grad(root, [*leaves.values()], weights, retain_graph=True, allow_unused=True)
        except Exception:  # torch's own, or that of a Function or a hook of the user's
            return None
        return {path: self._digest(gradient) for path, gradient in zip(leaves, found)}

    def _visit(self, path: str, value: Any, depth: int) -> None:
        if len(self._values) >= _PATHS:
            return
        with contextlib.suppress(Exception):  # an object of the user's may refuse to be looked at
            known = self._plain(path, value)
            if known is not None:
                self._values[path] = known
            elif depth > 0 and id(value) not in self._above:
                self._above.add(id(value))
                try:
                    for inner, item in self._parts(path, value):
                        self._visit(inner, item, depth - 1)
                finally:
                    self._above.discard(id(value))

    def _plain(self, path: str, value: Any) -> Value | None:
        """The record of what has no parts; None for what has."""
        if is_a(value, torch.Tensor):
            self._tensors.append((path, value))
            return self._tensor(self._instead(value))
        if is_a(value, (bool, int, float, complex)) and not is_a(value, enum.Enum):
            return _number(value)
        if is_a(value, (str, bytes, type(None), enum.Enum)):
            return _string(value)
        numpy = sys.modules.get("numpy")
        if numpy is not None and is_a(value, numpy.generic):
            return _number(value.item()) if isinstance(value.item(), (int, float, complex)) else _string(str(value))
        if numpy is not None and is_a(value, numpy.ndarray):
            try:
                return self._tensor(torch.from_numpy(numpy.ascontiguousarray(value)))
            except TypeError:  # of objects or strings
                return Value("items", tuple(value.shape))
        if is_a(value, (list, tuple, deque)) and len(value) > 2 * _ITEMS and all(map(_is_real, value)):
            return Value("numbers", (len(value),), self._digest(torch.tensor([float(v) for v in value])))
        return None

    def _parts(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if is_a(value, (list, tuple, deque)):
            items = list(value)
            named = is_a(value, tuple) and type(value) is not tuple  # its items have names
            self._values[path] = Value("items", (len(items),), text=type(value).__name__ if named else "")
            chosen = range(len(items)) if len(items) <= 2 * _ITEMS else [*range(_ITEMS), *range(-_ITEMS, 0)]
            yield from ((f"{path}[{i}]", items[i]) for i in chosen)
        elif is_a(value, (set, frozenset)):
            self._values[path] = Value("items", (len(value),))
        elif is_a(value, dict):
            self._values[path] = Value("items", (len(value),))
            pairs = [(k, v) for k, v in dict.items(value) if is_a(k, (str, int, float, bool, tuple, enum.Enum))]
            told = ((under(path, k), v) for k, v in pairs[: 2 * _ITEMS])
            yield from ((inner, v) for inner, v in told if inner is not None)
        elif is_a(value, torch.nn.Module):
            modules = [*modules_below(path, value)]
            of_torch = [(base, one) for base, one in modules if _of_torch(one)]
            self._statistics |= {join(base, name) for base, one in of_torch for name, _ in tensors_in(one, "_buffers")}
            yield from _module(modules)
        elif is_a(value, torch.optim.Optimizer):
            self._optimizers.append((path, value))
            for i, group in enumerate(value.param_groups):
                yield from ((f"{path}.param_groups[{i}][{k!r}]", v) for k, v in group.items() if k != "params")
        elif is_a(value, torch.optim.lr_scheduler.LRScheduler):
            yield f"{path}.last_epoch", value.last_epoch
        elif is_a(value, types.SimpleNamespace) or (is_own(value) and not is_a(value, types.FunctionType)):
            held = {**attributes(value), **_slots(value)}
            yield from ((f"{path}.{k}", v) for k, v in held.items() if not k.startswith("__"))

    def _tensor(self, tensor: torch.Tensor) -> Value:
        if tensor.layout == torch.strided and tensor.device.type != "meta":
            self._left -= tensor.numel()
            if self._left < 0:
                return Value("tensor", shape_of(tensor), None)
        try:
            return Value("tensor", shape_of(tensor), self._digest(tensor))
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return Value("tensor", (), None)

    def _digest(self, tensor: torch.Tensor | None) -> tuple[float, ...] | None:
        if tensor is not None and tensor.dtype == torch.bool:
            tensor = tensor.to(torch.uint8)
        return digest(tensor)


def _module(modules: Sequence[tuple[str, torch.nn.Module]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for table, (base, one) in itertools.product(("_parameters", "_buffers"), modules):
        for name, tensor in tensors_in(one, table):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield join(base, name), tensor
    for base, one in modules:
        if not _of_torch(one):  # the rest of those is how they are set up
            yield from ((f"{base}.{key}", value) for key, value in list(vars(one).items()) if not key.startswith("_"))


def _of_torch(module: torch.nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _number(value: complex) -> Value:
    if isinstance(value, complex):
        return Value("number", (), (value.real, value.imag))
    try:
        return Value("number", (), (float(value),))
    except OverflowError:
        return Value("text", (), (), str(value)[:_TEXT])


def _is_real(value: Any) -> bool:
    return type(value) in (int, float, bool)


def _string(value: object) -> Value:
    text = value if is_a(value, str) else repr(value)
    if len(text) > _TEXT:
        text = text[:_TEXT] + hashlib.sha1(text.encode("utf-8", "replace")).hexdigest()
    return Value("text", (), (), text)


def _slots(value: Any) -> dict[str, Any]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(value, name) for name in names if isinstance(name, str) and hasattr(value, name)}


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Whether gradients are collected there on purpose: a view of a history that was made without grad mode counts as a leaf
    for torch alone."""
    try:
        if not tensor.requires_grad or tensor.is_inference() or not tensor.is_leaf:
            return False
        base = base_of(tensor)
        return base is None or not base.requires_grad
    except RuntimeError:  # a view whose base was changed in a forbidden way
        return False


def _generators() -> dict[str, str]:
    states = {"torch": bytes(torch.get_rng_state().tolist()), "python": pickle.dumps(random.getstate())}
    numpy_random = sys.modules.get("numpy.random")  # it is loaded, and seeded anew, once somebody asks for it
    if numpy_random is not None:
        states["numpy"] = pickle.dumps(numpy_random.get_state())
    return {name: hashlib.sha1(state).hexdigest() for name, state in states.items()}
