"""The measured effect of a fix: what each backward gave, and what the optimizers made of it."""

from __future__ import annotations

import sys

import pytest
import torch

from inplace_magic.gradients.compare import compare, starved, untrained
from inplace_magic.record.evidence import Backward, BackwardPass, LeafGradient
from inplace_magic.record.graph_holders import held, shape_of
from inplace_magic.session.names import Names


def gradients(**leaves: float | None) -> tuple[LeafGradient, ...]:
    return tuple(LeafGradient(k, (1,), None if v is None else (v,)) for k, v in sorted(leaves.items()))


def one_pass(
    index: int, given: tuple[LeafGradient, ...], *steps: tuple[LeafGradient, ...], nodes: int = 5
) -> BackwardPass:
    return BackwardPass(Backward(index, (), index=index), given, nodes, steps=steps)


REFERENCE = (
    one_pass(0, gradients(d=1.0), gradients(d=1.0)),
    one_pass(1, gradients(d=2.0, g=3.0), gradients(g=3.0)),
)


@pytest.mark.parametrize(
    ("tried", "effect"),
    [
        pytest.param(REFERENCE, "same", id="nothing differs"),
        pytest.param(
            (one_pass(0, gradients(d=1.0)), one_pass(1, gradients(g=3.0), gradients(d=1.0), gradients(g=3.0))),
            "same",
            id="a gradient that no step used is not missed",
        ),
        pytest.param(
            (one_pass(0, gradients(d=1.0)), one_pass(1, gradients(d=2.0, g=3.0), gradients(d=3.0), gradients(g=3.0))),
            "different",
            id="a moved step that finds another loss's gradient added",
        ),
        pytest.param(
            (one_pass(0, gradients(d=1.0), gradients(d=1.0)), one_pass(1, gradients(d=2.0, g=1.0), gradients(g=1.0))),
            "different",
            id="another gradient is another gradient",
        ),
        pytest.param(
            (
                one_pass(0, gradients(d=1.0), gradients(d=1.0)),
                one_pass(1, gradients(d=2.5, g=3.0), gradients(g=3.0), nodes=4),
            ),
            "truncated",
            id="what stays in .grad counts, though no step used it yet",
        ),
    ],
)
def test_effect(tried: tuple[BackwardPass, ...], effect: str) -> None:
    assert compare(REFERENCE, tried) == effect


@pytest.mark.parametrize("left", [None, 0.0])
def test_an_optimizer_without_gradients_trains_nothing(left: float | None) -> None:
    tried = (REFERENCE[0], one_pass(1, gradients(d=2.0), gradients(g=left)))
    assert starved(REFERENCE, tried)
    assert not starved(REFERENCE, REFERENCE)
    assert not starved(REFERENCE, REFERENCE[:1])  # its step had not come yet


def test_a_parameter_without_any_gradient_is_named() -> None:
    def rounds(*scale: float | None) -> tuple[BackwardPass, ...]:
        given = [gradients(scale=s, w=1.0) for s in scale]
        return tuple(one_pass(i, one, one) for i, one in enumerate(given))

    reference = rounds(1.0, 2.0, 3.0)
    assert untrained(reference, rounds(1.0, 0.5, 3.0)) == ()
    assert untrained(reference, rounds(1.0, None, 3.0)) == ()
    assert untrained(reference, rounds(None, None, None)) == ("scale",)
    assert untrained(reference, rounds(1.0, None, 0.0)) == ("scale",)  # in the first round, and never again
    assert untrained(rounds(0.0, 0.0), rounds(None, None)) == ()
    assert untrained(reference, rounds(1.0)) == ()  # no further than the first round


def test_without_any_optimizer_every_leaf_counts() -> None:
    reference = (one_pass(0, gradients(a=1.0, b=2.0, c=0.0)),)
    assert untrained(reference, reference) == ()
    assert untrained(reference, (one_pass(0, gradients(a=2.0)),)) == ("b",)


def test_names_that_hold_a_graph() -> None:
    class Keeper(torch.nn.Module):
        state: torch.Tensor

    Keeper.__qualname__ = "Keeper"
    w = torch.ones(2, requires_grad=True)
    keeper = torch.nn.Sequential(Keeper())
    keeper[0].state = w * 2
    pair, plain = (w.exp(), torch.ones(1)), [torch.ones(1)]
    code = compile("def f(pair, plain, keeper):\n    return held(frame())\n", "<ipython-input-1-x>", "exec")
    namespace = {"held": held, "frame": lambda: sys._getframe(1)}
    exec(code, namespace)
    found = namespace["f"](pair, plain, keeper)  # type: ignore[operator]
    assert found["f"] == {"pair": "tuple[Tensor]", "keeper[0].state": "Tensor"}
    assert found["class Keeper"] == {"state": "Tensor"}


def test_objects_in_objects_are_looked_into() -> None:
    class Layer(torch.nn.Module):
        average: torch.Tensor

    class Agent:
        def __init__(self, following: Agent | None = None) -> None:
            self.net, self.following = torch.nn.Sequential(Layer()), following

    Layer.__qualname__, Agent.__qualname__, Agent.__module__ = "Layer", "Agent", "__main__"
    chain = Agent()
    for _ in range(5000):
        chain = Agent(chain)
    chain.net[0].average = torch.ones(2, requires_grad=True) * 2
    code = compile("def f(agents):\n    return held(frame())\n", "<ipython-input-1-x>", "exec")
    namespace = {"held": held, "frame": lambda: sys._getframe(1)}
    exec(code, namespace)
    team = Agent()
    team.agents = [Agent(), chain]  # type: ignore[attr-defined]
    found = namespace["f"](team)  # type: ignore[operator]
    assert found["f"] == {"agents.agents[1].net[0].average": "Tensor"}
    assert found["class Layer"] == {"average": "Tensor"}


def test_names_reach_the_parameters_of_an_agent_in_a_list() -> None:
    class Agent:
        pass

    Agent.__module__ = "__main__"
    team, agent = Agent(), Agent()
    team.agents, agent.actor = [agent], torch.nn.Linear(1, 1)  # type: ignore[attr-defined]
    names = Names({"team": team, "table": [[[agent]]]})
    assert names.of(agent.actor.weight) == "team.agents[0].actor.weight"  # type: ignore[attr-defined]


def test_shapes_of_what_holds_a_graph() -> None:
    y = torch.ones(2, requires_grad=True) * 2
    assert shape_of({"a": [y]}) == "dict[list[Tensor]]"
    assert shape_of(y.detach()) is None
    assert shape_of(torch.ones(1, requires_grad=True)) is None  # a leaf has no history
