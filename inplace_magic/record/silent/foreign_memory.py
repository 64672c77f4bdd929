"""Memory that is written without a call of torch's: by numpy, another library, C, a scripted function.

No call shows such a write, so values are compared. What is saved in memory that another library owns or was shown is
cloned at once, and compared after every line of the user's that runs, until a line has changed it. Of all else, what
is saved for some of the backwards (the first three, then the fifth, the 17th, the 65th ...) is cloned and compared when
its backward begins; that finds the effect of such a write, and a rerun that compares after every line its place.

Proof: second_run.py.
"""

from __future__ import annotations

import functools
import weakref

import torch

from ...torch_private import unobserved
from .. import evidence
from ..current_line import LineWatch, telling
from ..observed import LiveWrite, Saved, Stack, differ
from .aliases import EXPORTS, called_by_user
from .events import Call, Detector, Passing, Run

_LIMIT = 256 * 2**20  # bytes that are kept to be compared
_SAMPLED = 64 * 2**20  # bytes of them, for each backward, that nobody suspects
_SMALL = 2**20  # bytes of a value that is compared in later samples, too
# Comparisons after lines: so many in any case, and some more for each value that is saved.
_COMPARISONS, _COMPARISONS_EACH = 4_000, 8
_COMPARISONS_OF_RERUN = 200_000


class ForeignMemory(Detector):
    """Compares what calls do not show."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._foreign: list[tuple[weakref.ref[Saved], int]] = []
        self._bytes = 0
        self._sampled: list[weakref.ref[Saved]] = []
        self._sampled_bytes = 0
        self._passes = 0
        self.sampling = True  # what is saved for this backward is compared when it begins
        self._lines = LineWatch(run.line)
        self._left = _COMPARISONS_OF_RERUN if run.policy.every_line else _COMPARISONS
        self._skipped = False  # a line has run since memory was last compared
        self._over = False
        self._every_line = run.policy.every_line

    def begins(self) -> None:
        self._over = False
        self.run.at_end(self._end)

    def _end(self) -> None:
        self._over = True  # what is saved while the recorder is taken off must not begin it anew
        self._lines.stop()

    def saved(self, saved: Saved, tensor: torch.Tensor) -> None:
        if not tensor.is_cpu:
            return
        if self._every_line or not _resizable(tensor) or (tensor.layout is not torch.strided and len(saved.keys) > 1):
            self.run.after_operation(functools.partial(self.compare_later, saved))
        elif self.sampling:
            self.run.after_operation(functools.partial(self.sample, saved))

    def sample(self, saved: Saved) -> None:
        """Clones the value if those of this backward are compared when it begins."""
        if not self.sampling or saved.lost:
            return
        size = saved.size
        if size > (_SAMPLED - self._sampled_bytes if self._passes < 2 else _SMALL) or saved.value is not None:
            return
        if self.run.keep(saved):
            self._sampled_bytes += size
            self._sampled.append(weakref.ref(saved))

    def calls(self, call: Call) -> None:
        if call.name in EXPORTS and call.args and (call.name[:1] == "_" or called_by_user()):
            for saved in self.run.waiting(call.args[0]):
                self.compare_later(saved)

    def calls_in_backward(self, call: Call) -> None:
        self.calls(call)

    def compare_later(self, saved: Saved) -> None:
        """From now on the value is compared after each line."""
        size = saved.size
        if saved.compared or saved.lost or self._over or self._bytes + size > _LIMIT:
            return
        if saved.value is None:
            if not self.run.keep(saved):
                return
        elif not self.run.writes_since(saved):
            self.look(saved, known=False)  # a change so far is no line's from now on
        saved.foreign = saved.compared = True
        self._bytes += size
        self._left += _COMPARISONS_EACH
        self._foreign.append((weakref.ref(saved), size))
        self._lines.start()

    def changed(self) -> set[int]:
        """The ids of the values that are no longer what was saved."""
        found = [saved for reference, _ in self._foreign if (saved := reference()) is not None]
        return {id(saved) for saved in found if differ(saved.value, saved.alias)}

    def backward_begins(self, passing: Passing) -> None:
        with unobserved():
            changed = [
                (reference, saved)
                for reference in self._sampled
                if (saved := reference()) is not None
                and not self.run.writes_since(saved)
                and saved.untouched()
                and differ(saved.value, saved.alias)
            ]
        for reference, saved in changed:
            saved.foreign = saved.compared = True
            self._foreign.append((reference, 0))
            self.look(saved, known=False)
        self._sampled = [reference for reference in self._sampled if reference() is not None]
        self._passes += 1
        self._sampled_bytes = 0
        power = self._passes & (self._passes - 1) == 0
        self.sampling = power and (self._passes <= 4 or self._passes.bit_length() % 2 == 1)

    def line(self) -> None:
        """Has the line changed what is saved in foreign memory?"""
        if self._left < 0:
            self._skipped = True
            return
        gone = False
        with unobserved():  # all that a comparison asks of a tensor would be a call that we listen to
            for reference, size in self._foreign:
                saved = reference()
                if saved is None:
                    gone = True
                    self._bytes -= size
                elif not self.run.writes_since(saved):
                    self._left -= 1
                    self.look(saved)
        self._skipped = False
        if gone:
            self._foreign = [(reference, size) for reference, size in self._foreign if reference() is not None]

    def asked(self, saved: Saved, need: evidence.Backward) -> None:
        if saved.foreign and saved.untouched() and not self.run.writes_since(saved):
            self.look(saved)
            writes = self.run.writes_since(saved)
            if writes:
                self.run.suspect(saved, need, writes[0])

    def look(self, saved: Saved, known: bool = True) -> None:
        """Logs that the value is another one by now; ``known``: the line before was compared, too."""
        if saved.untouched() and differ(saved.value, saved.alias):
            stack = self._line() if known else ()
            self.run.log(saved.key or 0, LiveWrite(stack, self.run.tick(), "", "user", saved.version))

    def _line(self) -> Stack:
        """The line that has just run, as far as that is known: code in another thread may have written meanwhile."""
        return () if self._skipped or self.run.others_run() else telling(self._lines.last)


def _resizable(tensor: torch.Tensor) -> bool:
    """False for memory that another library owns or has been shown: such a storage cannot be resized any more."""
    try:
        return bool(tensor.untyped_storage().resizable())
    except (RuntimeError, NotImplementedError, ValueError):
        return True
