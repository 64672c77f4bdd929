"""What a random program's gradients are, by torch and by two references that know nothing of the package.

``by_tape``: from clones of what each operation was given (tape.py). ``by_differences``: from reruns with a leaf moved.
"""

from __future__ import annotations

import re
from typing import Any

import torch

import inplace_magic
from inplace_magic.watch import Check

from .random_programs import RandomProgram
from .running import LEAVES, compiled, started
from .tape import Value, on_tape

Gradients = dict[str, torch.Tensor]
_BACKWARD = re.compile(r"(?:parts\d+ = grad\(|)(loss\d+)(?:, \[|\.backward)")
_NAMED = re.compile(r"^( *)([hp]\d+) = .*$", re.MULTILINE)
_STEP = 1e-6
_ROUNDING = 1e-8


def run(names: dict[str, Any], code: str) -> dict[str, Any]:
    """The names after the program has run."""
    torch.manual_seed(5)
    exec(compiled(code), names)
    return names


def plainly(program: RandomProgram, code: str) -> dict[str, Any]:
    """Run by torch."""
    return run(started(program), code)


def by_tape(program: RandomProgram, code: str) -> dict[str, Any]:
    """Run by the tape."""
    return run(on_tape(started(program), LEAVES), code)


def watched(program: RandomProgram, code: str) -> tuple[dict[str, Any], Check]:
    """Run by torch, watched."""
    names = started(program)
    with inplace_magic.check() as seen:
        run(names, code)
    return names, seen


def within(program: RandomProgram, code: str, *, tape: bool = False) -> Gradients:
    """What arrives at each named value, which the leaves need not show: a later factor may be nought."""
    found: Gradients = {}

    def note(name: str, value: Any) -> None:
        def add(gradient: torch.Tensor) -> None:
            found[name] = found[name] + gradient if name in found else gradient.clone()

        value.register_hook(add)

    names = started(program)
    names = (on_tape(names, LEAVES) if tape else names) | {"note": note}
    run(names, _NAMED.sub(r"\g<0>\n\1note('\2', \2)", code))
    return found | gradients(names)


def by_differences(program: RandomProgram, code: str) -> Gradients:
    """The derivatives of the sum of all that goes backward."""
    roots = _BACKWARD.findall(code)

    def total(leaf: str, index: int, step: float) -> float:
        names = started(program)
        names[leaf].data.view(-1)[index] += step
        run(names, code)
        return sum(float(names[root]) for root in roots)

    return {
        leaf: torch.tensor(
            [(total(leaf, i, _STEP) - total(leaf, i, -_STEP)) / (2 * _STEP) for i in range(tensor.numel())]
        ).view(tensor.shape)
        for leaf, tensor in ((leaf, started(program)[leaf]) for leaf in LEAVES)
    }


def gradients(names: dict[str, Any]) -> Gradients:
    """Of the leaves, of modules' parameters, and what ``grad`` has given."""
    leaves = {name: names[name] for name in LEAVES}
    found: Gradients = {}
    for name, value in names.items():
        if re.fullmatch(r"net\d+", name):
            leaves |= {f"{name}.{key}": getattr(value, key) for key in ("weight", "bias")}
        elif re.fullmatch(r"parts\d+", name):
            found |= {f"{name}[{i}]": part.clone() for i, part in enumerate(value) if part is not None}
    for name, leaf in leaves.items():
        found[name] = torch.zeros(leaf.shape) if leaf.grad is None else leaf.grad.clone()
    return found


def summed(names: dict[str, Any]) -> Gradients:
    """What all backwards have given to the leaves."""
    found = {name: one for name, one in gradients(names).items() if name in LEAVES}
    for name, parts in names.items():
        if re.fullmatch(r"parts\d+", name):
            found |= {leaf: found[leaf] + part for leaf, part in zip(LEAVES, parts) if part is not None}
    return found


def losses(names: dict[str, Any]) -> torch.Tensor:
    """What goes backward."""
    values = [value for name, value in names.items() if re.fullmatch(r"loss\d+", name)]
    return torch.stack([v.memory if isinstance(v, Value) else v.detach() for v in values])


def close(ones: Gradients, others: Gradients, each: bool = False) -> bool:
    """Whether they are the same but for rounding; a gradient of 1e-9 is as good as one of 1, and with ``each`` an
    element of 1 beside one of 1e8."""
    least = 1e-14 if each else 1e-6
    return ones.keys() == others.keys() and all(
        torch.allclose(one, others[name], rtol=1e-5, atol=least * _size(one, others[name]), equal_nan=True)
        for name, one in ones.items()
    )


def _size(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest element, but no less than what may be left by rounding where values of 1 cancel."""
    largest = torch.maximum(one.abs(), other.abs()).nan_to_num(0.0, 0.0, 0.0)
    return max(float(largest.max()) if largest.numel() else 0.0, _ROUNDING)


def roughly(ones: Gradients, others: Gradients) -> bool:
    """Whether they are the same as far as differences can tell."""
    return ones.keys() == others.keys() and all(
        torch.allclose(one, others[name], rtol=1e-4, atol=1e-5, equal_nan=True) for name, one in ones.items()
    )


def same(ones: Gradients, others: Gradients) -> bool:
    """Whether they are the same, bit for bit."""
    return ones.keys() == others.keys() and all(
        torch.equal(one.view(torch.int64), others[name].view(torch.int64)) for name, one in ones.items()
    )
