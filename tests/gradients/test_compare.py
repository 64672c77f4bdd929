from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from inplace_magic.gradients.compare import (
    compare,
    deprived,
    leaves_reached,
    reach_alike,
    same_for_training,
    starved,
    stepped_again,
    steps_on_nothing,
    untrained,
    without_purpose,
)
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
    ("tried", "ended", "found"),
    [
        pytest.param([{"v": 1.0}], False, False, id="its step may still be to come"),
        pytest.param([{"v": 1.0}, {"other": 1.0}], True, False, id="it steps a tensor that was made anew"),
        pytest.param([{"v": 1.0}], True, True, id="it never steps"),
        pytest.param([{"v": 1.0}, {"w": 0.0}], False, True, id="it steps without a gradient"),
    ],
)
def test_an_optimizer_that_learns_nothing_any_more(tried: list[dict[str, float]], ended: bool, found: bool) -> None:
    reference, other = (
        [p for used in run for p in stepping((used, used))] for run in ([{"v": 1.0}, {"w": 2.0}], tried)
    )
    assert starved(reference, other, ended) is found


@pytest.mark.parametrize(("other", "found"), [({"w": 2.0, "v": 1.0}, False), ({"w": 0.0, "v": 1.0}, True)])
def test_an_optimizer_that_steps_more_than_it_did_trains_as_long_as_all_of_that_learns(
    other: dict[str, float], found: bool
) -> None:
    assert starved(passes({"w": 1.0}, stepped=("w",)), passes(other, stepped=("w", "v")), ended=True) is found


def test_an_optimizer_of_whose_later_gradients_nothing_is_known_may_well_learn() -> None:
    reference = stepping(({"w": 1.0}, {"w": 2.0}))
    first, second = stepping(({"w": 1.0}, {"w": 0.0}), ({"w": 1.0}, {"w": 0.0}))
    unlooked = replace(second, looked=False, steps=((LeafGradient("w", (1,), ()),),))
    assert starved(reference, [first, second])
    assert not starved(reference, [first, unlooked])


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


def stepping(*found: tuple[dict[str, float], dict[str, float]]) -> list[BackwardPass]:
    """Passes, each with what the optimizers that step behind it use."""
    return [
        BackwardPass(
            Backward(i, (), index=i),
            tuple(LeafGradient(leaf, (1,), (value,)) for leaf, value in given.items()),
            1,
            steps=tuple((LeafGradient(leaf, (1,), (value,)),) for leaf, value in used.items()),
        )
        for i, (given, used) in enumerate(found)
    ]


BOTH = stepping(({"g": 2, "d": 3}, {}), ({"d": 5}, {"d": 8}), ({"g": 7}, {"g": 9}))


@pytest.mark.parametrize(
    ("tried", "idle"),
    [
        pytest.param(BOTH, (), id="nothing changed"),
        pytest.param(
            stepping(({"g": 2}, {}), ({"d": 5}, {"d": 5}), ({"g": 7}, {"g": 9})), (), id="one of its two uses is left"
        ),
        pytest.param(
            stepping(({"d": 3}, {}), ({"d": 5}, {"d": 5}), ({"g": 7}, {"g": 7})),
            (0,),
            id="what it still gives is cleared",
        ),
        pytest.param(stepping(({}, {}), ({"d": 5}, {"d": 5}), ({"g": 7}, {"g": 7})), (0,), id="it gives nothing"),
    ],
)
def test_a_pass_without_purpose_is_one_that_no_step_uses_any_more(
    tried: list[BackwardPass], idle: tuple[int, ...]
) -> None:
    assert without_purpose(BOTH, tried) == idle


def test_a_step_that_clips_what_it_uses_uses_it() -> None:
    clipped = stepping(({"g": 2, "d": 3}, {}), ({"d": 5}, {"d": 4}), ({"g": 7}, {"g": 1}))
    assert without_purpose(BOTH, clipped) == ()


def test_nothing_is_said_of_passes_that_were_not_looked_at() -> None:
    unseen = [replace(one, gradients=(), looked=False) for one in BOTH]
    assert without_purpose(BOTH, unseen) == ()


def test_what_is_known_of_the_passes_before_one_that_was_not_looked_at_is_said() -> None:
    last = replace(BOTH[0], gradients=(), looked=False)
    idle = stepping(({}, {}), ({"d": 5}, {"d": 5}), ({"g": 7}, {"g": 7}))
    assert without_purpose([*BOTH, last], [*idle, last]) == (0,)


def test_a_step_that_has_moved_behind_a_pass_that_was_not_looked_at_may_use_what_came_before() -> None:
    last = replace(BOTH[0], gradients=(), looked=False)
    moved = [*BOTH[:-1], replace(BOTH[-1], steps=()), replace(last, steps=BOTH[-1].steps)]
    assert without_purpose([*BOTH, last], moved) == ()


def test_of_two_steps_behind_a_pass_the_later_one_may_be_the_one_that_uses_it() -> None:
    both = (LeafGradient("g", (1,), (2,)),), (LeafGradient("g", (1,), (5,)),)
    first, second = stepping(({"g": 2}, {}), ({"g": 5}, {}))
    shared = [first, replace(second, steps=both)]
    assert without_purpose(BOTH[:2], shared) == ()
    assert without_purpose(shared, [first, replace(second, steps=both[:1])]) == (1,)


def valued(values: Sequence[float], found: Sequence[BackwardPass]) -> list[BackwardPass]:
    """The passes, each from a loss of this value."""
    return [replace(one, value=(value,)) for one, value in zip(found, values)]


@pytest.mark.parametrize(
    ("tried", "losses", "lost"),
    [
        pytest.param(BOTH, (1, 2, 3), [], id="nothing changed"),
        pytest.param([BOTH[2], *BOTH[:2]], (3, 1, 2), [], id="another order"),
        pytest.param([*stepping(({"d": 3}, {})), *BOTH[1:]], (1, 2, 3), [], id="the next steps are not for it"),
        pytest.param(
            [BOTH[0], *stepping(({}, {"d": 8})), BOTH[2]], (1, 2, 3), [(1, {"d"})], id="the next step is for it"
        ),
        pytest.param([BOTH[0], *stepping(({}, {"d": 8})), BOTH[2]], (1, 9, 3), [], id="it is another loss"),
    ],
)
def test_a_leaf_is_deprived_where_a_loss_gives_nothing_to_it_that_it_is_stepped_for(
    tried: list[BackwardPass], losses: tuple[float, ...], lost: list[tuple[int, set[str]]]
) -> None:
    reference = valued((1, 2, 3), BOTH)
    assert deprived(reference, valued(losses, tried)) == [(reference[index], leaves) for index, leaves in lost]


def test_one_step_for_what_were_several_is_a_difference_although_the_gradients_add_up() -> None:
    several, one = stepping(({"w": 1}, {"w": 1}), ({"w": 1}, {"w": 1})), stepping(({"w": 2}, {"w": 1}))
    assert compare(several, several) == "same"
    assert compare(several, one) == "different"


@pytest.mark.parametrize(
    ("steps", "again"),
    [
        pytest.param([("w",), ()], 0, id="a step after its backward"),
        pytest.param([(), ("w", "v")], 0, id="each optimizer steps once for two backwards"),
        pytest.param([(), ("w", "w", "w")], 2, id="one optimizer steps three times, with no backward between"),
    ],
)
def test_a_step_is_made_again_where_no_backward_came_since_its_optimizer_stepped(
    steps: list[tuple[str, ...]], again: int
) -> None:
    made = [replace(p, steps=tuple((LeafGradient(leaf, (1,), (1.0,)),) for leaf in s)) for p, s in zip(BOTH, steps)]
    assert stepped_again(made) == again


def test_a_step_on_nothing_is_told_from_one_of_whose_gradients_nobody_knows() -> None:
    digests: list[tuple[float, ...] | None] = [(1.0,), (), (0.0,), None]
    steps = tuple((LeafGradient("w", (1,), digest),) for digest in digests)
    mixed = tuple(LeafGradient("w", (1,), digest) for digest in digests)
    assert steps_on_nothing([replace(BOTH[0], steps=(*steps, mixed))]) == 2


def test_what_is_rounding_beside_the_largest_gradient_reaches_no_leaf() -> None:
    assert leaves_reached(passes({"w": 0.3, "k": 7e-14}, {"small": 1e-12})) == {"w", "small"}
    assert leaves_reached(passes({"w": float("inf"), "k": 1.0, "n": float("nan"), "z": 0.0})) == {"w", "k", "n"}


@pytest.mark.parametrize(
    ("tried", "alike"),
    [
        pytest.param(({"w": 1, "v": 2}, {"w": 3}), True, id="other values"),
        pytest.param(({"w": 3}, {"w": 1, "v": 2}), True, id="another order"),
        pytest.param(({"w": 1}, {"w": 3}), False, id="a leaf is cut off"),
        pytest.param(({"w": 1, "v": 0}, {"w": 3}), False, id="a gradient of zero"),
        pytest.param(({"w": 1, "v": 2},), False, id="one backward less"),
    ],
)
def test_whether_each_backward_reaches_the_same_leaves(tried: tuple[dict[str, float], ...], alike: bool) -> None:
    assert reach_alike(passes({"w": 5, "v": 1}, {"w": 2}), passes(*tried)) is alike
    assert not reach_alike([], [])
