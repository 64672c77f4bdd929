"""Past what torch refuses: the call is carried out as the code means it."""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..families import RAISED_AT_WRITE, family_of, is_of_base, overlaps_input
from ..source.location import user_stack
from ..storage import ByStorage, storage_key
from ..torch_private import base_of, version_of
from .author import Author, author_at, names_of, sharing_memory
from .caught import Caught
from .noted_conflicts import NotedConflicts
from .observed import UNKNOWN_VERSION, LiveConflict, LiveWrite, Stack
from .operations import RESHAPES, SAMPLERS, arguments, out_targets, plain_name, tensors_in
from .tracked_copies import TrackedCopies, geometry_of, read_from_copies

Args = Sequence[Any]
Kwargs = dict[str, Any]


class PastErrors:
    """What the recorder does where torch raises.

    ``update_leaves``: a refused write into a leaf is made as an update outside the graph (what an optimizer does)
    instead of being tracked. ``note`` is called with what was written, ``tick`` gives the next moment of the clock.
    """

    def __init__(
        self,
        conflicts: NotedConflicts,
        copies: TrackedCopies,
        note: Callable[[str, Author, Sequence[torch.Tensor]], None],
        tick: Callable[[], int],
        caught: Caught,
        *,
        update_leaves: bool,
    ) -> None:
        self._conflicts, self._copies, self._note, self._tick = conflicts, copies, note, tick
        self._caught = caught
        self._update_leaves = update_leaves
        self._latest: ByStorage[LiveWrite] = ByStorage()  # the last write into a storage with a history
        self._of_leaf: ByStorage[bool] = ByStorage()  # whether leaves have their values there
        self._updated: ByStorage[bool] = ByStorage()  # leaves that were refused, and written outside of the graph
        # Where inference tensors came from, and views of leaves that were made at once.
        self._made: ByStorage[Stack] = ByStorage()
        self._views: ByStorage[dict[int, Stack]] = ByStorage()  # made while gradients were off, by identity
        self._steps: dict[int, tuple[weakref.ref[torch.optim.Optimizer], LiveWrite]] = {}  # each optimizer's latest

    # ---- what a refusal may be due to -------------------------------------------------------------------------------

    def wrote(self, name: str, author: Author, bases: list[torch.Tensor]) -> None:
        """Who wrote last where there may be views: torch refuses some of them, when they are read."""
        for base in bases:
            write = LiveWrite(author.stack, self._tick(), name, author.origin, version_of(base))
            write.module, write.held = author.module, author.held
            self._latest.put(base, write)

    def steps(self, optimizer: torch.optim.Optimizer, frame: types.FrameType) -> None:
        """The same of an optimizer, without a look at each of its parameters."""
        write = LiveWrite(user_stack(frame), self._tick(), "step", "optim", UNKNOWN_VERSION)
        self._steps[id(optimizer)] = weakref.ref(optimizer), write

    def made_views(self, args: Args, stack: Stack) -> None:
        """A call has made several views at once; those of a leaf outlive what an update does to it."""
        leaf = whole(args[0]) if args and isinstance(args[0], torch.Tensor) else None
        if leaf is not None and leaf.is_leaf and leaf not in self._made:
            self._made.put(leaf, stack)

    def made(self, tensor: torch.Tensor, frame: types.FrameType) -> None:
        """An inference tensor came from a call that this frame made."""
        if tensor not in self._made:
            self._made.put(tensor, user_stack(frame))

    def made_without_graph(self, result: Any, frame: types.FrameType) -> None:
        """A call of this frame's, made while gradients were off, has given ``result``: maybe views."""
        for view in result if isinstance(result, (tuple, list)) else (result,):
            base = base_of(view) if isinstance(view, torch.Tensor) else None
            if base is not None and not view.is_inference():
                views = self._views.get(base) or {}
                views.pop(id(view), None)  # the latest is the last
                views[id(view)] = user_stack(frame)
                self._views.put(base, views)

    def _made_at(self, tensors: Sequence[torch.Tensor]) -> Stack | None:
        """Where the first of the tensors was made whose making was seen; of a view of a view, where the latest was made."""
        for tensor in tensors:
            if views := self._views.get(tensor):
                return views.get(id(tensor), [*views.values()][-1])
        return next((stack for t in tensors if (stack := self._made.get(t)) is not None), None)

    # ---- what is done about it ----------------------------------------------------------------------------------------

    def carry_out(
        self, error: RuntimeError, func: Callable[..., Any], args: Args, kwargs: Kwargs, written: list[Any]
    ) -> Any:
        """Carries out a refused operation as the code means it, or lets the error go."""
        family = family_of(error)
        if family is None or family in ("modified", "second_backward") or self._caught.here(error):
            raise error
        if is_of_base(str(error)) and any(t in self._updated for t in arguments(args, kwargs)):
            return _on_views_seen_anew(func, args, kwargs)
        conflict = self._refused(family, func, str(error))
        if written and conflict.write is not None:
            base = whole(written[0])
            # torch makes a view of what is assigned to, or of a diagonal, and some views refuse to be asked.
            own = family == "view_of_leaf" and base is written[0]
            view = own or plain_name(func) == "__setitem__" or family in ("multi_output_view", "no_grad_view")
            conflict.write.late = family == "leaf" and not base.is_leaf
            conflict.write.leaf = (
                not view and not conflict.write.late and written[0].is_leaf and written[0].requires_grad
            )
            if conflict in self._conflicts.found:  # not again for each iteration
                held = sharing_memory(written[0], sys._getframe(1))
                conflict.write.held = tuple(path for path, _ in held)
                conflict.write.aliases = names_of(written[0], sys._getframe(1)) if conflict.write.leaf else ()
                # A flat buffer is the memory of weights that are looks at it, by way of ``.data``.
                looks = [tensor for _, tensor in held if base_of(tensor) is None]
                self._of_leaf.put(base, any(tensor.is_leaf and tensor.requires_grad for tensor in looks))
            conflict.write.of_leaf = bool(self._of_leaf.get(base)) or (base.is_leaf and base.requires_grad)
            conflict.value = base
            conflict.write.parameter = isinstance(base, torch.nn.Parameter)
            conflict.write.fed = base.is_leaf and base.grad is not None
            operands = [t for t in arguments(args, kwargs) if t is not written[0] and t is not base]
            conflict.write.of_graph = any(t.requires_grad for t in operands)
            conflict.write.stepped = bool(self._steps_of(base)) and not conflict.write.of_graph
        late = conflict.write is not None and conflict.write.late
        if late or (self._update_leaves and _hits_leaf(family, written, conflict.write)):
            result = _with_their_history(func, args, kwargs) if late else self._updating(func, args, kwargs, written)
            self._note(plain_name(func), author_at(sys._getframe(1)), written)
            return result
        if family == "out_grad":
            return self._out_of_place(func, args, kwargs)
        if overlaps_input(str(error)):
            conflict.value = written[0] if written else None
            result = func(*read_from_copies(written, args), **read_from_copies(written, kwargs))
            self._note(plain_name(func), author_at(sys._getframe(1)), written)
            return result
        if is_of_base(str(error)):
            written = [t for t in arguments(args, kwargs) if t._is_view() and t.requires_grad]
            self._blame_base(conflict, written)
            # A leaf was updated, which is no refusal.
            if family == "multi_output_view" and all(whole(t).is_leaf for t in written):
                return _on_views_seen_anew(func, args, kwargs)
        whom = written if family in RAISED_AT_WRITE else [t for t in arguments(args, kwargs) if t.is_inference()]
        if not whom:
            raise error
        conflict.value = whom[0]
        if family in ("inference", "no_grad_view"):
            conflict.made = self._made_at(whom)
        for tensor in whom:
            self._copies.create(tensor, whole=family != "overlap" and not overlaps(tensor))
        return self._copies.own(self._copies.retry(func, args, kwargs), written)

    def _updating(self, func: Callable[..., Any], args: Args, kwargs: Kwargs, written: list[Any]) -> Any:
        """A write into leaves as an optimizer makes it, outside of the graph."""
        with torch.no_grad():
            result = func(*args, **kwargs)
        for tensor in written:
            self._updated.put(tensor, True)
        return result

    def write_overlapping(self, func: Callable[..., Any], args: Args, kwargs: Kwargs, tensor: torch.Tensor) -> Any:
        """A write into a tensor several of whose elements are one: some such writes pass, and backward stumbles later.

        A sampler draws one number for each place in memory, as for steps in time that share a mask; where all elements share
        one place, each gets its own, which is what a single number is expanded for.
        """
        conflict = self._refused("overlap", func, "")
        conflict.known, conflict.value = True, tensor
        self._copies.create(tensor, whole=False)
        if plain_name(func) in SAMPLERS and args and not [*tensors_in([*args[1:], *kwargs.values()])]:
            copy = self._copies.of(tensor)
            drawn = copy.detach()[tuple(slice(1 if step == 0 else None) for step in tensor.stride())].clone()
            if drawn.numel() > 1:
                func(drawn, *args[1:], **kwargs)
                copy.copy_(drawn)
                return tensor
        return self._copies.own(self._copies.retry(func, args, kwargs), [tensor])

    def parameter_refused(self, cls: type, data: torch.Tensor, error: RuntimeError) -> None:
        """``nn.Parameter`` has refused an inference tensor."""
        if self._caught.here(error):
            raise error
        conflict = self._refused("inference", cls, str(error))
        conflict.value, conflict.made = data, self._made_at([data])

    def _refused(self, family: str, func: Callable[..., Any], message: str) -> LiveConflict:
        author = author_at(sys._getframe(1))
        return self._conflicts.refused(family, plain_name(func), message, author, self._tick())

    def _blame_base(self, conflict: LiveConflict, views: list[torch.Tensor]) -> None:
        """It is not the operation that wrote, but somebody before it."""
        for view in views:
            write = max((*self._steps_of(whole(view)), self._latest.get(view)), key=_clock)
            if write is not None:
                conflict.write, conflict.value, conflict.made = write, base_of(view), self._made.get(view)
                self._conflicts.once(conflict)
                return
        conflict.write, conflict.known = None, False  # before the run began

    def _steps_of(self, leaf: torch.Tensor) -> list[LiveWrite]:
        known = [(optimizer, write) for find, write in self._steps.values() if (optimizer := find()) is not None]
        return [write for one, write in known if any(leaf is p for group in one.param_groups for p in group["params"])]

    def _out_of_place(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        rest = {k: v for k, v in kwargs.items() if k != "out"}
        result = func(*args, **rest)
        for tensor in out_targets(args, kwargs):
            self._copies.create(tensor, whole=False)
            copy = self._copies.of(tensor)
            if isinstance(result, torch.Tensor) and copy.shape == result.shape:
                copy.copy_(result)
        return result


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements share one place in memory, as expand() leaves them."""
    return 0 in tensor.stride() and any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride()))


def indexed(func: Callable[..., Any], args: Args, tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that a call writes, as far as plain indices tell: ``rows[:1, chosen] = 0`` writes one row."""
    if func is not torch.Tensor.__setitem__ or args[0] is not tensor:
        return tensor
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    written: torch.Tensor = tensor[tuple(itertools.takewhile(lambda one: type(one) in (int, slice), index))]
    return written


def reads_own_part(func: Callable[..., Any], args: Args, kwargs: Kwargs, written: Sequence[Any]) -> bool:
    """Whether a call reads another stretch of the memory that it writes, of numbers of the same kind: ``x -= x[:, :1]``."""
    if len(written) != 1 or plain_name(func) in RESHAPES or plain_name(func) == "set_":
        return False
    others = [one for one in arguments(args, kwargs) if one is not written[0]]
    key = storage_key(written[0]) if others else None
    others = [one for one in others if key is not None and storage_key(one) == key]
    if not others or written[0].device.type == "meta":
        return False
    into = indexed(func, args, written[0])  # in ``h[0] += y`` what is put there is the very stretch
    return any(_kind(one) == _kind(into) and geometry_of(one) != geometry_of(into) for one in others)


def _kind(tensor: torch.Tensor) -> tuple[torch.dtype, bool, bool]:
    """How a tensor reads its memory."""
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


def with_history(written: Sequence[Any]) -> list[torch.Tensor]:
    """Of what is written the tensors, or their bases, that require grad. A view itself may refuse to be asked."""
    return [base for base in map(whole, written) if base is not None and base.requires_grad]


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor is a view of, or itself."""
    base = base_of(tensor)
    return tensor if base is None else base


def _clock(write: LiveWrite | None) -> int:
    return -1 if write is None else write.clock


def _with_their_history(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """A call that was given views from before their base was written: torch makes their history once it is asked for it."""
    for tensor in arguments(args, kwargs):
        tensor.grad_fn  # noqa: B018
    return func(*args, **kwargs)


def _on_views_seen_anew(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    return func(*map(_seen_anew, args), **{name: _seen_anew(value) for name, value in kwargs.items()})


def _seen_anew(value: Any) -> Any:
    """A view that is made anew from its base, as that is now; one level of lists and tuples deep."""
    if type(value) in (list, tuple):
        return type(value)(map(_seen_anew, value))
    base = base_of(value) if isinstance(value, torch.Tensor) else None
    return value if base is None else base.as_strided(value.shape, value.stride(), value.storage_offset())


def _hits_leaf(family: str, written: Sequence[torch.Tensor], write: LiveWrite | None) -> bool:
    """Whether a refused write would have hit a leaf; of some of its views torch tells how they were made instead."""
    if family == "multi_output_view" and write is not None and write.of_leaf:
        return True
    if family == "out_grad":
        return any(tensor.is_leaf and tensor.requires_grad for tensor in written)
    if family not in ("no_grad_view", "multi_output_view"):
        return family in ("leaf", "view_of_leaf")
    bases = [base for tensor in written if (base := base_of(tensor)) is not None]
    return any(base.is_leaf and base.requires_grad for base in bases)
