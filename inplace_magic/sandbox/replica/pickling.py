"""A session's objects in one pickle, so that what they share stays shared. Written beside the session, not in it.

The pickle is made in a copy of the process where there are copies, since pickling runs code of the user's
(``__getstate__``, ``__reduce__``, properties). Objects that cannot be pickled stay behind; see ``absent``.
"""

from __future__ import annotations

import io
import pickle
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import torch

from ...session.shell import Shell
from ...source.location import kind_of
from ...source.own import is_a
from .absent import Absent, NotTaken
from .carrier import Carrier, Extent
from .tensors import StorageKey, TensorReducer, bytes_of

_CANNOT = re.compile(r"cannot pickle '([^']+)' object")
_SYNCHRONISERS = {
    type(threading.Lock()): threading.Lock,
    type(threading.RLock()): threading.RLock,
}


@dataclass(frozen=True)
class Parcel:
    """Objects by value, in a carrier: the pickle, and the storages that it refers to by their number.

    ``on_device`` are storages whose bytes could not be read where the pickle was made.
    ``left``: names whose objects stayed behind, and what those are.
    """

    pickle: bytes
    names: tuple[str, ...]  # in the order of the pickle
    storages: tuple[tuple[StorageKey, Extent | None], ...]
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_device(self) -> tuple[StorageKey, ...]:
        return tuple(key for key, extent in self.storages if extent is None)


class _Token:
    """Stands for something that the replica has of its own, or reads from the carrier."""

    def __init__(self, load: Any, *arguments: Any) -> None:
        self.reduced = load, arguments


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by value what belongs to the session, with its shell and namespace standing for those of the replica."""

    def __init__(self, file: Any, shell: Shell, carrier: Carrier | None = None, carefully: bool = False) -> None:
        super().__init__(file, protocol=5)
        self._carefully = carefully
        self.shell, self.carrier = shell, carrier
        self.storages: dict[StorageKey, tuple[_Token, Extent | None]] = {}
        self.wanted: dict[str, None] = {}  # names of the session that its functions read
        self._tensors = TensorReducer(self._storage)
        # cloudpickle makes each function's globals from this table; the replica's namespace takes their place.
        self.globals_ref[id(shell.user_ns)] = _Namespace(__name__="__main__")

    def reducer_override(self, obj: Any) -> Any:
        special = self._special(obj)
        return super().reducer_override(obj) if special is NotImplemented else special

    def _special(self, obj: Any) -> Any:
        if is_a(obj, torch.Tensor):
            return self._tensors.reduce(obj)
        if is_a(obj, _Token):
            return obj.reduced
        if is_a(obj, _Namespace):
            return _own_namespace, ()
        if obj is self.shell:
            return _own_shell, ()
        if type(obj) is types.CodeType:
            make, arguments = self.dispatch_table[types.CodeType](obj)[:2]
            return _named_code, (make, arguments, obj.co_filename)  # from 3.1.3 on cloudpickle leaves the name out
        reduce = _REDUCERS.get(type(obj))
        if reduce is not None:
            return reduce(obj)
        if is_a(obj, (torch.optim.Optimizer, torch.amp.GradScaler)):
            # Their own __getstate__ leaves out hooks and what a subclass has added, or refuses in mid-iteration.
            return _made_without_init, (type(obj),), obj.__dict__, None, None, _set_attributes
        if self._carefully and any(_is_users(type(obj), name) for name in _PICKLING):
            raise NotTaken(f"a {type(obj).__name__}, which has its own way of being pickled")
        return NotImplemented

    def _dynamic_function_reduce(self, func: types.FunctionType) -> Any:
        make, arguments, state, *rest = super()._dynamic_function_reduce(func)
        if func.__globals__ is self.shell.user_ns:
            attributes, slots = state
            self.wanted.update(dict.fromkeys(slots["__globals__"]))
            state = attributes, {**slots, "__globals__": {}}  # they are names of the session, and come as such
        return (make, arguments, state, *rest)

    def _storage(self, key: StorageKey, storage: torch.UntypedStorage) -> _Token:
        if self.carrier is None:
            raise NotTaken("a tensor")
        if key not in self.storages:
            extent = self.carrier.append(bytes_of(storage)) if storage.device.type == "cpu" else None
            self.storages[key] = _Token(_own_storage, len(self.storages)), extent
        return self.storages[key][0]


_PICKLING = ("__getstate__", "__reduce__", "__reduce_ex__", "__getattr__", "__getattribute__")


def _is_users(kind: type, name: str) -> bool:
    method = getattr(kind, name, None)
    code = getattr(method, "__code__", None)
    return code is not None and kind_of(code.co_filename) == "user"


class _Namespace(dict[str, Any]):
    """Stands for the session's namespace."""


def pickled(shell: Shell, names: Iterable[str], carrier: Carrier, carefully: bool = False) -> Parcel:
    """The objects of these names, and of those that functions among them read. To be called beside the session.

    ``carefully``: in the session itself, where objects whose pickling runs code of the user's stay behind.
    """
    left: dict[str, str] = {}
    todo = list(dict.fromkeys(names))
    while True:
        file = io.BytesIO()
        pickler = Pickler(file, shell, carrier, carefully)
        done: dict[str, None] = {}
        bad = _dump(pickler, shell.user_ns, todo, left, done)
        if bad is None:
            storages = tuple((key, extent) for key, (_, extent) in pickler.storages.items())
            return Parcel(file.getvalue(), tuple(done), storages, left)
        left.update([bad])  # half of it has been written, so all is written anew, without it
        carrier.rewind()


def _dump(
    pickler: Pickler, namespace: Mapping[str, Any], names: list[str], left: Mapping[str, str], done: dict[str, None]
) -> Any:
    """Writes (name, object) after (name, object); returns the name that could not be, with what it is."""
    while todo := [n for n in (*names, *pickler.wanted) if n not in done and n in namespace and n != "__main__"]:
        for name in todo:
            value = namespace[name]
            done[name] = None
            try:
                pickler.dump((name, Absent(left[name]) if name in left else value))
            except NotTaken as absent:
                return name, f"`{name}` ({absent.what})"
            except Exception as error:
                return name, f"`{name}` ({_reason(error)})"
    return None


def _reason(error: Exception) -> str:
    """What a pickler's refusal is about, in a few words."""
    match = _CANNOT.search(str(error))
    if match:
        kind = match.group(1).rsplit(".", 1)[-1]
        return f"a {kind}, which cannot be taken into another process"
    return f"{type(error).__name__}: {error}"[:120]


# ---- what pickle cannot do by itself --------------------------------------------------------------------------------


def _weak(reference: weakref.ref[Any]) -> Any:
    return _weak_again, (reference(),)


def _lock(lock: Any) -> Any:
    return _SYNCHRONISERS[type(lock)], ()


def _generator(generator: torch.Generator) -> Any:
    if generator.device.type != "cpu":
        raise NotTaken("a generator of random numbers on a device")
    return _generator_again, (generator.get_state(),)


def _absent(absent: Absent) -> Any:
    return Absent, (absent.__dict__["_what"],)


_REDUCERS: dict[type, Any] = {
    weakref.ref: _weak,
    torch.Generator: _generator,
    Absent: _absent,
    **dict.fromkeys(_SYNCHRONISERS, _lock),
}


# ---- in the replica ----------------------------------------------------------------------------------------------


@dataclass
class _Own:
    """What the replica has: its shell, and the storages of the parcel that is being unpacked."""

    shell: Shell = field(init=False)
    storages: list[torch.UntypedStorage] = field(default_factory=list)
    referents: list[Any] = field(default_factory=list)


_own = _Own()


def receive(shell: Shell) -> None:
    """Makes this shell the one that unpickled objects refer to."""
    _own.shell = shell


def unpack(parcel: Parcel, storages: Iterable[torch.UntypedStorage]) -> None:
    """Binds the parcel's names in the replica's namespace. Raises NotTaken for one that cannot be made there."""
    _own.storages = list(storages)
    unpickler = pickle.Unpickler(io.BytesIO(parcel.pickle))
    for name in parcel.names:
        try:
            _own.shell.user_ns[name] = unpickler.load()[1]
        except Exception as error:
            raise NotTaken(f"`{name}` ({_reason(error)})") from error


def _own_shell() -> Shell:
    return _own.shell


def _own_namespace() -> dict[str, Any]:
    return _own.shell.user_ns


def _own_storage(number: int) -> torch.UntypedStorage:
    return _own.storages[number]


def _weak_again(target: Any) -> Any:
    if target is None:

        class Gone:
            pass

        return weakref.ref(Gone())
    _own.referents.append(target)  # somebody in the session holds it
    return weakref.ref(target)


def _generator_again(state: torch.Tensor) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _named_code(make: Callable[..., types.CodeType], arguments: tuple[Any, ...], filename: str) -> types.CodeType:
    return make(*arguments).replace(co_filename=filename)


def _made_without_init(kind: type) -> Any:
    return object.__new__(kind)


def _set_attributes(owner: Any, attributes: dict[str, Any]) -> None:
    owner.__dict__.update(attributes)
