"""Runs the programs of programs.py: plainly, watched, and with a leaf moved a little."""

from __future__ import annotations

import linecache
import textwrap
from functools import lru_cache
from types import CodeType
from typing import Any

import torch

import inplace_magic
from inplace_magic.watch import Check

from .programs import START, Program

LEAVES = ("x", "w", "v")
_STEP = 1e-6
_START = compile(START, "<start>", "exec")


def run(program: Program, code: str, move: tuple[str, int, float] | None = None) -> dict[str, Any]:
    """The names after a program has run; ``move`` adds something to one element of a leaf ahead."""
    names = started(program)
    if move is not None:
        leaf, index, step = move
        names[leaf].data.view(-1)[index] += step
    torch.manual_seed(5)
    exec(compiled(code), names)
    return names


def watch(program: Program, code: str) -> Check:
    """What a watch sees, without a rerun."""
    names = started(program)
    torch.manual_seed(5)
    with inplace_magic.check() as seen:
        exec(compiled(code), names)
    return seen


def gradients(names: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The gradients of the leaves and of all parameters; zeros where there is none."""
    found = {leaf: names[leaf] for leaf in (*LEAVES, "y") if isinstance(names.get(leaf), torch.Tensor)}
    for name, value in names.items():
        if isinstance(value, torch.nn.Module):
            found |= {f"{name}.{key}": parameter for key, parameter in value.named_parameters()}
    return {
        name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone()
        for name, leaf in found.items()
        if leaf.is_leaf
    }


def differences(program: Program, code: str) -> dict[str, torch.Tensor]:
    """The derivatives of ``loss`` with respect to the leaves, by central differences."""

    def loss(leaf: str, index: int, step: float) -> float:
        return float(run(program, code, (leaf, index, step))["loss"])

    names = run(program, code)  # to its end: what its setup has started ends there
    return {
        leaf: torch.tensor(
            [(loss(leaf, index, _STEP) - loss(leaf, index, -_STEP)) / (2 * _STEP) for index in range(tensor.numel())]
        ).reshape(tensor.shape)
        for leaf, tensor in ((leaf, names[leaf]) for leaf in LEAVES)
    }


def close(ones: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    """Whether the gradients that both have are the same."""
    return all(torch.allclose(ones[k], others[k], rtol=1e-5, atol=1e-6) for k in ones.keys() & others.keys())


def started(program: Program) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(_START, names)
    exec(compiled(textwrap.dedent(program.setup)), names)
    return names


def compiled(text: str) -> CodeType:
    """Its file counts as the user's own, and its text can be looked up, as torch.jit.script does."""
    path = f"/home/somebody/{abs(hash(text))}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    return _code(text, path)


@lru_cache(16)
def _code(text: str, path: str) -> CodeType:
    """The same program runs dozens of times, with a leaf moved a little."""
    return compile(text, path, "exec")
