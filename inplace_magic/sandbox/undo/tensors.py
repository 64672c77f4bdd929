"""What is known of each tensor, a copy of each storage made before its first write, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import private


class Declined(BaseException):
    """Going on would do what cannot be put back. Raised before it is done."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True)
class _Facts:
    tensor: torch.Tensor
    alias: torch.Tensor  # keeps size, stride, offset and storage, whatever is done to the tensor
    version: int | None
    requires_grad: bool
    grad: torch.Tensor | None
    grad_fn: Any
    hooks: tuple[Any, Any]
    is_view: bool


@dataclass(slots=True)
class _Storage:
    storage: torch.UntypedStorage
    size: int
    copy: torch.UntypedStorage | None = None


class Tensors:
    """The tensors of one rerun that were there before it."""

    def __init__(self) -> None:
        self.first_new_node = private.sequence_number()
        self._facts: dict[int, _Facts] = {}
        self._storages: dict[int, _Storage] = {}
        self._families: dict[int, list[_Facts]] = {}
        self._viewed: set[int] = set()  # storages with a view that has a history

    def learn(self, tensor: torch.Tensor) -> list[Any]:
        """Note the tensor's facts; returns what hangs on it and has to be looked at as well."""
        if id(tensor) in self._facts:
            return []
        facts = self._facts[id(tensor)] = _facts_of(tensor)
        self._families.setdefault(id(_root(tensor)), []).append(facts)
        self._learn_storage(facts.alias)
        if facts.is_view and facts.grad_fn is not None and (key := private.storage_key(facts.alias)) is not None:
            self._viewed.add(key)
        children = [facts.grad, *facts.hooks, tensor._base if facts.is_view else None, *_parts(tensor)]
        return [child for child in children if child is not None]

    def _learn_storage(self, tensor: torch.Tensor) -> None:
        key = private.storage_key(tensor)
        if key is not None and key not in self._storages:
            storage = tensor.untyped_storage()
            self._storages[key] = _Storage(storage, storage.nbytes())

    def before_write(self, tensor: torch.Tensor) -> None:
        """Copy the storage's contents, once; nothing for a storage that is of the rerun's own making.

        A view makes its grad_fn anew when its memory has been written, and there is no way back to the old one.
        """
        with private.unobserved():
            for part in (tensor, *_parts(tensor)):
                key = private.storage_key(part)
                if key in self._viewed:
                    raise Declined("writes in place into the memory of a view with a history from before")
                known = self._storages.get(key) if key is not None else None
                if known is not None and known.copy is None and known.size and part.device.type != "meta":
                    known.copy = known.storage.clone()

    def before_history(self, tensor: torch.Tensor) -> None:
        """Ahead of a differentiable write: a history that torch offers no way back to is left alone."""
        with private.unobserved():
            root = _root(tensor)
            if root.is_leaf and root.requires_grad:
                return  # torch refuses such a write itself, and changes nothing
            family = self._families.get(id(root), ())
        if any(facts.is_view or facts.grad_fn is not None for facts in family):
            raise Declined("writes in place into a tensor with a history from before")

    def before_backward(self, roots: Any, retain_graph: bool | None) -> None:
        """Gradients that are there are added to in place; a graph that is there would be used up."""
        roots = (roots,) if isinstance(roots, torch.Tensor) else tuple(roots)
        with private.unobserved():
            for node in _nodes(roots):
                variable = getattr(node, "variable", None)
                if isinstance(variable, torch.Tensor):
                    self._before_accumulation(variable)
                elif node._sequence_nr() < self.first_new_node and not retain_graph:
                    raise Declined("runs backward through a graph from before, which would use it up")

    def _before_accumulation(self, leaf: torch.Tensor) -> None:
        todo = [leaf]
        while todo:
            todo.extend(t for t in self.learn(todo.pop()) if isinstance(t, torch.Tensor))
        if leaf.grad is not None:
            self.before_write(leaf.grad)

    def restore(self) -> Iterator[str]:
        """Put everything back; yields what did not go back, in words."""
        with private.unobserved():
            for storage in self._storages.values():
                yield from _attempt("a storage", _restore_storage, storage)
            for step in (_restore_shape, _restore_history, _restore_gradient, _restore_version):  # each needs the last
                for facts in self._facts.values():
                    yield from _attempt("a tensor", step, facts)

    def missed(self) -> Iterator[str]:
        """In words, whether a known tensor was written without before_write. To be asked ahead of restore()."""
        try:
            if any(self._uncopied(facts) for facts in self._facts.values()):
                yield "a tensor was written without notice"
        except Exception as e:
            yield f"a tensor: {e}"

    def _uncopied(self, facts: _Facts) -> bool:
        """Written, still on its storage of before (set_ counts as a write, too), and no copy of that was made."""
        if facts.version is None or facts.tensor._version == facts.version:
            return False
        key = private.storage_key(facts.alias)
        known = self._storages.get(key) if key == private.storage_key(facts.tensor) and key is not None else None
        return known is not None and known.copy is None and known.size > 0


def _facts_of(tensor: torch.Tensor) -> _Facts:
    grad = tensor.grad if _keeps_gradient(tensor) else None
    return _Facts(
        tensor,
        tensor.detach(),
        None if tensor.is_inference() else tensor._version,
        tensor.requires_grad,
        grad,
        _grad_fn(tensor),
        (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)),
        tensor._is_view(),
    )


def _grad_fn(tensor: torch.Tensor) -> Any:
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view whose base was changed in a forbidden way
        return None


def _keeps_gradient(tensor: torch.Tensor) -> bool:
    try:
        return tensor.is_leaf or tensor.retains_grad
    except RuntimeError:  # a view whose base was changed in a forbidden way
        return False


def _root(tensor: torch.Tensor) -> torch.Tensor:
    base = tensor._base if tensor._is_view() else None
    return tensor if base is None else base


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain tensors of which a sparse one consists."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def _nodes(roots: tuple[Any, ...]) -> Iterator[Any]:
    """Every node of the graph below the roots: tensors, or gradient edges."""
    todo: list[Any] = []
    for root in roots:
        if isinstance(root, torch.Tensor):
            todo.append(torch.autograd.graph.get_gradient_edge(root).node if root.requires_grad else None)
        else:
            todo.append(getattr(root, "node", None))
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            todo.extend(below for below, _ in node.next_functions)


def _restore_storage(known: _Storage) -> None:
    if known.storage.nbytes() != known.size:
        known.storage.resize_(known.size)
    if known.copy is not None:
        known.storage.copy_(known.copy)
        known.copy = None


def _restore_shape(facts: _Facts) -> None:
    if _shape(facts.tensor) != _shape(facts.alias):
        facts.tensor.data = facts.alias


def _restore_history(facts: _Facts) -> None:
    now = _grad_fn(facts.tensor)
    if now is not facts.grad_fn:
        if facts.grad_fn is not None or facts.is_view:
            raise RuntimeError("a history cannot be put back")
        facts.tensor.detach_()
    if facts.tensor.requires_grad != facts.requires_grad:
        facts.tensor.requires_grad_(facts.requires_grad)


def _restore_gradient(facts: _Facts) -> None:
    tensor = facts.tensor
    if _keeps_gradient(tensor) and tensor.grad is not facts.grad:
        tensor.grad = facts.grad
    for name, hooks in zip(("_backward_hooks", "_post_accumulate_grad_hooks"), facts.hooks):
        if getattr(tensor, name, None) is not hooks:
            setattr(tensor, name, hooks)


def _shape(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return (tensor.shape, tensor.dtype, tensor.device, tensor.layout, *map(private.storage_key, _parts(tensor)))
    return (
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.device,
        tensor.layout,
        private.storage_key(tensor),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _restore_version(facts: _Facts) -> None:
    if facts.version is not None and facts.tensor._version != facts.version:
        private.set_version(facts.tensor, facts.version)


def _attempt(what: str, restore: Any, *args: Any) -> Iterator[str]:
    try:
        restore(*args)
    except Exception as e:
        yield f"{what}: {e}"
