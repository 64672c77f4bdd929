"""What is read off a live namespace."""

from __future__ import annotations

import collections
import io
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from inplace_magic.outcome.capture import Printed, outcome
from inplace_magic.outcome.changes import differences


class Trainer:
    def __init__(self) -> None:
        self.steps = 3
        self.seen = [1.0, 2.0]


def seen(**names: Any) -> dict[str, Any]:
    return {path: (value.shape, value.digest, value.text) for path, value in outcome(names).values.items()}


def test_a_namespace_is_left_as_it_is() -> None:
    torch.manual_seed(0)
    x, state = torch.randn(3, requires_grad=True), torch.get_rng_state()
    names = {"x": x, "items": [x, 1], "net": nn.Linear(2, 2)}
    version = x._version
    outcome(names)
    assert list(names) == ["x", "items", "net"] and x._version == version and x.grad is None
    assert not torch.equal(state, torch.get_rng_state())  # nn.Linear draws; capturing did not, see below
    state = torch.get_rng_state()
    outcome(names)
    assert torch.equal(state, torch.get_rng_state())


def test_numbers_texts_and_containers() -> None:
    found = seen(n=2, flag=True, name="run", nothing=None, log=[0.5, "a"], table={"k": 1}, queue=collections.deque([7]))
    assert found["n"][1] == (2.0,) and found["flag"][1] == (1.0,)
    assert found["name"][2] == "run" and found["nothing"][2] == "None"
    assert found["log"][0] == (2,) and found["log[0]"][1] == (0.5,) and found["log[1]"][2] == "a"
    assert found["table['k']"][1] == (1.0,) and found["queue[0]"][1] == (7.0,)


def test_tensors_arrays_modules_and_objects() -> None:
    net = nn.BatchNorm1d(2)
    found = seen(
        net=net,
        array=np.arange(3.0),
        scalar=np.float32(2),
        space=types.SimpleNamespace(a=1),
        flags=torch.tensor([True]),
    )
    assert found["net.running_mean"][1] == (0.0, 0.0) and found["net.weight"][0] == (2,)
    assert found["array"][1] == (0.0, 1.0, 2.0) and found["scalar"][1] == (2.0,) and found["flags"][1] == (1.0,)
    assert found["space.a"][1] == (1.0,)
    trainer = Trainer()
    assert seen(trainer=trainer)["trainer.steps"][1] == (3.0,)
    assert "net.eps" not in found, "how a torch module is set up is no result"


def test_statistics_are_the_buffers_of_torchs_own_modules() -> None:
    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.Sequential(nn.BatchNorm1d(2))
            self.register_buffer("state", torch.zeros(2))

    parts = ("running_mean", "running_var", "num_batches_tracked")
    assert outcome({"net": Memory()}).statistics == {f"net.norm[0].{part}" for part in parts}


def test_what_refers_to_itself_comes_to_an_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert seen(loop=loop)["loop[0]"][1] == (1.0,)


def test_an_object_that_refuses_to_be_looked_at_is_passed_over() -> None:
    class Refusing(list[int]):
        def __iter__(self) -> Any:
            raise RuntimeError("no")

    assert "n" in seen(strange=Refusing([1]), n=1)


def test_leaves_their_gradients_and_who_steps_them() -> None:
    w, free, fixed = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True), torch.ones(2)
    optimizer = torch.optim.SGD([w], lr=0.1)
    (w * free.detach()).sum().backward()
    y = w * 2
    found = outcome({"w": w, "free": free, "fixed": fixed, "y": y, "opt": optimizer})
    assert found.leaves["w"].gradient == (1.0, 1.0) and found.leaves["w"].optimizers == ("opt",)
    assert found.leaves["free"].gradient is None and found.leaves["free"].optimizers == ()
    assert "fixed" not in found.leaves and "y" not in found.leaves and found.computed == {"y"}


def test_what_has_another_tensors_values_is_read_instead() -> None:
    x, meant = torch.zeros(2), torch.ones(2)
    found = outcome({"x": x}, instead=lambda t: meant if t is x else t)
    assert found.values["x"].digest == (1.0, 1.0)


def test_a_draw_shows() -> None:
    before = outcome({})
    random.random()
    assert [one.kind for one in differences(before, outcome({}))] == ["random"]


def test_numpys_generator_is_not_looked_at_until_somebody_has_loaded_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking would load it, which seeds it anew: two runs of one cell would differ."""
    np.random.rand()  # numpy itself loads it at the first use
    monkeypatch.delitem(sys.modules, "numpy.random", raising=False)
    before = outcome({})
    np.random.rand()
    assert differences(before, outcome({})) == ()


def test_a_long_list_of_numbers_is_one_value() -> None:
    long = [float(i) for i in range(5000)]
    other = [*long[:-1], 0.0]
    assert len(seen(log=long)) == 1
    assert [one.path for one in differences(outcome({"log": long}), outcome({"log": other}))] == ["log"]


def test_print_is_kept_up_to_a_limit() -> None:
    printed = Printed()
    print("a", file=printed)
    for _ in range(30):
        printed.write("x" * 10_000)
    assert printed.text.startswith("a\nxxx") and len(printed.text) == 200_000


def test_a_view_made_without_grad_mode_is_no_leaf_of_the_users() -> None:
    w = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        view = (w * 2)[:2]
    own = torch.zeros(4).view(-1).requires_grad_()
    assert set(outcome({"w": w, "view": view, "own": own}).leaves) == {"w", "own"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param(lambda h: h * 2, True, id="the same"),
        pytest.param(lambda h: h * torch.tensor([2.0, 1.0, 2.0]).exp().log(), False, id="other weights"),
        pytest.param(lambda h: h.detach() * 2 + h - h, False, id="a cut"),
    ],
)
def test_what_a_backward_to_come_would_give(change: Callable[[torch.Tensor], torch.Tensor], same: bool) -> None:
    w = torch.ones(3, requires_grad=True)
    one, other = (outcome({"w": w, "h": made}, ahead=True) for made in (w * 2, change(w)))
    assert any(found.kind == "ahead" for found in differences(one, other)) is not same
    assert w.grad is None


def test_a_backward_to_come_that_fails_is_a_difference() -> None:
    w = torch.ones(3, requires_grad=True)
    whole, broken = w.exp(), w.exp()
    broken.add_(1).sub_(1)
    one, other = (outcome({"w": w, "h": made}, ahead=True) for made in (whole, broken))
    assert [found.kind for found in differences(one, other)] == ["ahead"]
    assert not differences(other, one)


def test_print_goes_to_a_file_with_bytes_below() -> None:
    printed = Printed()
    printed.reconfigure(line_buffering=True)
    print("é", file=printed)
    printed.buffer.write(b"raw")
    assert printed.text == "é\nraw"
    assert (printed.name, printed.fileno(), printed.isatty(), printed.encoding) == ("<stdout>", 1, False, "utf-8")


def test_what_was_printed_is_known_when_the_standard_output_has_been_closed() -> None:
    printed = Printed()
    wrapper = io.TextIOWrapper(printed.buffer, encoding="utf-8", write_through=True)
    wrapper.write("a")
    wrapper.close()
    assert printed.text == "a"
