"""A reference of its own for gradients: a tape that keeps a clone of everything an operation was given.

The text of a program runs a second time with values of this file in place of its leaves. The memory behind them is that
of plain tensors without a graph, so that aliases, views and hidden writes do to values what they do in torch. What is
noted of each operation are clones, so that nothing which is written later can reach a gradient. torch differentiates
single operations only, each on fresh clones.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

_IN_PLACE = {"__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div"}
_OPERATORS = (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "matmul",
    "rmatmul",
    "neg",
    "getitem",
    "gt",
)


@dataclass(eq=False)
class Node:
    """One operation: ``compute`` gives its output from what it was given, of which ``clones`` are the values."""

    number: int
    compute: Callable[..., torch.Tensor] | None = None
    parents: Sequence[Node | None] = ()
    clones: Sequence[torch.Tensor] = ()
    random: torch.Tensor | None = None
    hooks: list[Callable[[torch.Tensor], Any]] = field(default_factory=list)

    def hooked(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient after the hooks; each gets a clone, so that what it writes there is what it gives back."""
        for hook in self.hooks:
            mine = gradient.clone()
            result = hook(mine)
            gradient = mine if result is None else result.clone()
        return gradient

    def backward(self, gradient: torch.Tensor) -> list[torch.Tensor | None]:
        """What goes to the parents."""
        assert self.compute is not None and self.random is not None
        inputs = [c.clone().requires_grad_(p is not None) for c, p in zip(self.clones, self.parents)]
        wanted = [i for i in inputs if i.requires_grad]
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random)
            found = iter(torch.autograd.grad(self.compute(*inputs), wanted, gradient, allow_unused=True))
        return [next(found) if i.requires_grad else None for i in inputs]


class Tape:
    """Numbers the nodes of one run."""

    def __init__(self) -> None:
        self._count = 0
        self.leaves: list[Value] = []

    def node(self, *about: Any) -> Node:
        self._count += 1
        return Node(self._count, *about)

    def leaf(self, memory: torch.Tensor) -> Value:
        self.leaves.append(Value(self, memory.detach(), self.node()))
        return self.leaves[-1]

    def apply(self, compute: Callable[..., Any], given: Sequence[Any], run: Callable[..., Any] | None = None) -> Any:
        """Runs an operation, or ``run`` in its place where ``compute`` is only what it means, on real memory."""
        places = [i for i, one in enumerate(given) if isinstance(one, torch.Tensor | Value)]
        tensors = [given[i] for i in places]
        clones = [_memory(t).detach().clone() for t in tensors]
        random = torch.get_rng_state()

        def on(*inputs: torch.Tensor) -> Any:
            arguments = list(given)
            for place, one in zip(places, inputs):
                arguments[place] = one
            return compute(*arguments)

        with torch.no_grad():
            result = (run or compute)(*(_memory(g) if isinstance(g, Value) else g for g in given))
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return result
        parents = [t.node if isinstance(t, Value) else None for t in tensors]
        return Value(self, result, self.node(on, parents, clones, random))

    def gradients(self, root: Value, leaves: Sequence[Value]) -> list[torch.Tensor | None]:
        """Of a root with one element."""
        arrived: dict[Node, torch.Tensor] = {}
        if root.node is not None:
            arrived[root.node] = torch.ones_like(root.memory)
        wanted = {leaf.node for leaf in leaves}
        kept: dict[Node | None, torch.Tensor] = {}
        while arrived:
            node = max(arrived, key=lambda one: one.number)
            gradient = node.hooked(arrived.pop(node))
            if node in wanted:
                kept[node] = gradient
            if node.compute is None:
                continue
            for parent, part in zip(node.parents, node.backward(gradient)):
                if parent is not None and part is not None:
                    arrived[parent] = arrived[parent] + part if parent in arrived else part
        return [kept.get(leaf.node) for leaf in leaves]


class Value:
    """What stands for a tensor of the program. ``memory`` is where its values lie."""

    def __init__(self, tape: Tape, memory: torch.Tensor, node: Node | None) -> None:
        self.tape, self.memory, self.node = tape, memory, node
        self.grad: torch.Tensor | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        value = next(a for a in args if isinstance(a, Value))
        return value.tape.apply(lambda *given: func(*given, **(kwargs or {})), args)

    def __getattr__(self, name: str) -> Any:
        plain = getattr(torch.Tensor, name)
        if name.endswith("_") and not name.endswith("__"):
            return lambda *args: self._write(getattr(torch.Tensor, name[:-1]), *args)
        return lambda *args, **kwargs: self.tape.apply(lambda *given: plain(*given, **kwargs), (self, *args))

    def _write(self, plain: Callable[..., Any], *args: Any) -> Value:
        """An in-place operation that the graph hears of: the same memory, another node."""
        made = self.tape.apply(plain, (self, *args))
        self.memory.copy_(made.memory)
        self.node = made.node
        return self

    @property
    def shape(self) -> torch.Size:
        return self.memory.shape

    # ---- past the graph

    def detach(self) -> torch.Tensor:
        return self.memory.detach()

    @property
    def data(self) -> torch.Tensor:
        return self.memory.detach()

    @data.setter
    def data(self, new: torch.Tensor) -> None:
        self.memory = new

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.memory.untyped_storage()

    # ---- backward

    def register_hook(self, hook: Callable[[torch.Tensor], Any]) -> None:
        assert self.node is not None
        self.node.hooks.append(hook)

    def backward(self, **_: Any) -> None:
        for leaf, gradient in zip(self.tape.leaves, self.tape.gradients(self, self.tape.leaves)):
            if gradient is not None:
                leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def _operator(name: str) -> Callable[..., Any]:
    plain = getattr(torch.Tensor, name)
    return lambda self, *args: self.tape.apply(plain, (self, *args))


def _in_place(plain: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: self._write(plain, other)


for _name in _OPERATORS:
    setattr(Value, f"__{_name}__", _operator(f"__{_name}__"))
for _name, _plain in _IN_PLACE.items():
    setattr(Value, _name, _in_place(getattr(torch.Tensor, _plain)))


def _memory(one: Any) -> torch.Tensor:
    return one.memory if isinstance(one, Value) else one


# ---- what a program's names mean here -------------------------------------------------------------------------------


class TapeFunction:
    """In place of ``torch.autograd.Function``: forward runs for what it does to memory, ``pure`` is differentiated."""

    @classmethod
    def apply(cls, value: Value, slope: Any) -> Any:
        given = value, _memory(slope).detach()
        return value.tape.apply(cls.pure, given, lambda *memory: cls.forward(_Context(), *memory))  # type: ignore[attr-defined]


class _Context:
    def save_for_backward(self, *tensors: torch.Tensor) -> None: ...


class TapeLinear:
    """In place of ``nn.Linear``, with the hooks of a module."""

    def __init__(self, tape: Tape, inputs: int, outputs: int) -> None:
        plain = torch.nn.Linear(inputs, outputs)
        self.weight, self.bias = tape.leaf(plain.weight), tape.leaf(plain.bias)
        self._before: list[Callable[..., Any]] = []
        self._after: list[Callable[..., Any]] = []

    def register_full_backward_pre_hook(self, hook: Callable[..., Any]) -> None:
        self._before.append(hook)

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> None:
        self._after.append(hook)

    def __call__(self, value: Value) -> Value:
        handed: Value = value.tape.apply(lambda t: t * 1, (value,), lambda t: t)
        for hook in self._after:
            handed.register_hook(lambda g, hook=hook: _first(hook(self, (g,), (g.clone(),))))
        out: Value = value.tape.apply(torch.nn.functional.linear, (handed, self.weight, self.bias))
        for hook in self._before:
            out.register_hook(lambda g, hook=hook: _first(hook(self, (g,))))
        return out


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def _checkpoint(block: Callable[..., Any], *args: Any, **_: Any) -> Any:
    return block(*args)


def _grad(root: Value, leaves: Sequence[Value], **_: Any) -> list[torch.Tensor | None]:
    return root.tape.gradients(root, leaves)


def on_tape(names: dict[str, Any], leaves: Sequence[str]) -> dict[str, Any]:
    """The names with which a program's text computes its reference, from those with which it runs in torch."""
    tape = Tape()
    return {
        **names,
        **{name: tape.leaf(names[name]) for name in leaves},
        "Function": TapeFunction,
        "Linear": functools.partial(TapeLinear, tape),
        "checkpoint": _checkpoint,
        "grad": _grad,
        "save_on_cpu": contextlib.nullcontext,
        "saved_tensors_hooks": lambda *_: contextlib.nullcontext(),
    }
