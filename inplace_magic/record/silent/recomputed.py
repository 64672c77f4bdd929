"""Forwards that run again in backward: ``torch.utils.checkpoint``, with reentry or without.

A recomputation that does not give what the forward gave makes every gradient in its region wrong, at the same loss:
weights stepped or a buffer changed in between, a value that the region itself changes, another random state, another
mode. While a region runs, the tensors that it reads and has not made are noted, so that a write into one of them
afterwards is logged and can be named.

Proof: without reentry, the values that backward gets (repacked.py); with reentry, where nothing is saved, the outputs
of both runs. In a reference run the region's inputs stand as they were while it runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from ...torch_private import CHECKPOINT_FUNCTION, unobserved
from ..observed import LiveWrite, Saved, Stack
from ..operations import tensors_in
from .events import Applied, Call, Detector, Run
from .regions import Region
from .second_run import near


class Recomputed(Detector):
    """Follows regions that are recomputed."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._open: list[Region] = []
        self._entering: list[Region | None] = []

    def open(self, stack: Stack) -> Region:
        """A region begins."""
        region = Region(self.run, stack)
        self._open.append(region)
        self.run.curious.add(self)
        return region

    def close(self, region: Region) -> None:
        """It is over."""
        if region in self._open:
            self._open.remove(region)
        region.close()
        if not self._open:
            self.run.curious.discard(self)

    def calls(self, call: Call) -> None:
        for region in self._open:
            region.calls(call)

    def called(self, call: Call, result: Any) -> None:
        for region in self._open:
            region.called(result)

    def cause(self, region: Region) -> LiveWrite:
        """Why a region gives something else now: the first write after it into what it reads, else the first within
        it, else that it runs again at all."""
        writes = sorted(
            (write for saved in region.reads.values() for write in self.run.writes_since(saved)), key=lambda w: w.clock
        )
        later = [write for write in writes if write.clock > region.ended]
        if later or writes:
            return (later or writes)[0]
        return LiveWrite(region.stack, self.run.tick(), "checkpoint", "user", 0, "recomputed")

    # ---- with reentry

    def applies(self, cls: Any, args: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
        self._entering.append(self.open(self.run.here()) if cls is CHECKPOINT_FUNCTION else None)

    def applied(self, applied: Applied) -> None:
        region = self._entering.pop()
        if region is None:
            return
        self.close(region)
        region.stack = applied.stack
        function = getattr(applied.node, "run_function", None)
        if applied.node is None:
            self.run.cut(applied.stack)
        if function is not None:
            outputs = [Saved(t, applied.stack, self.run.tick()) for t in tensors_in(applied.result)]
            for saved in outputs:
                saved.foreign = True  # torch does not check it, so its value is wanted whatever its version
                self.run.remember(saved)
                self.run.sample(saved)
            applied.node.run_function = self._again(function, region, outputs, applied.node)

    def _again(self, function: Callable[..., Any], region: Region, outputs: list[Saved], node: Any) -> Any:
        def run_function(*args: Any, **kwargs: Any) -> Any:
            if self.run.passing is None:
                return function(*args, **kwargs)
            changed: list[Saved] = []
            with ExitStack() as memory:
                with self.run.ours:
                    changed = [s for s in region.reads.values() if self.run.changed(s, self.run.writes_since(s))]
                    for saved in changed if self.run.policy.reference else ():
                        memory.enter_context(saved.put_back())
                result = function(*args, **kwargs)
                with self.run.ours:
                    for saved in changed if self.run.policy.reference else ():
                        self.run.keep_all(saved.alias)  # what has been saved there now is read after this
            with self.run.ours:
                self._judge(region, outputs, changed, result, node)
            return result

        return run_function

    def _judge(self, region: Region, outputs: list[Saved], changed: list[Saved], result: Any, node: Any) -> None:
        passing = self.run.passing
        with unobserved(), torch.no_grad():
            wrong = next((s for s, t in zip(outputs, tensors_in(result)) if not near(_right(s), t)), None)
        if self.run.policy.reference and changed:
            wrong = changed[0]
        if wrong is not None and passing is not None:
            cause = self.cause(region)
            conflict = self.run.conflict("silent", wrong, passing.event, cause, node=node)
            if conflict is not None and cause.how == "recomputed":
                conflict.certain = True  # a reference run recomputes something else as well


def _right(saved: Saved) -> torch.Tensor:
    return saved.alias if saved.value is None else saved.value
