"""A thousand programs put together at random: what a watch says of each is what two references say."""

from __future__ import annotations

import textwrap

import pytest
import torch

from ...seeds import SEED, examples
from .judging import by_differences, by_tape, close, gradients, losses, plainly, roughly, same, summed, watched, within
from .random_programs import SETUP, RandomProgram, compose

_SEEDS = 10_000
_BY_EFFECT = "ctypes."  # no call shows such a write, so that it has no line


def program(text: str) -> RandomProgram:
    return RandomProgram("by hand", textwrap.dedent(text), SETUP)


@pytest.mark.parametrize(
    "text",
    [
        "loss1 = (x * 2).sin().sum() + (v @ w).tanh().sum()\nloss1.backward()\n",
        "h = x.view(2, 3)[1] * v\nloss1 = (h @ w).softmax(-1).square().sum()\nloss1.backward()\n",
        "h = checkpoint(lambda t: F.dropout(t * v, 0.5), w * 2, use_reentrant=False)\nloss1 = h.square().sum()\n"
        "loss1.backward()\n",
    ],
    ids=["operations", "views", "a checkpoint with dropout"],
)
def test_the_tape_gives_what_torch_and_differences_give(text: str) -> None:
    one = program(text)
    by_torch = gradients(plainly(one, text))
    assert close(gradients(by_tape(one, text)), by_torch)
    assert roughly(by_differences(one, text), by_torch)


def test_the_tape_is_not_fooled_by_a_write() -> None:
    plain = "h1 = x * 1\nloss1 = h1.square().sum()\nloss1.backward()\n"
    written = plain.replace("loss1.backward()", "h1.data.mul_(3)\nloss1.backward()")
    one = program(written)
    assert close(gradients(by_tape(one, written)), gradients(plainly(one, plain)))
    assert not close(gradients(by_tape(one, written)), gradients(plainly(one, written)))


@pytest.mark.random
@pytest.mark.parametrize("seed", [SEED * _SEEDS + number for number in range(examples(50))])
def test_a_program_is_found_exactly_where_it_is_wrong(seed: int) -> None:
    one = compose(seed)
    for code in (one.twin, one.wrong):
        judge(one, code)


def judge(one: RandomProgram, code: str) -> None:
    """The plain run, the watched one and the references, compared."""
    try:
        plain = plainly(one, code)
    except RuntimeError:  # torch sees it itself
        with pytest.raises(RuntimeError):
            watched(one, code)
        return
    names, seen = watched(one, code)
    reference = by_tape(one, code)
    text = f"\n{one.text}"
    assert seen.problem is None, text
    assert same(gradients(names), gradients(plain)), text
    assert torch.allclose(losses(reference), losses(plain), equal_nan=True), text
    sentences = [finding.sentence for finding in seen.findings]
    if not close(gradients(reference), gradients(plain)):
        assert sentences, f"missed:{text}"
        changed = seen.findings[0].changed
        lines = {line for _, line in one.blamed}
        assert changed.text in lines if changed is not None else any(_BY_EFFECT in line for line in lines), text
        return
    if any(not _past_the_graph(sentence) for sentence in sentences):
        assert not close(within(one, code, tape=True), within(one, code), each=True), f"a false alarm:{text}"
        return
    if one.by == "differences":
        differs = not roughly(by_differences(one, code), summed(plain))
        if sentences:
            assert differs, f"a false alarm past the graph:{text}"
        elif differs:
            assert code == one.wrong, f"the references differ in a twin:{text}"
            assert not {line for _, line in one.blamed} <= one.due, f"missed past the graph:{text}"


def _past_the_graph(sentence: object) -> bool:
    return getattr(sentence, "kind", "") == "past_autograd"
