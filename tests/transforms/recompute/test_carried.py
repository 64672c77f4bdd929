"""A value that an iteration hands on is computed again, with the weights as they are by then."""

from __future__ import annotations

import pytest

from ..trying import fix_by, rewritten, rules

RULE = "recompute_carried"
START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    critic = nn.Linear(4, 1)
    opt = torch.optim.SGD([*encoder.parameters(), *critic.parameters()], lr=0.1)
    def encode(obs):
        return torch.tanh(encoder(obs))
    seen = torch.randn(4, 2, 3)
    """
ITERATIONS = """
    state = encode(seen[0])
    for obs in seen[1:]:
        next_state = encode(obs)
        loss = (critic(state) - 0.9 * critic(next_state).detach()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        state = next_state
    """


def test_is_not_offered_where_nothing_is_handed_on() -> None:
    assert RULE not in rules(START, ITERATIONS.replace("        state = next_state\n", ""))


def test_is_proved_with_its_effect_measured() -> None:
    fix = fix_by(RULE, START, ITERATIONS)
    assert fix.cells == {2: rewritten(ITERATIONS, ("    state = next_state", "    state = encode(obs)"))}
    assert fix.gradients == "different"


def test_one_of_several_names_that_are_handed_on() -> None:
    cell = ITERATIONS.replace("        state = next_state", "        last, state = loss, next_state")
    fix = fix_by(RULE, START, cell)
    assert fix.cells == {2: rewritten(cell, ("= loss, next_state", "= loss, encode(obs)"))}


def test_what_one_call_makes_beside_something_else_is_taken_out_of_it() -> None:
    cell = ITERATIONS.replace("next_state = encode(obs)", "next_state, bonus = both(obs)")
    fix = fix_by(RULE, START, "def both(obs):\n    return encode(obs), 1.0", cell)
    assert fix.cells == {3: rewritten(cell, ("    state = next_state", "    state = both(obs)[0]"))}


def test_what_the_next_iteration_takes_at_its_beginning_is_computed_again_at_the_end_of_this_one() -> None:
    cell = """
        ahead = encode(seen[0])
        for t in range(3):
            state = ahead
            ahead = encode(seen[t + 1])
            loss = (critic(state) - 0.9 * critic(ahead)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fix_by(RULE, START, cell)
    assert fix.cells == {2: rewritten(cell, ("    opt.step()", "    opt.step()\n    ahead = encode(seen[t + 1])"))}
    assert fix.gradients == "different"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(
            "scores = net(obs * 2)\n    a = int(torch.randint(2, ()))\n    return a, scores[a]",
            "net(nxt * 2)[following]",
            id="a name that the function gives something once",
        ),
        pytest.param(
            "scores = net(obs)\n    a = int(torch.randint(2, ()))\n    q = scores[a]\n    return a, q",
            "net(nxt)[following]",
            id="the value has a name",
        ),
        pytest.param(
            "obs = obs * 2\n    a = int(torch.randint(2, ()))\n    return a, net(obs)[a]",
            "choose(nxt)[1]",
            id="an argument that is bound again",
        ),
        pytest.param(
            "q = net(obs)\n    q = q.clone(); q[0] = 0.0\n    a = int(torch.randint(2, ()))\n    return a, q[a] + q.sum()",
            "choose(nxt)[1]",
            id="a value that is written",
        ),
        pytest.param(
            "a = int(torch.randint(2, ()))\n    q = torch.stack([q * net(obs) for q in torch.ones(2)]).mean(0)\n    return a, q[a]",
            "choose(nxt)[1]",
            id="a name that a comprehension has as well",
        ),
        pytest.param(
            "a = int(torch.randint(2, ()))\n    return (\n        a,\n        net(obs)[a]\n        * 2,\n    )",
            "(net(nxt)[following]\n        * 2)",
            id="a value on two lines",
        ),
        pytest.param(
            "a = int(torch.randint(2, ()))\n    return a, scale * net(obs)[a]",
            "1.0 * net(nxt)[following]",
            id="a default",
        ),
        pytest.param(
            "a = int(torch.randint(2, ()))\n    return a, net(obs)[0]",
            "choose(nxt)[1]",
            id="not of what is drawn beside it",
        ),
        pytest.param(
            "a = 0\n    if torch.rand(()) < 0.5: a = 1\n    q = net(obs)\n    if a: q = q * 2\n    return a, q[a]",
            "choose(nxt)[1]",
            id="a name that has several values",
        ),
        pytest.param(
            "if torch.rand(()) < 0.5: return 0, net(obs)[0]\n    return 1, net(obs)[1]",
            "choose(nxt)[1]",
            id="given in branches",
        ),
    ],
)
def test_of_a_call_that_draws_an_action_only_its_value_is_computed_again(body: str, text: str) -> None:
    define = f"""
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def choose(obs, scale=1.0):
    {body}
"""
    cell = """
        action, value = choose(torch.ones(3))
        for nxt in torch.randn(3, 3):
            following, ahead = choose(nxt)
            loss = (1 + 0.9 * ahead.detach() - value).square()
            opt.zero_grad(); loss.backward(); opt.step()
            action, value = following, ahead
        """
    fix = fix_by(RULE, define, cell)
    assert fix.cells == {2: rewritten(cell, ("= following, ahead", f"= following, {text}"))}
