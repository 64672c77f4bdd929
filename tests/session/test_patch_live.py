"""A fix reaches the functions that live, each its own."""

from __future__ import annotations

from tests.cells import run_cells, run_in

CELL = """
import torch

def grow(x):
    x += 1
    return x

double, square = lambda x: x * 2, lambda x: x**2

class Holder:
    def __init__(self, value):
        self._value = value

    @property
    def value(self):
        return grow(self._value.exp())

    @value.setter
    def value(self, value):
        self._value = value * 3

holder = Holder(torch.ones(2, requires_grad=True))
"""


def test_functions_of_one_name_keep_their_own_code() -> None:
    run = run_cells(CELL, "holder.value.sum().backward()")
    assert run.cell("%autograd_fix --run").error is None
    run = run.cell(
        "assert (double(5), square(5)) == (10, 25)\nassert holder.value.shape == (2,)\nholder.value = 2\nassert holder._value == 6"
    )
    assert run.error is None


def test_what_a_cached_property_computes_has_its_new_code_in_place() -> None:
    cell = """
    import functools, torch
    class Holder:
        def __init__(self, value):
            self._value = value
        @functools.cached_property
        def slope(self):
            grown = self._value.exp().add_(1)
            return torch.autograd.grad(grown.sum(), self._value)[0]
    """
    made = "holders = [Holder(torch.ones(2, requires_grad=True)) for _ in range(2)]\nkept = [*holders]"
    run = run_cells(cell, made, "slopes = [one.slope for one in holders]")
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].run == (3,)
    run = run.cell("%autograd_fix --run")
    assert run.error is None
    assert all(one is old for one, old in zip(run.shell.user_ns["holders"], run.shell.user_ns["kept"], strict=True))


def test_fix_in_one_of_several_of_one_name() -> None:
    cell = """
    import torch
    first, second = lambda x: x.exp().add_(1), lambda x: x.sigmoid().mul_(2)
    w = torch.ones(2, requires_grad=True)
    """
    run = run_cells(cell, "(first(w) + second(w)).sum().backward()")
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.cell("%autograd_fix --run").error is None
    assert (
        run.cell("assert torch.allclose(second(w), 2 * w.sigmoid()) and torch.allclose(first(w), w.exp() + 1)").error
        is None
    )


def test_several_lambdas_that_do_the_same() -> None:
    cell = """
    import torch
    table = {"a": lambda x: x.exp().add_(1), "b": lambda x: x.exp().add_(1)}
    w = torch.ones(2, requires_grad=True)
    """
    run = run_cells(cell, "table['a'](w).sum().backward()\ntable['b'](w).sum().backward()")
    assert run.diagnosis is not None
    assert run.diagnosis.fixes
    assert run.cell("%autograd_fix --run").error is None


TRAINED = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(3, 3)

        @torch.inference_mode()
        def features(self, x):
            return self.body(x).tanh()
    """
MADE = "net, head, x = Net(), nn.Linear(3, 1), torch.ones(2, 3)\nnet.trained = True"
USED = "head(net.features(x)).sum().backward()"


def test_a_method_gets_another_decorator_and_the_model_is_kept() -> None:
    run = run_cells(TRAINED, MADE, USED)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert (fix.title, fix.run) == ("@torch.no_grad()", (3,))
    net, method = run.shell.user_ns["net"], vars(run.shell.user_ns["Net"])["features"]
    accepted = run_in(run.shell, ["%autograd_fix 1 --run"])
    assert accepted.error is None
    assert run.shell.user_ns["net"] is net and net.trained
    assert not net.features(run.shell.user_ns["x"]).is_inference()
    run_in(run.shell, ["%autograd_fix --undo"])
    assert vars(run.shell.user_ns["Net"])["features"] is method


def test_a_method_that_asks_for_its_class_is_made_with_it() -> None:
    text = TRAINED.replace("return self.body(x).tanh()", "super().train()\n            return self.body(x).tanh()")
    run = run_cells(text, MADE, USED)
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].run == (1, 2, 3)


NORMALIZE = """
    import torch
    class Normalize:
        def __init__(self, mean):
            self.mean, self.calls = mean, 0

        def __call__(self, tensor):
            self.calls += 1
            out = tensor.sigmoid()
            out.sub_(self.mean)
            return out.exp_()
    """


def test_a_callable_object_is_kept_and_does_what_its_new_text_says() -> None:
    run = run_cells(
        NORMALIZE,
        "norm = Normalize(0.5)\nw = torch.ones(2, requires_grad=True)\nmade = norm",
        "norm(w).mul_(2).sum().backward()",
    )
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.diagnosis.fixes[0].run == (3,)
    assert run.cell("%autograd_fix --run").error is None
    assert run.cell("assert norm is made and norm.calls == 2 and w.grad is not None").error is None


TWO = """
    import torch
    w = torch.ones(3, requires_grad=True)
    def first(x):
        h = x.sigmoid()
        h[0] = 0
        return h.sum()

    def second(x):
        h = x.exp()
        h += 1
        return h.sum()
    """


def test_what_an_accepted_fix_has_only_moved_is_told_on_its_new_lines() -> None:
    run = run_cells(TWO)
    run.shell._inplace_magic_extension.session.busy[1] = 3.0  # then the functions are not made anew for a report
    assert run.cell("first(w).backward()").diagnosis is not None
    assert run.cell("%autograd_fix --run").error is None
    found = run.cell("second(w).backward()").diagnosis
    assert found is not None and found.changed is not None and found.changed.text == "h += 1"
    assert found.fixes and "h = h + 1" in found.fixes[0].diff
    assert run.cell("%autograd_fix --undo").error is None
    again = run.cell("second(w).backward()").diagnosis
    assert again is not None and again.changed is not None and again.changed.text == "h += 1"
