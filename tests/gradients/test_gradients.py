"""Digests and the comparison of two runs: what is called the same, cut, or different."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inplace_magic.gradients.compare import compare
from inplace_magic.gradients.digest import close, digest
from inplace_magic.record.evidence import Backward, BackwardPass, LeafGradient

A, B = (1.0, 2.0), (3.0, -4.0)


def one(gradients: dict[str, tuple[float, ...] | None], nodes: int = 5, failed: bool = False) -> BackwardPass:
    found = tuple(LeafGradient(name, (2,), value) for name, value in gradients.items())
    return BackwardPass(Backward(0, ()), found, nodes, failed)


@pytest.mark.parametrize(
    ("reference", "tried", "label"),
    [
        pytest.param([], [], "unknown", id="nothing to compare"),
        pytest.param([one({"w": A}, failed=True)], [one({"w": A})], "unknown", id="a reference that was given up"),
        pytest.param([one({"w": A})], [one({"w": A})], "same", id="equal"),
        pytest.param([one({"w": A})], [one({"w": (1.00001, 2.0)})], "same", id="equal up to rounding"),
        pytest.param([one({"w": A})], [one({"w": (1.01, 2.0)})], "different", id="one per cent off"),
        pytest.param([one({"w": A})], [one({"w": (-1.0, -2.0)})], "different", id="another sign"),
        pytest.param([one({"w": A, "v": B})], [one({"w": A})], "truncated", id="a leaf without a gradient"),
        pytest.param([one({"w": A, "v": (0.0, 0.0)})], [one({"w": A})], "same", id="a zero gradient is none"),
        pytest.param([one({"w": A}, 9)], [one({"w": B}, 5)], "truncated", id="a smaller graph"),
        pytest.param([one({"w": A}), one({"w": B})], [one({"w": B}), one({"w": A})], "same", id="another order"),
        pytest.param([one({"w": A}), one({"w": B})], [one({"w": (4.0, -2.0)})], "same", id="two losses summed"),
    ],
)
def test_labels(reference: list[BackwardPass], tried: list[BackwardPass], label: str) -> None:
    assert compare(reference, tried) == label


D1, G1, D2, G2 = one({"d": A}), one({"d": B, "g": B}, 9), one({"d": (7.0, 5.0)}), one({"d": A, "g": A}, 9)


@pytest.mark.parametrize(
    ("tried", "cut_off", "label"),
    [
        pytest.param([G1, D1, G2], True, "same", id="ended in the middle of a round"),
        pytest.param([G1, D1, G2], False, "different", id="never: the last one took no place at all"),
        pytest.param([G1, D1, one({"d": B})], True, "different", id="never: the last one is another of the same kind"),
        pytest.param([D1, G1, G2], True, "different", id="never: nothing but the last one is in another place"),
        pytest.param([G2, D1, G1], True, "different", id="never: more than the last one is another"),
    ],
)
def test_rounds_in_another_order(tried: list[BackwardPass], cut_off: bool, label: str) -> None:
    assert compare([D1, G1, D2], tried, cut_off) == label


@pytest.mark.parametrize("shape", [(), (1,), (5,), (64,), (65,), (300,), (7, 9, 11)])
def test_a_digest_is_linear(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(shape), torch.randn(shape)
    summed = digest(a + b)
    parts = [x + y for x, y in zip(digest(a) or (), digest(b) or (), strict=True)]
    assert summed is not None and close(summed, parts)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.data())
def test_a_change_anywhere_shows(size: int, data: st.DataObject) -> None:
    torch.manual_seed(size)
    a = torch.randn(size)
    b = a.clone()
    b[data.draw(st.integers(0, size - 1))] += 5.0
    assert not close(digest(a), digest(b))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_every_dtype_has_a_digest(dtype: torch.dtype) -> None:
    value = digest(torch.ones(100, dtype=dtype))
    assert value is not None and all(isinstance(x, float) for x in value)


def test_none_and_sparse() -> None:
    assert digest(None) is None
    sparse = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([2.0]), (3,), check_invariants=True)
    assert digest(sparse) == (0.0, 2.0, 0.0)
