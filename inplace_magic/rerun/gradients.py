"""Gradients as a replay sees them: a digest of what each backward adds to each leaf, and the comparison of two runs.

A digest is linear in the gradient (sampled elements, and sums over stretches), so what a backward added is the
difference of the digests before and after it, and no gradient has to be kept.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..diagnosis import Gradients
from ..places import Sources, user_stack
from .evidence import Backward, LeafGradient, Pass
from .holding import Held, held

_SAMPLES = 64
_SUMS = 32
_WALK_LIMIT = 20_000
_SMALL = 16_384  # elements of a gradient that is kept for a moment instead of its digest
CLOSELY = 12  # passes that are looked at closely from the first one on, and again from the first conflict on


_Step = list[tuple[torch.Tensor, tuple[float, ...] | None]]  # what an optimizer used


def version_of(tensor: torch.Tensor) -> int:
    """A tensor's version counter; -1 for an inference tensor, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return -1


class Stop(BaseException):
    """Raised inside a replay once it has gone far enough past the failure."""


def digest(tensor: torch.Tensor | None) -> tuple[float, ...] | None:
    """Up to 64 elements and 32 sums over stretches of a dense or sparse gradient: linear in it, and without a copy."""
    if tensor is None:
        return None
    with torch._C.DisableTorchFunction(), torch.no_grad():
        flat = (tensor.to_dense() if tensor.layout != torch.strided else tensor).detach().reshape(-1)
        if flat.dtype.is_complex:
            flat = torch.view_as_real(flat).reshape(-1)
        n = flat.numel()
        if n <= _SAMPLES:
            return tuple(map(float, flat.tolist()))
        stretch = n // _SUMS
        samples, rest = flat[:: -(-n // _SAMPLES)], flat[stretch * _SUMS :]
        stretches = flat[: stretch * _SUMS].view(_SUMS, stretch)
        if flat.dtype.is_floating_point and flat.dtype.itemsize >= 4:  # brought over in one piece
            return tuple(torch.cat((samples, stretches.sum(1), rest.sum(0, keepdim=True))).tolist())
        sums = stretches.sum(1, dtype=None if flat.dtype.itemsize >= 4 else torch.float32)
        return (*map(float, samples.tolist()), *sums.tolist(), float(rest.sum()))


def graph_of(roots: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], int, set[Any]]:
    """The leaves that a backward from ``roots`` can reach, the number of nodes on the way, and the nodes."""
    seen: set[Any] = set()
    leaves: dict[int, torch.Tensor] = {}
    todo: list[Any] = []
    for root in roots:
        if root.grad_fn is not None:
            todo.append(root.grad_fn)
        elif root.requires_grad:
            leaves[id(root)] = root
    while todo and len(seen) < _WALK_LIMIT:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            leaves[id(leaf)] = leaf
        todo.extend(parent for parent, _ in node.next_functions if parent is not None)
    return list(leaves.values()), len(seen), seen


@dataclass
class _LivePass:
    backward: Backward
    leaves: list[torch.Tensor]
    gains: list[tuple[float, ...] | None]
    nodes: int
    failed: bool
    graph: set[Any] = field(default_factory=set)
    steps: list[_Step] = field(default_factory=list)
    held: Held = field(default_factory=dict)
    value: tuple[float, ...] | None = None
    looked: bool = True


class _Before:
    """What a leaf's gradient was before a backward; a small one is kept, its digest is made only if it is asked for."""

    def __init__(self, gradient: torch.Tensor, now: bool) -> None:
        small = not now and gradient.layout == torch.strided and gradient.numel() <= _SMALL
        self._gradient = gradient.detach().clone() if small else None
        self._digest = None if small else digest(gradient)

    def digest(self) -> tuple[float, ...] | None:
        return digest(self._gradient) if self._gradient is not None else self._digest


@dataclass
class GradientTrace:
    """Listens to ``backward``, ``grad`` and optimizers while a replay runs. It changes nothing in how autograd works.

    ``around`` may wrap the real call (the recorder does). ``enough`` is asked after each pass whether to stop; where
    optimizers step, the run is ended when the next one is about to, so that the gradients it would use are known.
    ``conflict`` gives the pass of the first conflict, as soon as it is known: digests and walks over graphs cost more
    than many a training step, so only some passes at the beginning and some from the first conflict on are looked at.
    ``gone_on`` is called once after each pass, with their number, when the program goes on from it: at the first step of
    an optimizer, whose gradients are known by then, else at the next pass.
    """

    sources: Sources
    around: Callable[[Backward, Sequence[torch.Tensor], Callable[[bool], Any]], Any] | None = None
    enough: Callable[[int, Backward], bool] = lambda done, backward: False
    gone_on: Callable[[int], None] = lambda done: None
    digests: bool = True  # False: only who ran backward and where, at no cost
    graphs: bool = True  # False: the graphs are not looked at either
    conflict: Callable[[], int | None] = lambda: None
    _latest: dict[int, tuple[tuple[int, int], tuple[float, ...] | None]] = field(default_factory=dict)
    _leaves: dict[int, torch.Tensor] = field(default_factory=dict)  # all that were ever reached
    _unlooked: dict[int, tuple[int, _Step]] = field(default_factory=dict)
    _passes: list[_LivePass] = field(default_factory=list)
    _depth: int = 0
    _left: int = 0  # passes that the program has gone on from
    _stepped: bool = False
    _ending: bool = False

    def listening(self) -> _Ears:
        """Puts our ears on ``torch.autograd.backward``, ``grad`` and the method, and takes them off again."""
        return _Ears(self)

    def _step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """A moved step may find other gradients than it was meant to use."""
        if not self._passes or not self.digests:
            return
        self._stepped = True
        with torch._C.DisableTorchFunction():
            self._passes[-1].steps.append(self._used(optimizer, self._passes[-1].looked))
            self._go_on()

    def _used(self, optimizer: torch.optim.Optimizer, looked: bool) -> _Step:
        if looked:
            return [(p, self._digest_of(p)) for group in optimizer.param_groups for p in group["params"]]
        size = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._unlooked.get(id(optimizer))
        if known is None or known[0] != size:  # one list for all of them: there may be a great many
            step: _Step = [(p, ()) for group in optimizer.param_groups for p in group["params"]]
            known = self._unlooked[id(optimizer)] = (size, step)
        return known[1]

    def _go_on(self) -> None:
        if self._ending:
            raise Stop
        if self._left < len(self._passes):
            self._left = len(self._passes)
            self.gone_on(self._left)

    def _digest_of(self, leaf: torch.Tensor) -> tuple[float, ...] | None:
        """The digest of a leaf's gradient; the one from the end of the backward, if it is that gradient still."""
        gradient = leaf.grad
        if gradient is None or gradient.layout != torch.strided:
            return digest(gradient)
        now = (gradient.data_ptr(), version_of(gradient))
        known = self._latest.get(id(leaf))
        if known is None or known[0] != now or now[1] < 0:
            known = self._latest[id(leaf)] = (now, digest(gradient))
        return known[1]

    @property
    def done(self) -> int:
        """How many passes there have been."""
        return len(self._passes)

    def closely(self, index: int) -> bool:
        """Whether a pass is looked at closely."""
        if index < CLOSELY:
            return True
        first = self.conflict()
        return first is not None and first <= index < first + CLOSELY

    def _watch(
        self,
        roots: list[torch.Tensor],
        retained: bool,
        call: Callable[[bool], Any],
        wanted: list[torch.Tensor] | None,
    ) -> Any:
        if self._depth:  # a backward inside a backward (checkpoint) belongs to the outer one
            return call(False)
        stack = tuple(self.sources.spot(code, lasti) for code, lasti in user_stack(sys._getframe(2)))
        index = len(self._passes)
        event = Backward(index, stack, index=index, retained=retained)
        if self._passes:
            self._passes[-1].graph.clear()  # only the last pass's is asked for; it keeps nodes alive
        live = _LivePass(event, [], [], 0, failed=True)
        looked = self.closely(index) or not self.digests
        before: dict[int, _Before] = {}
        with torch._C.DisableTorchFunction():
            self._go_on()
            if looked:
                self._walk(live, roots)
            if wanted is None and self.digests:
                # Where a pass is first looked at because of a conflict in it, its leaves are known from earlier ones.
                leaves = live.leaves if looked else self._leaves.values() if self.conflict() is None else ()
                before = {id(leaf): _Before(leaf.grad, looked) for leaf in leaves if leaf.grad is not None}
            if looked and self.around is not None and index < CLOSELY:
                live.held = held(sys._getframe(2))
        self._passes.append(live)
        self._depth += 1
        try:
            if self.around is None:
                result = call(False)
                live.failed = False
            else:
                result, live.failed = self.around(event, roots, call)
        except BaseException:
            if not looked:
                self._walk(live, roots)  # nodes remain after a backward, so it is not too late
            raise
        finally:
            self._depth -= 1
        live.looked = looked or self.closely(index)
        if not live.looked:
            live.leaves = []
        elif self.digests:
            with torch._C.DisableTorchFunction():
                if not looked:
                    self._walk(live, roots)
                live.value = tuple(x for root in roots for x in digest(root) or ())
                self._latest.clear()
                if wanted is None:
                    live.gains = [
                        _gain(before[id(leaf)].digest() if id(leaf) in before else None, self._digest_of(leaf))
                        for leaf in live.leaves
                    ]
                elif result is not None:
                    live.leaves, live.gains = wanted, [digest(g) for g in result]
                else:
                    live.gains = [None] * len(live.leaves)
        else:
            live.leaves = []
        self._ending = self.enough(len(self._passes), event)
        if self._ending and not self._stepped:
            raise Stop
        return result

    def _walk(self, live: _LivePass, roots: list[torch.Tensor]) -> None:
        if self.graphs:
            live.leaves, live.nodes, live.graph = graph_of(roots)
            if self.digests:
                self._leaves.update((id(leaf), leaf) for leaf in live.leaves)

    def walked(self, nodes: set[Any]) -> bool:
        """Whether the last pass went through one of the nodes."""
        return bool(self._passes[-1].graph & nodes)

    def carriers(self, holders: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
        """Which of the ``holders`` (path, grad_fn) lie in the graph of the last pass."""
        last = self._passes[-1].graph
        return tuple(path for path, node in holders if node in last)

    def passes(self, name_of: Callable[[torch.Tensor], str | None]) -> tuple[Pass, ...]:
        """What was heard, with every leaf named; a leaf without a name is known by its shape and its turn."""
        anonymous: dict[int, str] = {}

        def record(pairs: Iterable[tuple[torch.Tensor, tuple[float, ...] | None]]) -> tuple[LeafGradient, ...]:
            named = [
                LeafGradient(
                    name_of(leaf) or anonymous.setdefault(id(leaf), f"leaf {len(anonymous) + 1}"),
                    tuple(leaf.shape),
                    gain,
                )
                for leaf, gain in pairs
            ]
            return tuple(sorted(named, key=lambda g: g.leaf))

        gained = [record(zip(live.leaves, live.gains)) for live in self._passes]
        repeated = {id(step): record(step) for _, step in self._unlooked.values()}
        return tuple(
            Pass(
                live.backward,
                gains,
                live.nodes,
                live.failed,
                tuple(repeated.get(id(step)) or record(step) for step in live.steps),
                live.held,
                live.value,
                live.looked,
            )
            for live, gains in zip(self._passes, gained)
        )


class _Ears:
    """Not a generator, which would take off those of somebody else when it is closed as garbage."""

    def __init__(self, trace: GradientTrace) -> None:
        self._trace = trace
        self._plain = torch.autograd.backward, torch.autograd.grad
        self._stepping: Any = None

    def __enter__(self) -> GradientTrace:
        trace = self._trace
        self._plain = plain_backward, plain_grad = torch.autograd.backward, torch.autograd.grad

        # Parameter names are torch's own: people call both with keywords.
        def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):  # type: ignore[no-untyped-def] # fmt: skip
            roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)

            def call(retain: bool) -> Any:
                kept = True if retain else retain_graph
                return plain_backward(tensors, grad_tensors, kept, create_graph, grad_variables, inputs)

            return trace._watch(roots, bool(create_graph if retain_graph is None else retain_graph), call, None)

        def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, *args, **kwargs):  # type: ignore[no-untyped-def] # fmt: skip
            roots = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
            wanted = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)

            def call(retain: bool) -> Any:
                kept = True if retain else retain_graph
                return plain_grad(outputs, wanted, grad_outputs, kept, create_graph, *args, **kwargs)

            return trace._watch(roots, bool(create_graph if retain_graph is None else retain_graph), call, wanted)

        self._stepping = register_optimizer_step_pre_hook(trace._step)
        torch.autograd.backward, torch.autograd.grad = backward, grad
        return trace

    def __exit__(self, *exception: Any) -> None:
        torch.autograd.backward, torch.autograd.grad = self._plain
        self._stepping.remove()


def _gain(before: tuple[float, ...] | None, after: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if after is None or before is None or len(before) != len(after):
        return after
    return tuple(b - a for a, b in zip(before, after))


def close(a: Sequence[float] | None, b: Sequence[float] | None) -> bool:
    """Whether two digests are those of one gradient, to 1e-4 of its size (float32 sums differ in order)."""
    if a == () or b == ():  # nobody has looked
        return True
    if a is None or b is None:
        missing = a if b is None else b
        return missing is None or all(x == 0 for x in missing)  # no gradient and a zero one are one thing
    if len(a) != len(b):
        return False
    scale = max((abs(x) for x in (*a, *b) if math.isfinite(x)), default=0.0)
    return all(_near(x, y, 1e-4 * scale + 1e-7) for x, y in zip(a, b))


def _near(x: float, y: float, tolerance: float) -> bool:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x == y or (math.isnan(x) and math.isnan(y))
    return abs(x - y) <= tolerance


def compare(reference: Sequence[Pass], tried: Sequence[Pass], cut_off: bool = False) -> Gradients:
    """How the gradients of a run relate to those of the reference, pass by pass up to the shorter of the two.

    ``truncated`` means that they differ and that the graph that was walked is smaller, or reaches fewer leaves. Where
    all agree, the optimizers must have used them as well: a step that is moved may find those of another loss added.
    ``cut_off``: both were ended before their programs were.
    """
    found = _compare_passes(reference, tried, cut_off)
    if found == "same":
        if cut_off and len(_optimizers(reference[:-1])) > len(_optimizers(tried[:-1])):
            return "unknown"  # a step has gone behind the end of the run: nobody has seen which gradients it uses
        return "same" if _same_steps(reference, tried) else "different"
    return "same" if found != "unknown" and _same_where_used(reference, tried) else found


def _same_steps(reference: Sequence[Pass], tried: Sequence[Pass]) -> bool:
    """Optimizer by optimizer and step by step, up to the shorter of the two."""
    ours, theirs = _optimizers(reference), _optimizers(tried)
    return all(
        close(a.digest, b.digest)
        for optimizer in ours.keys() & theirs.keys()
        for one, other in zip(ours[optimizer], theirs[optimizer])
        for a, b in zip(one, other)
    )


def _same_where_used(reference: Sequence[Pass], tried: Sequence[Pass]) -> bool:
    """Whether every step used the same, though a backward gave more to leaves that were cleared before their step.

    What no step used in the end must be the same in each pass, except that a leaf which some optimizer updates may be
    left out of a pass.
    """
    if len(reference) != len(tried) or not _same_steps(reference, tried):
        return False
    ours, theirs = _last_steps(reference), _last_steps(tried)
    used = {leaf: min(ours[leaf], theirs[leaf]) for leaf in ours.keys() & theirs.keys()}
    return bool(used) and all(
        i <= used.get(leaf, -1) or close(a, b) or (leaf in used and not any(b or ()))
        for i, (one, other) in enumerate(zip(reference, tried))
        for leaf, a, b in _paired(one, other)
    )


def _last_steps(passes: Sequence[Pass]) -> dict[str, int]:
    """For every leaf that an optimizer updates the pass after which it did so for the last time."""
    return {g.leaf: i for i, one in enumerate(passes) for step in one.steps for g in step}


def _paired(one: Pass, other: Pass) -> Iterator[tuple[str, tuple[float, ...] | None, tuple[float, ...] | None]]:
    left, right = ({g.leaf: g.digest for g in p.gradients} for p in (one, other))
    return ((leaf, left.get(leaf), right.get(leaf)) for leaf in sorted(left | right))


def starved(reference: Sequence[Pass], tried: Sequence[Pass]) -> bool:
    """Whether an optimizer that had gradients has none left: such code runs and trains nothing."""
    ours, theirs = _optimizers(reference), _optimizers(tried)
    return any(_fed(ours[optimizer]) and not _fed(theirs[optimizer]) for optimizer in ours.keys() & theirs.keys())


def untrained(reference: Sequence[Pass], tried: Sequence[Pass]) -> tuple[str, ...]:
    """The leaves that optimizers step without a gradient where the reference has one; without a step, any such leaf.

    A value that was made once, and is cut off after the first round, still has its gradient in the first step: that
    one counts only if it is alone.
    """
    ours, theirs = _optimizers(reference), _optimizers(tried)
    if not ours:
        return tuple(sorted(leaves_reached(reference) - leaves_reached(tried)))
    return tuple(
        leaf
        for optimizer in sorted(ours.keys() & theirs.keys())
        for leaf in sorted(_leaves_fed(ours[optimizer]) - _leaves_fed(theirs[optimizer]))
    )


def _leaves_fed(steps: Sequence[tuple[LeafGradient, ...]]) -> set[str]:
    found = [(g.leaf, g.digest) for step in steps[1:] or steps for g in step if g.digest is not None]
    return {leaf for leaf, digest in found if digest == () or any(digest)}  # (): nobody has looked


def _fed(steps: Sequence[tuple[LeafGradient, ...]]) -> bool:
    return any(g.digest is not None and any(g.digest) for step in steps for g in step)


def _optimizers(passes: Sequence[Pass]) -> dict[tuple[str, ...], list[tuple[LeafGradient, ...]]]:
    """The steps of each optimizer, which is known by its parameters."""
    steps: dict[tuple[str, ...], list[tuple[LeafGradient, ...]]] = {}
    for one in passes:
        for step in one.steps:
            steps.setdefault(tuple(g.leaf for g in step), []).append(step)
    return steps


def _compare_passes(reference: Sequence[Pass], tried: Sequence[Pass], cut_off: bool) -> Gradients:
    if not reference or not tried:
        return "unknown"
    if len(reference) != len(tried):
        return _compare_totals(reference, tried)
    smaller = False
    for i, (ours, theirs) in enumerate(zip(reference, tried)):
        if ours.failed or theirs.failed:
            return "unknown"
        smaller = smaller or theirs.nodes < ours.nodes
        if not (ours.looked and theirs.looked) or _same_pass(ours, theirs):
            continue
        if _permuted(reference, tried) or (cut_off and i + 1 < len(tried) and _permuted_so_far(reference, tried)):
            return "same"
        return "truncated" if smaller or _reached(theirs) < _reached(ours) else "different"
    return "same"


def forward_changed(reference: Sequence[Pass], tried: Sequence[Pass]) -> bool:
    """Whether, up to the first pass whose gradients differ, one goes back from another value than the reference's.

    A rewrite of a line should not do that: where it does, something else was meant to see the write.
    """
    if len(reference) != len(tried):
        return False
    for ours, theirs in zip(reference, tried):
        if not (ours.looked and theirs.looked):
            continue
        if ours.value is not None and theirs.value is not None and not close(ours.value, theirs.value):
            return True
        if not _same_pass(ours, theirs):
            return False
    return False


def leaves_reached(passes: Sequence[Pass]) -> set[str]:
    """Names of the leaves that got a gradient other than zero."""
    return {g.leaf for one in passes for g in one.gradients if g.digest is not None and any(g.digest)}


def _reached(one: Pass) -> set[str]:
    return {g.leaf for g in one.gradients if g.digest is not None}


def _same_pass(a: Pass, b: Pass) -> bool:
    left, right = ({g.leaf: g for g in one.gradients} for one in (a, b))
    rest = [g for k, g in right.items() if k not in left]
    for name, gradient in left.items():
        if name in right:
            other: LeafGradient | None = right[name]
        else:  # a name may have gone to another tensor (`x = x.clone()`), or come to one
            other = next((g for g in rest if g.shape == gradient.shape and close(gradient.digest, g.digest)), None)
            rest = [g for g in rest if g is not other]
        if not close(gradient.digest, other.digest if other is not None else None):
            return False
    return all(close(None, g.digest) for g in rest)


def _permuted(reference: Sequence[Pass], tried: Sequence[Pass]) -> bool:
    """Whether the same passes took place in another order, as when two updates change places."""
    rest = list(tried)
    for one in reference:
        match = next((other for other in rest if _same_pass(one, other)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


def _permuted_so_far(reference: Sequence[Pass], tried: Sequence[Pass]) -> bool:
    """The same where runs were ended in the middle of a round: what is last in one is still to come in the other."""
    one, other = reference[-1], tried[-1]
    alike = one.nodes == other.nodes and {g.leaf for g in one.gradients} == {g.leaf for g in other.gradients}
    return not alike and _permuted(reference[:-1], tried[:-1])


def _compare_totals(reference: Sequence[Pass], tried: Sequence[Pass]) -> Gradients:
    """For runs with another number of passes (two losses summed into one): the sum over passes of every leaf.

    Where not all passes were looked at, over those at the beginning that correspond.
    """
    if not all(one.looked for one in (*reference, *tried)):
        ratio = len(reference) / len(tried)
        shared = min(_looked(tried), int(_looked(reference) / ratio))
        reference, tried = reference[: round(shared * ratio)], tried[:shared]
    ours, theirs = _totals(reference), _totals(tried)
    if any(p.failed for p in (*reference, *tried)):
        return "unknown"
    if all(close(ours.get(k), theirs.get(k)) for k in ours | theirs):
        return "same"
    return "truncated" if set(theirs) < set(ours) else "different"


def _looked(passes: Sequence[Pass]) -> int:
    return next((i for i, one in enumerate(passes) if not one.looked), len(passes))


def _totals(passes: Sequence[Pass]) -> dict[str, tuple[float, ...]]:
    totals: dict[str, tuple[float, ...]] = {}
    for one in passes:
        for g in one.gradients:
            if g.digest is not None:
                old = totals.get(g.leaf)
                same = old is not None and len(old) == len(g.digest)
                totals[g.leaf] = tuple(a + b for a, b in zip(old, g.digest)) if same else g.digest  # type: ignore[arg-type]
    return totals
