"""Where a tensor stands in its graph, which torch refuses to tell of some that were written.

An output of a Function that shares memory with its input (what a module with backward hooks gives, for one) may not be
written. Whoever asks for its node afterwards, or whether it is a leaf, gets the error; who only holds it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...torch_private import sequence_number, unobserved


def node_of(tensor: torch.Tensor) -> Any:
    """The node that made it; None for a leaf, or where torch refuses to tell."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def node_number(tensor: torch.Tensor | None) -> int:
    """The number of the node that made it; 0 for a leaf, for what is gone, or where torch refuses to tell."""
    with unobserved():
        node = node_of(tensor) if tensor is not None else None
        return sequence_number(node) if node is not None else 0


def has_plain_values(tensor: torch.Tensor) -> bool:
    """Whether its values lie in memory and can be compared: not those of a sparse, a nested or a meta tensor."""
    return tensor.layout is torch.strided and not tensor.is_nested and tensor.device.type != "meta"


def computed(tensor: torch.Tensor) -> bool:
    """Whether an operation of a graph made it."""
    return tensor.requires_grad and node_of(tensor) is not None


def has_hooks(leaf: torch.Tensor) -> bool:
    """Whether somebody is handed the gradient of a leaf."""
    return bool(leaf._backward_hooks) or bool(getattr(leaf, "_post_accumulate_grad_hooks", None))


def is_trained_leaf(tensor: torch.Tensor) -> bool:
    """Whether it requires grad and nothing has made it; not where torch refuses to tell."""
    try:
        return tensor.requires_grad and tensor.is_leaf
    except RuntimeError:
        return False


def reached(starts: Iterable[Any], inside: Callable[[Any], bool]) -> set[Any]:
    """Those of some nodes for which a condition holds, and what they lead to, as far as it holds."""
    todo, found = [*starts], set[Any]()
    while todo:
        node = todo.pop()
        if node is not None and node not in found and inside(node):
            found.add(node)
            todo += [into for into, _ in node.next_functions]
    return found
