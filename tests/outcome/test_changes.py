"""What counts as a difference between two runs, and how it is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inplace_magic.outcome.changes import Difference, clauses, differences, same_line, same_value, updated, without
from inplace_magic.outcome.kept import Leaf, Outcome, Value


def number(value: float) -> Value:
    return Value("number", (), (value,))


def tensor(*values: float) -> Value:
    return Value("tensor", (len(values),) if len(values) > 1 else (), values)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("loss 0.7421", "loss 0.7421", id="equal"),
        pytest.param("loss 0.7421", "loss 0.7422", id="one unit of the last place that is printed"),
        pytest.param("<Net at 0x7f12ab34cd56>", "<Net at 0x7f0000000000>", id="an address"),
        pytest.param("tensor(0.5, grad_fn=<AddBackward0>)", "tensor(0.5)", id="with and without a graph"),
        pytest.param("a  1", "a 1", id="white space"),
        pytest.param(
            "CPU times: user 0 ns, sys: 1.14 ms, total: 1.14 ms",
            "CPU times: user 2.2 ms, sys: 0 ns, total: 2 ms",
            id="%time",
        ),
        pytest.param("Wall time: 988 µs", "Wall time: 1.02 s", id="%time, by the clock"),
        pytest.param(
            "1.2 ms ± 3 µs per loop (mean ± std. dev. of 7 runs, 1,000 loops each)",
            "980 µs ± 12.1 µs per loop (mean ± std. dev. of 7 runs, 1,000 loops each)",
            id="%timeit",
        ),
        pytest.param("1.00000e-3", "1.00001e-3", id="exponents"),
    ],
)
def test_lines_that_say_the_same(one: str, other: str) -> None:
    assert same_line(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("loss 0.742", "loss 1.126", id="another number"),
        pytest.param("step 3", "step 4", id="another whole number"),
        pytest.param("loss 0.742", "loss nan", id="no number any more"),
        pytest.param("loss 0.742", "acc 0.742", id="another word"),
        pytest.param("1 2", "1", id="fewer numbers"),
        pytest.param("epoch 1, Wall time: 2 s", "epoch 2, Wall time: 2 s", id="a line that a person prints"),
    ],
)
def test_lines_that_do_not(one: str, other: str) -> None:
    assert not same_line(one, other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (number(1.0), number(1.0001), True),
        (number(1.0), tensor(1.0), True),
        (number(1.0), number(1.1), False),
        (number(float("nan")), number(float("nan")), True),
        (number(float("inf")), number(1.0), False),
        (Value("text", text="a"), Value("text", text="a"), True),
        (Value("text", text="a"), Value("text", text="b"), False),
        (Value("text", text="None"), tensor(0.0), False),
        (tensor(1.0, 2.0), tensor(1.0, 2.0, 3.0), False),
        (tensor(1000.0, 0.0), tensor(1000.0, 0.5), False),
        (Value("tensor", (9,), None), Value("tensor", (9,), None), True),
    ],
)
def test_values(one: Value, other: Value, same: bool) -> None:
    assert same_value(one, other) is same


BEFORE = Outcome(
    printed="start\nloss 1.126\n",
    values={"total": number(1.126), "log": Value("items", (2,)), "log[0]": number(1.0), "log[1]": number(2.0)},
    leaves={"a": Leaf((1.0, 2.0)), "net.w": Leaf((1.0,), ("opt",)), "net.b": Leaf((1.0,), ("opt",))},
    random={"torch": "seeded"},
)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        pytest.param(BEFORE, (), id="never: nothing differs"),
        pytest.param(
            replace(BEFORE, random={"torch": "seeded", "numpy": "by chance"}),
            (),
            id="never: a generator that one run alone has loaded",
        ),
        pytest.param(
            Outcome(BEFORE.printed, {**BEFORE.values, "new": number(1.0)}, BEFORE.leaves),
            (),
            id="never: a name of the rewrite's own",
        ),
        pytest.param(
            Outcome("start\nloss 0.742\n", BEFORE.values, BEFORE.leaves),
            ("prints 0.742 instead of 1.126",),
            id="a number",
        ),
        pytest.param(
            Outcome("start\n", BEFORE.values, BEFORE.leaves), ("prints 1 line instead of 2",), id="a line less"
        ),
        pytest.param(
            Outcome(BEFORE.printed, {**BEFORE.values, "log": Value("items", (0,))}, BEFORE.leaves),
            ("log has 0 items instead of 2",),
            id="an empty list, and nothing about what stood in it",
        ),
        pytest.param(
            Outcome(BEFORE.printed, {**BEFORE.values, "log[0]": number(3.0), "log[1]": number(3.0)}, BEFORE.leaves),
            ("log[0] is 3 instead of 1, and 1 more",),
            id="of one list the first that differs, and how many more",
        ),
        pytest.param(
            Outcome(BEFORE.printed, BEFORE.values, {**BEFORE.leaves, "a": Leaf(None)}),
            ("a.grad is None afterwards",),
            id="a gradient that is gone",
        ),
        pytest.param(
            Outcome(BEFORE.printed, BEFORE.values, {**BEFORE.leaves, "a": Leaf((0.0, 0.0))}),
            ("a.grad has other values afterwards",),
            id="another gradient where nobody steps",
        ),
        pytest.param(
            Outcome(BEFORE.printed, BEFORE.values, {**BEFORE.leaves, "net.w": Leaf((9.0,), ("opt",))}),
            (),
            id="never: what is left in the gradient of what an optimizer steps, for each step is compared",
        ),
        pytest.param(
            Outcome(
                BEFORE.printed,
                BEFORE.values,
                {"a": Leaf((1.0, 2.0)), "net.w": Leaf(None, ("opt",)), "net.b": Leaf(None, ("opt",))},
            ),
            ("net.w.grad is None afterwards, and 1 more",),
            id="several gradients that are gone",
        ),
        pytest.param(
            Outcome(BEFORE.printed, BEFORE.values, {**BEFORE.leaves, "net.w": Leaf((1.0,))}),
            ("opt no longer updates net.w",),
            id="an optimizer that holds another tensor",
        ),
        pytest.param(
            replace(BEFORE, random={"torch": "x"}),
            ("random numbers drawn later differ",),
            id="random",
        ),
    ],
)
def test_clauses(after: Outcome, said: tuple[str, ...]) -> None:
    assert clauses(differences(BEFORE, after), BEFORE, after) == said


def test_a_leaf_that_is_a_result_now() -> None:
    before = Outcome(values={"a": tensor(1.0)}, leaves={"a": Leaf((1.0,))})
    after = Outcome(values={"a": tensor(1.0)}, computed=frozenset({"a"}))
    said = clauses(differences(before, after), before, after)
    assert said == ("a is no longer a leaf, so a later backward leaves a.grad empty",)


def test_a_name_that_is_gone() -> None:
    before, after = Outcome(values={"loss": tensor(1.0)}), Outcome()
    assert clauses(differences(before, after), before, after) == ("loss does not exist afterwards",)


def test_only_the_first_few_are_told() -> None:
    before = Outcome(values={f"x{i}": number(i) for i in range(9)})
    after = Outcome(values={f"x{i}": number(i + 10) for i in range(9)})
    said = clauses(differences(before, after), before, after)
    assert len(said) == 4 and said[-1] == "6 more"


def test_values_of_gradients_can_be_left_out() -> None:
    after = Outcome(BEFORE.printed, BEFORE.values, {**BEFORE.leaves, "a": Leaf((0.0, 0.0))})
    assert not differences(BEFORE, after, gradients=False)


def test_what_one_text_does_not_give_twice_is_left_out() -> None:
    found = (Difference("line", line=0), Difference("line", line=1), Difference("value", "seconds"))
    noise = (Difference("line", line=1), Difference("value", "seconds"))
    assert without(found, noise) == (Difference("line", line=0),)
    assert without(found, (Difference("lines"),)) == (Difference("value", "seconds"),)


def test_gradients_of_what_an_optimizer_stepped_that_is_gone_are_read_by_nobody() -> None:
    after = Outcome(BEFORE.printed, BEFORE.values, {**BEFORE.leaves, "a": Leaf((0.0, 0.0))})
    assert not differences(BEFORE, after, stepped={"a"})
    gone = Outcome(BEFORE.printed, BEFORE.values, {**BEFORE.leaves, "a": Leaf(None)})
    assert [one.kind for one in differences(BEFORE, gone, stepped={"a"})] == ["no_gradient"]


def test_what_an_optimizer_trains_may_differ_by_rounding_that_it_enlarges_alone() -> None:
    before = Outcome(values={"w": tensor(1.0, 2.0)}, leaves={"w": Leaf((0.5, 0.5), optimizers=("opt",))})
    after = replace(before, values={"w": tensor(1.01, 2.0)})
    assert not differences(before, after)
    assert [one.path for one in differences(before, after, exactly=True)] == ["w"]


def test_parameters_are_updated_that_are_not_what_they_are_without_any_gradient() -> None:
    leaves = {name: Leaf((1.0,), parameter=name != "w") for name in ("net.a", "net.b", "net.new", "w")}
    inert = Outcome(values={"net.a": tensor(1.0), "net.b": tensor(2.0), "w": tensor(3.0)})
    ran = Outcome(
        values={"net.a": tensor(1.5), "net.b": tensor(2.0), "net.new": tensor(4.0), "w": tensor(9.0)}, leaves=leaves
    )
    assert updated(ran, inert) == {"net.a"}
