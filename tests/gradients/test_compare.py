from __future__ import annotations

from collections.abc import Sequence

import pytest

from inplace_magic.gradients.compare import same_for_training, untrained
from inplace_magic.record.evidence import Backward, BackwardPass, LeafGradient


def passes(*found: dict[str, float], stepped: Sequence[str] = ()) -> list[BackwardPass]:
    """A pass for each of the gradients; after the last one an optimizer steps."""
    made = [[LeafGradient(leaf, (1,), (value,)) for leaf, value in one.items()] for one in found]
    steps = (tuple(g for g in made[-1] if g.leaf in stepped),) if stepped else ()
    return [
        BackwardPass(Backward(i, (), index=i), tuple(one), 1, steps=steps if i + 1 == len(made) else ())
        for i, one in enumerate(made)
    ]


@pytest.mark.parametrize(
    ("reference", "tried", "stepped", "same"),
    [
        pytest.param({"w": 1.0, "x": 1.0}, {"w": 1.0, "x": 0.5}, ("x",), False, id="a step uses another gradient"),
        pytest.param({"w": 1.0, "x": 1.0}, {"w": 0.5, "x": 1.0}, (), False, id="nobody steps at all"),
        pytest.param({"w": 1.0, "x": 1.0}, {"w": 0.5, "x": 1.0}, ("x",), True, id="the other leaf is never stepped"),
    ],
)
def test_whether_a_step_feels_it(
    reference: dict[str, float], tried: dict[str, float], stepped: tuple[str, ...], same: bool
) -> None:
    assert same_for_training(passes(reference, stepped=stepped), passes(tried, stepped=stepped)) is same


@pytest.mark.parametrize(
    ("tried", "lost"),
    [
        pytest.param([{"w": 1.0}, {}], ("fast",), id="nothing stands in for it"),
        pytest.param([{"w": 1.0}, {"fast anew": 2.0}], (), id="a tensor that was made anew has another name"),
        pytest.param([{"w": 1.0}, {"w": 2.0}], ("fast",), id="one that had a gradient before is no stand-in"),
    ],
)
def test_a_leaf_that_loses_its_gradient(tried: list[dict[str, float]], lost: tuple[str, ...]) -> None:
    assert untrained(passes({"w": 1.0}, {"fast": 2.0}), passes(*tried)) == lost
