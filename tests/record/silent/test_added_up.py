"""Steps by the gradients of earlier iterations: they are told of where nobody has set them to zero, and nowhere else."""

from __future__ import annotations

import textwrap

import pytest

from .programs import Program
from .running import watch

NET = "net = nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
LOSS = "loss = net(v.detach()).square().sum()\n"
ADDS = "adds to the gradients of the step before"


def in_loop(body: str, made: str = NET, turns: int = 4) -> str:
    return f"{made}for turn in range({turns}):\n" + textwrap.indent(body, "    ")


def by_hand(body: str) -> str:
    return in_loop("loss = (w @ v.detach()).square().sum()\nloss.backward()\n" + body, made="")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(in_loop("opt.zero_grad()\n" + LOSS + "loss.backward()\nopt.step()"), id="they are cleared ahead"),
        pytest.param(in_loop(LOSS + "loss.backward()\nopt.step()\nopt.zero_grad()"), id="they are cleared behind"),
        pytest.param(
            in_loop("opt.zero_grad(set_to_none=False)\n" + LOSS + "loss.backward()\nopt.step()"), id="they are filled with zeros"
        ),
        pytest.param(
            in_loop(LOSS + "loss.backward()\nif turn % 2: opt.step(); opt.zero_grad()", turns=8), id="two backwards for each step"
        ),
        pytest.param(in_loop(LOSS + "loss.backward()\nopt.step()\nopt.step()\nnet.zero_grad()"), id="two steps for each backward"),
        pytest.param(
            in_loop(LOSS + "opt.zero_grad()\nloss.backward()\nopt.step()\nnet(2 * v.detach()).sum().backward()"),
            id="another loss adds to them, ahead of the next zero_grad",
        ),
        pytest.param(
            in_loop(LOSS + "loss.backward()\nnet.weight.grad = torch.ones(1, 3)\nnet.bias.grad = torch.ones(1)\nopt.step()"),
            id="others are put in their place",
        ),
        pytest.param(
            in_loop("for p in net.parameters():\n    if p.grad is not None: p.grad *= 0.9\n" + LOSS + "loss.backward()\nopt.step()"),
            id="they decay by hand",
        ),
        pytest.param(
            in_loop(
                "def closure():\n    opt.zero_grad()\n    loss = net(v.detach()).square().sum()\n    loss.backward()\n    return loss\nopt.step(closure)",
                NET.replace("SGD(net.parameters(), 0.1)", "LBFGS(net.parameters(), max_iter=3)"),
            ),
            id="a closure clears them",
        ),
        pytest.param(
            in_loop(LOSS + "loss.backward()\nopt.step()", NET + "net = nn.Linear(3, 1)\n"), id="the optimizer holds something else"
        ),
        pytest.param(in_loop("loss = (net(v.detach()) * 0).sum()\nloss.backward()\nopt.step()"), id="they are zero in any case"),
        pytest.param(
            in_loop("opt.zero_grad()\nnet(torch.tensor([turn])).sum().backward()\nopt.step()", NET.replace("Linear(3, 1)", "Embedding(4, 2, sparse=True)")),
            id="sparse gradients that are cleared",
        ),
        pytest.param(
            in_loop(LOSS + "scaler.scale(loss).backward()\nscaler.step(opt)\nscaler.update()", NET + "scaler = torch.amp.GradScaler('cpu')\n"),
            id="what a scaler leaves of them is as good as nothing",
        ),
        pytest.param(LOSS.join([NET, "loss.backward()\nopt.step()"]), id="a single step"),
        pytest.param(by_hand("w.data -= 0.1 * w.grad\nw.grad.zero_()"), id="by hand, filled with zeros"),
        pytest.param(by_hand("w.data -= 0.1 * w.grad\nw.grad.data.zero_()"), id="by hand, filled with zeros through .data"),
        pytest.param(by_hand("w.data -= 0.1 * w.grad\nw.grad = None"), id="by hand, set to None"),
        pytest.param(
            in_loop("loss = (w @ v.detach()).square().sum()\n(g,) = torch.autograd.grad(loss, w)\nw.data -= 0.1 * g", made=""),
            id="by hand, with autograd.grad",
        ),
        pytest.param(by_hand("print(w.grad.norm())"), id="they are looked at, and nothing is stepped"),
        pytest.param(by_hand("print(w.grad.norm())\nw.data = torch.renorm(w.data, 2, 0, 1.0)"), id="they are looked at, and the weight is normalised"),
        pytest.param(
            in_loop("for p in net.parameters():\n    if p.grad is not None: p.grad.data = 0.9 * p.grad.data\n" + LOSS + "loss.backward()\nopt.step()"),
            id="they decay by hand, as .data",
        ),
        pytest.param(
            in_loop("for p in net.parameters():\n    if p.grad is not None: p.grad.data.mul_(0.9)\n" + LOSS + "loss.backward()\nopt.step()"),
            id="they decay by hand, in place of .data",
        ),
        pytest.param(by_hand("print(w.grad.norm())\nw.data.clamp_(min=0)"), id="they are looked at, and the weight is clamped"),
        pytest.param(by_hand("print(w.grad.norm())\nwith torch.no_grad():\n    w.mul_(0.99)"), id="they are looked at, and the weight decays"),
    ],
)  # fmt: skip
def test_nothing_is_said_where(text: str) -> None:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    assert [one.changed_note for one in seen.findings if one.changed_note == ADDS] == []


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        pytest.param(in_loop(LOSS + "loss.backward()\nopt.step()"), ["opt.step()"], id="nothing clears them"),
        pytest.param(in_loop(LOSS + "loss.backward()\nopt.step()", turns=2), ["opt.step()"], id="in two iterations"),
        pytest.param(
            in_loop(LOSS + "loss.backward()\nopt.step()", NET + "opt.zero_grad()\n"), ["opt.step()"], id="they are cleared once, ahead of the loop"
        ),
        pytest.param(
            in_loop(LOSS + "loss.backward()\nnn.utils.clip_grad_norm_(net.parameters(), 0.1)\nopt.step()"), ["opt.step()"], id="they are clipped"
        ),
        pytest.param(
            in_loop("if turn % 4 == 0: opt.zero_grad()\n" + LOSS + "loss.backward()\nopt.step()", turns=12),
            ["opt.step()"],
            id="they are cleared once an epoch",
        ),
        pytest.param(
            in_loop(LOSS + "other.zero_grad()\n(loss + extra(v.detach()).sum()).backward()\nopt.step()\nother.step()",
                    NET + "extra = nn.Linear(3, 1)\nother = torch.optim.SGD(extra.parameters(), 0.1)\n"),
            ["opt.step()"],
            id="one of two optimizers clears its own",
        ),
        pytest.param(
            in_loop(
                "def closure():\n    loss = net(v.detach()).square().sum()\n    loss.backward()\n    return loss\nopt.step(closure)",
                NET.replace("SGD(net.parameters(), 0.1)", "LBFGS(net.parameters(), max_iter=3)"),
            ),
            ["opt.step(closure)"],
            id="a closure does not clear them",
        ),
        pytest.param(by_hand("w.data -= 0.1 * w.grad"), ["w.data -= 0.1 * w.grad"], id="by hand, through .data"),
        pytest.param(by_hand("with torch.no_grad():\n    w.sub_(0.1 * w.grad)"), ["w.sub_(0.1 * w.grad)"], id="by hand, under no_grad"),
        pytest.param(by_hand("g = w.grad\nw.data = w.data - 0.1 * g"), ["w.data = w.data - 0.1 * g"], id="by hand, in two lines"),
        pytest.param(
            in_loop(LOSS + "loss.backward()\nfor p in net.parameters():\n    p.data.add_(p.grad, alpha=-0.1)"),
            ["p.data.add_(p.grad, alpha=-0.1)"],
            id="by hand, in a loop over parameters",
        ),
    ],
)  # fmt: skip
def test_the_backward_that_adds_and_the_step_are_named_where(text: str, steps: list[str]) -> None:
    seen = watch(Program("by hand", text), text)
    assert seen.problem is None
    found = [one for one in seen.findings if one.changed_note == ADDS]
    assert {one.saved.text for one in found if one.saved is not None} == {*steps}
    assert all(one.changed is not None and "backward()" in one.changed.text for one in found)


def test_a_watch_holds_no_gradient() -> None:
    text = (
        NET
        + LOSS
        + "loss.backward()\nopt.step()\nimport weakref\nold = weakref.ref(net.weight.grad)\nopt.zero_grad()\nassert old() is None"
    )
    assert watch(Program("by hand", text), text).problem is None
