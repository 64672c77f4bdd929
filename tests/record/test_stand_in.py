"""A tensor type of the person's that refuses what it does not know works under a watch and in a rerun as it does without."""

from __future__ import annotations

import pickle
from typing import Any

import torch

import inplace_magic

from ..cells import run_cells

UNITS = """
import torch
class Units(torch.Tensor):
    KNOWN = {torch.Tensor.mul, torch.Tensor.exp, torch.Tensor.mul_, torch.Tensor.sum, torch.Tensor.backward, torch.autograd.grad,
             torch.Tensor.requires_grad.__get__, torch.Tensor.shape.__get__, torch.Tensor.is_sparse.__get__, torch.Tensor.is_complex}
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in cls.KNOWN:
            raise TypeError(f"Units: {func}")
        return super().__torch_function__(func, types, args, kwargs or {})
w = torch.ones(3, requires_grad=True)
u = torch.ones(3).as_subclass(Units)
"""
RUN = """
y = w.mul(u).exp()
z = torch.autograd.grad(y.sum(), w)
u.mul_(2)
with torch.no_grad():
    u.mul_(0.5)
    v = u.mul(2)
w.mul(v).exp().sum().backward()
"""


def test_a_watched_program_is_refused_nothing_that_it_may_do_without() -> None:
    plain: dict[str, Any] = {}
    exec(UNITS + RUN, plain)
    names: dict[str, Any] = {}
    exec(UNITS, names)
    with inplace_magic.check() as seen:
        exec(RUN, names)
    assert seen.problem is None
    assert names["w"].grad.tolist() == plain["w"].grad.tolist()


def test_a_failing_cell_fails_again_and_is_mended() -> None:
    diagnosis = run_cells(UNITS, "y = w.mul(u).exp()\ny.mul_(2)\ny.sum().backward()\n").diagnosis
    assert diagnosis is not None
    assert [fix.title for fix in diagnosis.fixes][:1] == ["y = y.mul(2)"]


def test_what_stands_in_is_torchs_own_to_whoever_compares_or_keeps_it() -> None:
    plain = torch.Tensor.backward
    with inplace_magic.check():
        ours = torch.Tensor.backward
        assert ours is not plain
        assert ours == plain
        assert plain == ours
        assert {plain: 1}[ours] == 1
        assert ours != torch.Tensor.exp
        assert ours.__name__ == "backward"
        asked = torch.autograd.grad
    assert torch.Tensor.backward is plain
    assert asked is not torch.autograd.grad
    assert asked == torch.autograd.grad
    back = pickle.loads(pickle.dumps([ours, asked]))
    assert back[0] is plain
    assert back[1] is torch.autograd.grad
