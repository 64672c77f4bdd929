"""Gradients that are cleared before anything has used them: they are told of where no step and no reading came in between."""

from __future__ import annotations

import textwrap

import pytest

from .programs import Program
from .running import watch

NET = "net = nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
BACK = "loss = net(v.detach()).square().sum()\nloss.backward()\n"
CLEARS = "clears them"


def in_loop(body: str, made: str = NET) -> str:
    return f"{made}for turn in range(6):\n" + textwrap.indent(body, "    ")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(in_loop("opt.zero_grad()\n" + BACK + "opt.step()"), id="each is stepped by"),
        pytest.param(in_loop(BACK + "if turn % 3 == 2: opt.step(); opt.zero_grad()"), id="they are added up for a step"),
        pytest.param(in_loop("opt.zero_grad()\n" + BACK + "print(net.weight.grad.norm())"), id="they are looked at"),
        pytest.param(in_loop("opt.zero_grad()\n" + BACK + "nn.utils.clip_grad_norm_(net.parameters(), 1.0)"), id="they are clipped"),
        pytest.param(in_loop("opt.zero_grad()\n" + BACK + "w.data -= net.weight.grad.sum()"), id="they are stepped by by hand"),
        pytest.param(
            in_loop("opt.zero_grad()\n" + BACK, NET + "net.register_full_backward_hook(lambda module, into, out: None)\n"), id="a module has a hook"
        ),
        pytest.param(in_loop("opt.zero_grad()\n" + BACK, NET + "net.weight.register_hook(print)\n"), id="a parameter has a hook"),
        pytest.param(
            in_loop("opt.zero_grad()\nloss = net(v.detach())\nloss.register_hook(print)\nloss.sum().backward()"), id="a result has a hook"
        ),
        pytest.param(in_loop("net.zero_grad()\n" + BACK), id="no optimizer clears them"),
        pytest.param(in_loop("net.weight.grad = net.bias.grad = None\n" + BACK), id="they are set to None"),
        pytest.param(in_loop(BACK), id="they stay"),
        pytest.param(NET + BACK + "opt.zero_grad()\n" + BACK + "opt.step()", id="it is so once"),
        pytest.param(
            in_loop(
                "opt.zero_grad()\nother.zero_grad()\nloss = (net(v.detach()) * part(v.detach())).sum()\nloss.backward()\nother.step()",
                NET + "part = nn.Linear(3, 1)\nother = torch.optim.SGD(part.parameters(), 0.1)\n",
            ),
            id="another optimizer steps by the rest of them",
        ),
        pytest.param(
            in_loop("opt.zero_grad()\nopt.step(lambda: net(v.detach()).sum().backward())"), id="a closure gives them to the step"
        ),
        pytest.param(in_loop("opt.zero_grad()\n(g,) = torch.autograd.grad(net(v).sum(), v)"), id="gradients are asked for"),
    ],
)  # fmt: skip
def test_nothing_is_said_where(text: str) -> None:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    assert [one for one in (*seen.findings, *seen.detached) if one.changed_note == CLEARS] == []


@pytest.mark.parametrize(
    ("text", "clears", "step"),
    [
        pytest.param(in_loop("opt.zero_grad()\n" + BACK), "opt.zero_grad()", None, id="nothing steps"),
        pytest.param(
            in_loop("opt.zero_grad(set_to_none=False)\n" + BACK),
            "opt.zero_grad(set_to_none=False)",
            None,
            id="they are filled with zeros",
        ),
        pytest.param(
            in_loop("opt.zero_grad()\n" + BACK + "if turn % 3 == 2:\n    opt.step()"),
            "opt.zero_grad()",
            "opt.step()",
            id="a step comes less often",
        ),
        pytest.param(
            in_loop(
                "other.zero_grad()\nopt.zero_grad()\n" + BACK + "(w * v.detach()).sum().backward()\nother.step()",
                NET + "other = torch.optim.SGD([w], 0.1)\n",
            ),
            "opt.zero_grad()",
            None,
            id="another optimizer steps",
        ),
    ],
)
def test_the_line_that_clears_them_is_named_and_the_step_if_there_is_one(
    text: str, clears: str, step: str | None
) -> None:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    (found,) = seen.detached
    assert (found.changed and found.changed.text, found.saved and found.saved.text) == (clears, step)
    assert found.needed is not None and found.needed.text == "loss.backward()"
