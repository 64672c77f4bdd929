from __future__ import annotations

import textwrap

import pytest

from inplace_magic.transforms.proposal import Proposal

from ..trying import clean, fixes, proposals

UPDATE = """
    def update(opt, loss):
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
BOTH = "update(opt_a, loss_a)\nupdate(opt_b, loss_b)"


def found(
    helper: str, cell: str, calls: tuple[str, str], step: str = "opt.step()", back: str = "loss.backward()"
) -> list[Proposal]:
    """What is proposed where ``step``, in the first call, changed what ``back`` needed in the second one."""
    there = proposals(
        "restructure", helper, cell, write=step, callers=calls[:1], raised=(back, calls[1]), origin="optim"
    )  # fmt: skip
    return [one for one in there if one.form == "restructure: written out"]


def written_out(helper: str, cell: str = BOTH) -> str | None:
    """The last cell with the helper written out in place of its two lines' calls; None where it is not."""
    first, second = (line.partition(" = ")[2] or line for line in cell.splitlines()[-2:])
    texts = [one.texts[2] for one in found(helper, cell, (first.strip(), second.strip()))]
    return f"{texts[0]}\n" if texts else None


@pytest.mark.parametrize(
    "helper",
    [
        pytest.param("def update(opt, loss, *others):\n    loss.backward()\n    opt.step()\n", id="takes any number of arguments"),
        pytest.param("def update(opt, loss):\n    if loss is None:\n        return\n    loss.backward()\n    opt.step()\n", id="returns in the middle"),
        pytest.param("@timed\ndef update(opt, loss):\n    loss.backward()\n    opt.step()\n", id="decorated"),
        pytest.param("def update(opt, loss):\n    global count\n    count += 1\n    loss.backward()\n    opt.step()\n", id="gives a global a value"),
        pytest.param("def update(opt, loss):\n    yield\n    loss.backward()\n    opt.step()\n", id="a generator"),
        pytest.param("def update(opt, loss):\n    if opt is None:\n        update(opt_a, loss)\n    loss.backward()\n    opt.step()\n", id="calls itself"),
        pytest.param("def update(opt, loss, keep=len(nets)):\n    loss.backward()\n    opt.step()\n", id="has a default that is computed"),
        pytest.param("def update(opt, loss):\n" + "    loss = loss + 1\n" * 20 + "    loss.backward()\n    opt.step()\n", id="is long"),
    ],
)  # fmt: skip
def test_a_helper_that_does_something_else_where_it_is_called_stays(helper: str) -> None:
    assert written_out(helper) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x = 1; ", "", id="beside another statement"),
        pytest.param("total += ", "", id="as a part of a sum"),
        pytest.param("a, b = ", ", 1", id="beside another value"),
    ],
)
def test_a_call_that_is_no_statement_of_its_own_stays(before: str, after: str) -> None:
    calls = "update(opt_a, loss_a)", "update(opt_b, loss_b)"
    assert not found(UPDATE, f"{before}{calls[0]}{after}\n{calls[1]}", calls)


def test_a_name_that_means_something_else_to_the_caller_keeps_the_helper() -> None:
    helper = "def update(opt, loss):\n    loss.backward()\n    clip(nets)\n    opt.step()\n"
    cell = "def train(nets, loss_a, loss_b):\n    update(opt_a, loss_a)\n    update(opt_b, loss_b)"
    assert written_out(helper, cell) is None
    assert written_out(helper, cell.replace("nets, ", "")) is not None


def test_each_call_in_its_own_words() -> None:
    assert written_out(UPDATE) == clean(
        """
        opt_a.zero_grad()
        loss_a.backward()
        opt_a.step()
        opt_b.zero_grad()
        loss_b.backward()
        opt_b.step()
        """
    )


def test_what_is_computed_for_a_call_is_computed_once() -> None:
    text = written_out(UPDATE, "update(opts[0], net(x).mean())\nupdate(opts[key], (y - 1).mean())")
    assert text == clean(
        """
        loss = net(x).mean()
        opts[0].zero_grad()
        loss.backward()
        opts[0].step()
        loss_2 = (y - 1).mean()
        opts[key].zero_grad()
        loss_2.backward()
        opts[key].step()
        """
    )


def test_the_helpers_own_names_leave_those_of_the_caller_alone() -> None:
    helper = """
        def update(opt, out):
            \"\"\"One update.\"\"\"
            loss = (out - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.item()
        """
    cell = "loss = 0\ndone = update(opt_a, out_a)\nupdate(opt_b, out_b)"
    assert written_out(helper, cell) == clean(
        """
        loss = 0
        loss_2 = (out_a - y).pow(2).mean()
        opt_a.zero_grad()
        loss_2.backward()
        opt_a.step()
        done = loss_2.item()
        loss_3 = (out_b - y).pow(2).mean()
        opt_b.zero_grad()
        loss_3.backward()
        opt_b.step()
        """
    )


def test_a_parameter_that_the_helper_gives_a_value_is_a_name_of_its_own() -> None:
    helper = "def update(opt, loss, scale=0.5):\n    loss = loss * scale\n    loss.backward()\n    opt.step()\n"
    assert written_out(helper) == clean(
        """
        loss = loss_a
        loss = loss * 0.5
        loss.backward()
        opt_a.step()
        loss_2 = loss_b
        loss_2 = loss_2 * 0.5
        loss_2.backward()
        opt_b.step()
        """
    )


def test_what_a_helper_prints_is_said_in_the_callers_words() -> None:
    helper = (
        "def update(opt, loss, name):\n    loss.backward()\n    opt.step()\n    print(f'{name}: {loss.item():.3f}')\n"
    )
    text = written_out(helper, "update(opt_a, loss_a, 'a')\nupdate(opt_b, loss_b, keys[0])")
    assert text is not None
    assert [line for line in text.splitlines() if "print" in line] == [
        "print(f\"{'a'}: {loss_a.item():.3f}\")",
        "print(f'{keys[0]}: {loss_b.item():.3f}')",
    ]


def test_a_method_is_written_out_for_the_object_that_it_is_called_on() -> None:
    helper = """
        class Trainer:
            def update(self, name, loss):
                loss.backward()
                self.opts[name].step()
        """
    text = [
        one.texts[2]
        for one in found(
            helper,
            "for x in xs:\n    trainer.update('a', loss_a)\n    trainer.update(loss=loss_b, name='b')",
            ("trainer.update('a', loss_a)", "trainer.update(loss=loss_b, name='b')"),
            step="self.opts[name].step()",
        )
    ]
    lines = "loss_a.backward()\ntrainer.opts['a'].step()\nloss_b.backward()\ntrainer.opts['b'].step()"
    assert text == ["for x in xs:\n" + textwrap.indent(lines, "    ")]


def test_the_one_call_of_a_loop() -> None:
    cell = "for opt, loss in pairs:\n    update(opt, loss)"
    text = [one.texts[2] for one in found(UPDATE, cell, ("update(opt, loss)", "update(opt, loss)"))]
    assert text == ["for opt, loss in pairs:\n    opt.zero_grad()\n    loss.backward()\n    opt.step()"]


START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    encoder, task, scanner = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), nn.Linear(3, 1), nn.Linear(3, 2)
    opts = {
        "task": torch.optim.SGD([*encoder.parameters(), *task.parameters()], lr=0.1),
        "hide": torch.optim.SGD(encoder.parameters(), lr=0.1),
    }
    def update(opt, loss, keep):
        opt.zero_grad()
        loss.backward(retain_graph=keep)
        opt.step()
    """
TRAIN = """
    z = encoder(torch.randn(8, 4))
    losses = {"task": task(z).pow(2).mean(), "hide": -scanner(z).log_softmax(1).mean()}
    update(opts["task"], losses["task"], True)
    update(opts["hide"], losses["hide"], keep=False)
    """


def test_both_gradients_are_taken_before_either_step_of_two_calls() -> None:
    first = fixes(START, TRAIN)[0]
    assert (first.rule, first.cells.keys()) == ("move_step", {2})
    assert "torch.autograd.grad(losses[" in first.cells[2]
    assert "update(" not in first.cells[2]


# ---- an inner step, made functions deep ------------------------------------------------------------------------------

META = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    opt, mse = torch.optim.SGD(net.parameters(), lr=0.1), nn.MSELoss()
    """
HELPER = """
    def inner_step(model, loss, lr=0.1):
        grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p -= lr * g
    """
ONE_STEP = """
    for _ in range(2):
        total = 0
        for x, y in torch.randn(2, 2, 5, 1):
            loss = mse(net(x), y)
            inner_step(net, loss)
            total = total + mse(net(y), x) + loss
        opt.zero_grad()
        total.backward()
        opt.step()
    """
SEVERAL = """
    for x, y in torch.randn(2, 2, 5, 1):
        losses = []
        for _ in range(2):
            losses.append(mse(net(x), y))
            inner_step(net, losses[-1])
        opt.zero_grad()
        (mse(net(y), x) + sum(losses)).backward()
        opt.step()
    """
LEARNER = """
    class Learner:
        def __init__(self, net):
            self.net = net

        @torch.no_grad()
        def step(self, grads):
            for (name, p), g in zip(self.net.named_parameters(), grads):
                p.sub_(g, alpha=0.1)

        def adapt(self, x, y):
            losses = []
            for _ in range(2):
                losses.append(mse(self.net(x), y))
                self.step(torch.autograd.grad(losses[-1], self.net.parameters(), create_graph=True))
            return losses

        def loss(self, x, y):
            kept = self.adapt(x, y)
            return sum(kept) + mse(self.net(y), x)
    learner = Learner(net)
    """
LEARN = """
    for x, y in torch.randn(2, 2, 5, 1):
        loss = learner.loss(x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("cells", "changed", "lines"),
    [
        pytest.param((HELPER, ONE_STEP), 3, (
            "            grads = torch.autograd.grad(loss, net.parameters(), create_graph=True)",
            "            fast = {name: p - 0.1 * g for (name, p), g in zip(net.named_parameters(), grads)}",
            "            total = total + mse(torch.func.functional_call(net, fast, (y,)), x) + loss",
        ), id="a step for each task"),
        pytest.param((HELPER, SEVERAL), 3, (
            "    fast = dict(net.named_parameters())",
            "            losses.append(mse(torch.func.functional_call(net, fast, (x,)), y))",
            "        fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), grads)}",
        ), id="several steps"),
        pytest.param((LEARNER, LEARN), 2, (
            "        kept = []",
            "        fast = dict(self.net.named_parameters())",
            "            fast = {name: p.sub(g, alpha=0.1) for (name, p), g in zip(fast.items(), grads)}",
            "        return sum(kept) + mse(torch.func.functional_call(self.net, fast, (y,)), x)",
        ), id="methods two deep, one of them decorated"),
    ],
)  # fmt: skip
def test_the_stepped_weights_of_a_helper_are_read_behind_its_call(
    cells: tuple[str, str], changed: int, lines: tuple[str, ...]
) -> None:
    first = fixes(META, *cells)[0]
    assert (first.rule, first.cells.keys()) == ("fast_weights", {changed})
    assert [line.strip() for line in lines if line.strip() not in first.cells[changed]] == []


def test_a_helper_that_others_call_for_what_it_does_to_the_model_stays_for_them() -> None:
    tuned = "def tune(x, y):\n    inner_step(net, mse(net(x), y))"
    first = fixes(META, HELPER, tuned, ONE_STEP)[0]
    assert (first.rule, first.cells.keys()) == ("fast_weights", {4})


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(("def query(x, y):\n    return mse(net(x), y)", HELPER, ONE_STEP.replace("mse(net(y), x)", "query(y, x)")), id="another function"),
        pytest.param((HELPER, """
            def learn(x, y):
                loss = mse(net(x), y)
                inner_step(net, loss)
                return loss + mse(net(x), y)
            for x, y in torch.randn(2, 2, 5, 1):
                total = learn(x, y) + mse(net(y), x)
                opt.zero_grad()
                total.backward()
                opt.step()
            """), id="the caller's caller"),
    ],
)  # fmt: skip
def test_no_weights_that_another_reader_of_the_model_would_not_see(cells: tuple[str, ...]) -> None:
    assert all(fix.rule != "fast_weights" for fix in fixes(META, *cells))
