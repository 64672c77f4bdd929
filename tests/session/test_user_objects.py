"""What the user's names lead to, and that nothing else is looked into."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections import OrderedDict, deque, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch import nn

from inplace_magic.outcome.capture import outcome
from inplace_magic.session.names import Names
from inplace_magic.session.user_objects import resolving, walk
from inplace_magic.source.own import own_names
from tests.cells import run_cells

T = torch.zeros(2)


class Holder:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("h",)


@dataclasses.dataclass
class State:
    h: torch.Tensor


class Keeps:
    kept = T


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.ModuleList([nn.Linear(2, 2)]))
        self._hidden = T


Pair = namedtuple("Pair", "first second")


def paths(value: Any, **names: Any) -> list[str]:
    """Every path to ``value``, each of which leads to it when it is evaluated."""
    found = [path for path, one in walk(names) if one is value]
    for path in found:
        assert eval(path, {}, dict(resolving(names))) is value
    return found


def closes_over(h: torch.Tensor) -> Any:
    def step() -> torch.Tensor:
        return h

    return step


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"Out": {1: T}, "_": T, "__": T, "_3": T, "_oh": {1: T}}, id="what IPython keeps"),
        pytest.param({"__annotations__": {"x": T}}, id="what Python keeps"),
        pytest.param({"text": types.MappingProxyType({"x": T})}, id="the insides of what a library made"),
        pytest.param({"sys": sys, "torch": torch}, id="a library's module"),
        pytest.param({"f": functools.lru_cache(closes_over)}, id="a library's function"),
    ],
)
def test_nothing_is_found_in(names: dict[str, Any]) -> None:
    assert [path for path, value in walk(names) if isinstance(value, torch.Tensor)] == []


def test_a_shell_brings_no_names_of_the_user() -> None:
    shell = InteractiveShell()
    shell.run_cell("1 + 1", store_history=True)
    shell.run_cell("_h, x_, _x1, __private = 1, 2, 3, 4", store_history=True)
    assert [name for name, _ in own_names(shell.user_ns)] == ["_h", "x_", "_x1", "__private"]


@pytest.mark.parametrize(
    ("names", "path"),
    [
        pytest.param({"h": T}, "h", id="a name"),
        pytest.param({"_h": T}, "_h", id="a private name"),
        pytest.param({"_h": T, "shown": T}, "shown", id="a public name before a private one"),
        pytest.param({"state": {"h": T}}, "state['h']", id="an item of a dict"),
        pytest.param({"state": OrderedDict(h=[T])}, "state['h'][0]", id="an item of an item"),
        pytest.param({"q": deque([1, T])}, "q[1]", id="an item of a deque"),
        pytest.param({"pair": Pair(1, T)}, "pair.second", id="a field of a named tuple"),
        pytest.param({"s": types.SimpleNamespace(h=T)}, "s.h", id="an attribute of a namespace"),
        pytest.param({"s": State(T)}, "s.h", id="a field of a dataclass"),
        pytest.param({"t": Holder(_h=T)}, "t._h", id="a private attribute"),
        pytest.param({"t": Holder(a=Holder(b=[Holder(c=T)]))}, "t.a.b[0].c", id="attributes of objects in objects"),
        pytest.param({"K": Keeps}, "K.kept", id="an attribute of a class"),
        pytest.param({"step": closes_over(T)}, "step.__closure__[0].cell_contents", id="what a function closes over"),
        pytest.param({"step": functools.partial(print, T)}, "step.args[0]", id="an argument of a partial"),
        pytest.param({"m": Holder(f=T).__init__}, "m.__self__.f", id="what a bound method is bound to"),
    ],
)
def test_the_path_to_a_tensor(names: dict[str, Any], path: str) -> None:
    assert paths(T, **names)[0] == path


def test_a_module_whose_constructor_has_not_called_torchs_yet_has_no_parts() -> None:
    begun = Recurrent.__new__(Recurrent)
    assert paths(T, begun=begun, h=T)[0] == "h"


def refuses(*_: Any) -> Any:
    raise RuntimeError("not to be asked")


class Refusing(list[Any]):
    __iter__ = __len__ = __bool__ = __getitem__ = refuses  # type: ignore[assignment]


class RefusingDict(dict[Any, Any]):
    items = keys = values = __iter__ = refuses  # type: ignore[assignment]


class Key(str):
    __repr__ = refuses  # type: ignore[assignment]


class Fields(tuple[Any, ...]):
    _fields = property(refuses)


class Slots:
    __slots__ = ("h",)


Slots.__slots__ = 7  # type: ignore[assignment]


class Tagged(torch.nn.Module):
    """A module that compares by value, which cannot be hashed, and keeps its hooks in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.my_hooks, self._more_hooks = torch.nn.Linear(2, 2), [print], torch.ones(3)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tagged)

    named_modules = named_parameters = refuses  # type: ignore[assignment]


class Unnamed(types.ModuleType):
    __getattr__ = refuses


def nameless() -> types.ModuleType:
    module = Unnamed("m")
    del module.__name__
    return module


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(Refusing([1]), id="a list that refuses to be gone through"),
        pytest.param(RefusingDict(a=1), id="a dict"),
        pytest.param({Key("k"): 1, "key": 2}, id="a key that has no text"),
        pytest.param(Fields((1, 2)), id="a tuple with fields of its own"),
        pytest.param(Slots(), id="slots that are no names"),
        pytest.param(Tagged(), id="a module with hooks in a list, which cannot be hashed"),
        pytest.param(nameless(), id="a module without a name"),
    ],
)
def test_an_odd_object_does_not_keep_the_others_from_being_found(odd: Any) -> None:
    assert paths(T, a=odd, b={"c": [odd, T]})[0] == "b['c'][1]"
    names = Names({"a": odd, "b": [T, odd]})
    assert names.of(T) == "b[0]"
    seen = outcome({"a": odd, "h": T}).values
    assert seen["h"].shape == tuple(T.shape)
    assert ("a.inner.weight" in seen) is isinstance(odd, Tagged)


def test_the_insides_of_an_odd_object_are_found_past_its_own_code() -> None:
    tagged = Tagged()
    assert paths(tagged.inner.weight, net=tagged)[0] == "net.inner.weight"
    held = {path for path, one in walk({"kept": Refusing([T]), "b": RefusingDict(h=T)}) if one is T}
    assert {"kept[0]", "b['h']"} <= held


def test_a_slot() -> None:
    slotted = Slotted()
    slotted.h = T
    assert paths(T, slotted=slotted)[0] == "slotted.h"


def test_the_parts_of_a_model_however_deep() -> None:
    net = Recurrent()
    assert paths(net.layers[1][0].weight, everything=list(net.parameters()), net=net)[0] == "net.layers[1][0].weight"
    assert paths(T, net=net)[0] == "net._hidden"
    assert not any(part in path for path, _ in walk({"net": net}) for part in ("_parameters", "_modules", "_hooks"))


def test_a_parameter_in_an_optimizer() -> None:
    w = torch.zeros(2, requires_grad=True)
    assert paths(w, opt=torch.optim.SGD([w], lr=0.1))[0] == "opt.param_groups[0]['params'][0]"


def test_what_holds_itself_is_gone_through_once() -> None:
    ring: list[Any] = [T]
    ring.append(ring)
    ring.append(Holder(ring=ring))
    assert [path for path in paths(T, ring=ring) if path.startswith("ring")] == ["ring[0]"]


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module in a file of the user's."""
    (tmp_path / "own_trainer.py").write_text(
        "class Trainer:\n    pass\n\n\nstate = {}\n\n\ndef step():\n    return state\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import own_trainer  # type: ignore[import-not-found]

    yield own_trainer
    del sys.modules["own_trainer"]


def test_a_global_of_a_module_by_its_name(trainer: types.ModuleType) -> None:
    trainer.state["h"] = T
    assert paths(T, tr=trainer)[0] == "tr.state['h']"


@pytest.mark.parametrize("name", ["step", "Trainer"])
def test_a_global_of_a_module_that_has_no_name(trainer: types.ModuleType, name: str) -> None:
    trainer.state["h"] = T
    assert paths(T, thing=getattr(trainer, name))[0] == "own_trainer.state['h']"


def test_an_object_of_a_class_in_a_module(trainer: types.ModuleType) -> None:
    one = trainer.Trainer()
    one._hidden = T
    assert paths(T, one=one)[0] == "one._hidden"


def test_what_a_lazy_module_has_yet_to_fill_is_no_tensor_to_look_at() -> None:
    net = nn.Sequential(nn.LazyLinear(1), nn.Linear(1, 1))
    found = {path for path, value in walk({"net": net}) if isinstance(value, torch.Tensor)}
    assert found == {"net[1].weight", "net[1].bias"}
    setup = (
        "import torch, torch.nn as nn\ntorch.manual_seed(0)\nhead = nn.LazyLinear(1)\nw = nn.Parameter(torch.randn(3))"
    )
    run = run_cells(setup)
    run.shell._inplace_magic_extension.session.busy[1] = 3.0  # then its cells are not run from the top
    run = run.cell("y = (2 * w).expand(2, 3)\ny += 1\nhead(y).sum().backward()")
    assert run.diagnosis is not None and run.diagnosis.fixes
