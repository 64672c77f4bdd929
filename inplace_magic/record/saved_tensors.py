"""What autograd has saved, by the storage it lies in, with the writes into it since.

Before a storage is written, each tensor saved in it that is still wanted is cloned, once: only what is both saved and
written is ever copied. Most values are gone before anything is written: what has been saved is sorted by storage not
before somebody asks.
"""

from __future__ import annotations

import weakref

import torch

from ..storage import Key, storage_key
from ..torch_private import version_of
from .observed import LiveWrite, Reserved, Saved, differ

_PRUNE_AT = 64
_UNSORTED = 4096
_WRITES_KEPT = 64  # for each storage: the first ones tell who broke a saved tensor


class Waiting:
    """What is saved in one storage: ``fresh`` as it stands there, ``kept`` with a clone, since it was overwritten."""

    __slots__ = ("fresh", "kept", "prune_at")

    def __init__(self) -> None:
        self.fresh: list[weakref.ref[Saved]] = []
        self.kept: list[weakref.ref[Saved]] = []
        self.prune_at = _PRUNE_AT

    def __len__(self) -> int:
        return len(self.fresh) + len(self.kept)

    def alive(self) -> bool:
        """Whether anything is still wanted. The newest lives the longest, as a rule."""
        for references in (self.fresh, self.kept):
            for reference in reversed(references):  # a loop, since this is asked for every tensor that is saved
                if reference() is not None:
                    return True
        return False

    def all(self) -> list[Saved]:
        return [saved for ref in (*self.kept, *self.fresh) if (saved := ref()) is not None]

    def clear(self) -> None:
        """Forgets everything."""
        self.fresh.clear()
        self.kept.clear()

    def newest_kept(self) -> Saved | None:
        """Of what was overwritten and is still wanted the last that was saved."""
        return next((saved for ref in reversed(self.kept) if (saved := ref()) is not None), None)

    def prune(self) -> None:
        """Forgets what has gone."""
        self.fresh = [ref for ref in self.fresh if ref() is not None]
        self.kept = [ref for ref in self.kept if ref() is not None]
        self.prune_at = _PRUNE_AT + 2 * len(self)


class SavedTensors:
    """Filled by the recorder. ``memory``: bytes of overwritten values that are kept at a time; None is no limit."""

    def __init__(self, memory: int | None = None) -> None:
        self._unsorted: list[weakref.ref[Saved]] = []
        self._sort_at = _UNSORTED
        self._by_storage: dict[Key, Waiting] = {}
        self.writes: dict[Key, list[LiveWrite]] = {}
        self.unkept = 0  # values for which there was no memory
        self._memory = memory
        self._kept = 0

    def remember(self, saved: Saved) -> None:
        """From now on, writes into the value's memory are logged, and it is kept before the first one."""
        self._unsorted.append(weakref.ref(saved))
        if len(self._unsorted) >= self._sort_at:
            self._sort()
            self._sort_at = _UNSORTED + self.remembered

    def _sort(self) -> None:
        unsorted, self._unsorted = self._unsorted, []
        for reference in unsorted:
            saved = reference()
            if saved is not None:
                for key in saved.keys:
                    self._remember(reference, key)

    def _at(self, key: Key | None) -> Waiting | None:
        if self._unsorted:
            self._sort()
        return self._by_storage.get(key) if key is not None else None

    def _remember(self, reference: weakref.ref[Saved], key: Key) -> None:
        waiting = self._by_storage.get(key)
        if waiting is None:
            waiting = self._by_storage[key] = Waiting()
            self.writes.pop(key, None)
        elif not waiting.alive():
            waiting.clear()
            self.writes.pop(key, None)  # nobody held that storage, so its address may belong to another one now
        elif len(waiting) >= waiting.prune_at:
            waiting.prune()
        waiting.fresh.append(reference)

    @property
    def remembered(self) -> int:
        """How many values are still known of, each counted once for every storage that it lies in."""
        return len(self._unsorted) + sum(map(len, self._by_storage.values()))

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether something is, or was, saved in the tensor's storage."""
        return self._at(storage_key(tensor)) is not None

    def waiting(self, tensor: torch.Tensor) -> list[Saved]:
        """What is saved in the tensor's storage and still wanted."""
        return self.waiting_at(storage_key(tensor) or 0)

    def waiting_at(self, key: Key) -> list[Saved]:
        """The same of the storage that begins at an address."""
        waiting = self._at(key)
        return waiting.all() if waiting is not None else []

    def keep_all(self, tensor: torch.Tensor) -> bool:
        """Clones what is saved in this storage and is still wanted, before it is overwritten; False if nothing is."""
        key = storage_key(tensor)
        waiting = self._at(key)
        if waiting is None or key is None:
            return False
        fresh, waiting.fresh = waiting.fresh, []
        for reference in fresh:
            saved = reference()
            if saved is not None:
                waiting.kept.append(reference)
                if saved.value is None and not saved.lost:
                    self.keep(saved)
        if waiting.alive():
            return True
        del self._by_storage[key]
        self.writes.pop(key, None)
        return False

    def keep(self, saved: Saved) -> bool:
        """Clones a value that is about to be overwritten, as far as the memory set aside for that goes."""
        if self._memory is not None:
            size = saved.size
            if self._kept + size > self._memory:
                saved.lost = True
                self.unkept += 1
                return False
            self._kept += size
            saved.reserved += (Reserved(self._release, size),)
        saved.value = saved.alias.clone()  # of an alias, so that no history comes with it
        return True

    def _release(self, size: int) -> None:
        self._kept -= size

    def log(self, key: Key, write: LiveWrite) -> None:
        """Notes a write into a storage; of very many the first ones count."""
        if self._unsorted:
            self._sort()  # what is saved at an address that was another one's forgets the writes into that
        waiting = self._by_storage.get(key)
        kept = waiting.newest_kept() if waiting is not None else None
        write.counted = kept is None or version_of(kept.alias) >= write.version
        log = self.writes.setdefault(key, [])
        if len(log) < _WRITES_KEPT:
            log.append(write)
        else:
            log[-1] = write

    def writes_since(self, saved: Saved) -> list[LiveWrite]:
        """The writes that have been logged for a value since it was saved."""
        logged = [w for key in saved.keys for w in self.writes.get(key, ())] if self.writes else []
        if not logged:
            return []
        if len(saved.keys) > 1:
            logged.sort(key=lambda w: w.clock)
        origin = saved.origin() if saved.origin is not None else None
        return [w for w in logged if w.clock > saved.clock and (w.swapped is None or w.swapped is origin)]


def changed(saved: Saved, writes: list[LiveWrite]) -> bool:
    """Whether torch would read another value now than the one that was saved."""
    before = saved.alias if saved.value is None else saved.value
    return not saved.lost and differ(before, read_now(saved, writes))


def read_now(saved: Saved, writes: list[LiveWrite]) -> torch.Tensor:
    """What torch would read. A leaf that was saved itself is read anew when it was given other ``.data``."""
    origin = saved.origin() if saved.origin is not None else None
    if origin is not None and any(write.swapped is not None for write in writes):
        return origin.detach()
    return saved.alias
