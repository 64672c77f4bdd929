from __future__ import annotations

import pytest

from inplace_magic.diagnosis import Fix

from ..cells import run_cells
from .trying import clean, rewritten

IMPORTS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
"""


def fixes(*cells: str) -> dict[str, Fix]:
    """The proved fixes by rule; the last cell runs under the magic."""
    *before, last = cells
    run = run_cells(IMPORTS, *before, "%%autograd_check\n" + clean(last))
    assert run.error is None and run.diagnosis is not None, run.output
    assert run.diagnosis.family == "silent"
    return {fix.rule: fix for fix in run.diagnosis.fixes}


def checked(cell: str, *changes: tuple[str, str]) -> str:
    return "%%autograd_check\n" + rewritten(cell, *changes)


def assert_proved(fix: Fix, number: int, text: str) -> None:
    assert fix.verified and fix.gradients == "same"
    assert fix.cells[number].rstrip() == text


LINEAR = """
    w = torch.randn(3, 3, requires_grad=True)
    xb = torch.randn(4, 3)
"""


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        pytest.param("h.detach().clamp_(min=0)", "h = h.clamp(min=0)", id="a method behind detach"),
        pytest.param("h.data *= 2  # twice", "h = h * 2  # twice", id="an operator on .data, its comment kept"),
        pytest.param("h.data[h < 0] = 0", "h = h.masked_fill(h < 0, 0)", id="a mask"),
        pytest.param("h.data[:, 0] = 0", "h = h.clone()\nh[:, 0] = 0", id="a part is written into a copy"),
        pytest.param("h.data.mul_(2).tanh_()", "h = h.mul(2).tanh()", id="a chain"),
        pytest.param("d = h.detach(); d *= 2", "d = h.detach(); h = h * 2; d = h.detach()", id="an alias with a name"),
    ],
)  # fmt: skip
def test_a_change_past_the_graph_becomes_part_of_it(line: str, fixed: str) -> None:
    cell = f"h = xb @ w\n{line}\nloss = (h - 1).pow(2).sum()\nloss.backward()"
    fix = fixes(LINEAR, cell)["silent_tracked"]
    assert_proved(fix, 3, checked(cell, (line, fixed)))


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        pytest.param("torch.relu_(maps[i].detach())", "maps[i] = torch.relu(maps[i])", id="by a function"),
        pytest.param("maps[i].data.relu_()", "maps[i] = maps[i].relu()", id="by a method"),
        pytest.param(
            "maps[i].data[:, 0] = 0", "maps[i] = maps[i].clone()\n        maps[i][:, 0] = 0", id="a part, in a copy"
        ),
    ],
)
def test_a_change_of_an_item_gives_the_list_another_one(line: str, fixed: str) -> None:
    define = f"""
    def rectified(x):
        maps = [x @ w, x @ w.t()]
        for i in range(len(maps)):
            {line}
        return maps
    """
    found = fixes(LINEAR, define, "loss = sum((m - 1).pow(2).sum() for m in rectified(xb))\nloss.backward()")
    assert_proved(found["silent_tracked"], 3, rewritten(define, (line, fixed)))


def test_a_change_past_the_graph_in_a_function() -> None:
    define = """
        w, xb = torch.randn(3, 3, requires_grad=True), torch.randn(4, 3)
        def gate(h):
            h.data *= (h.data > 0)
            return h
    """
    found = fixes(define, "loss = (gate(xb @ w) - 1).pow(2).sum()\nloss.backward()")["silent_tracked"]
    assert_proved(found, 2, rewritten(define, ("h.data *= (h.data > 0)", "h = h * (h.data > 0)")))


def test_what_is_computed_from_an_alias_is_computed_from_the_tensor() -> None:
    cell = "h = xb @ w\nh.data[:, 0] = h.data[:, 0] / 2\nloss = (h - 1).pow(2).sum()\nloss.backward()"
    fix = fixes(LINEAR, cell)["silent_tracked"]
    changes = ("h.data[:, 0] = h.data[:, 0] / 2", "h = h.clone()\nh[:, 0] = h[:, 0] / 2")
    assert fix.cells[3].rstrip() == checked(cell, changes)
    assert fix.gradients == "different"  # as written, that part comes from nowhere


def test_one_tensor_that_stands_for_two_gradients_is_written_for_one_of_them() -> None:
    cell = """
        %%autograd_check
        import torch
        a, b = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        for _ in range(3):
            grads = torch.autograd.grad(((a + b - 1) ** 2).sum(), [a, b])
            with torch.no_grad():
                for leaf, rate, g in zip([a, b], [0.1, 0.2], grads):
                    g.mul_(rate)
                    leaf -= g
        """
    found = run_cells(clean(cell)).diagnosis
    assert found is not None and "+            g = g.mul(rate)" in found.fixes[0].diff


def test_several_changes_past_the_graph_are_mended_together() -> None:
    scale = """
        w, xb = torch.randn(3, 3, requires_grad=True), torch.randn(4, 3)
        def scale(h):
            h.data *= 0.5
            h.data[:, 0] = 0
            return h
    """
    found = fixes(scale, "loss = (scale(xb @ w) - 1).pow(2).sum()\nloss.backward()")["silent_tracked"]
    mended = [
        ("h.data *= 0.5", "h = h * 0.5"),
        ("h.data[:, 0] = 0", "h = h.clone()\n    h[:, 0] = 0"),
    ]
    assert found.cells[2].rstrip() == rewritten(scale, *mended)
    assert found.gradients == "same"


def test_the_backward_goes_first() -> None:
    cell = "loss = (x ** 2).sum()\nx.data += 1\nprint(x)\nloss.backward()"
    fix = fixes("x = torch.ones(3, requires_grad=True)", cell)["silent_order"]
    text = "loss = (x ** 2).sum()\nloss.backward()\nx.data += 1\nprint(x)"
    assert_proved(fix, 3, "%%autograd_check\n" + text)


def test_what_the_loss_is_made_from_goes_with_the_backward() -> None:
    start = "x = torch.ones(3, requires_grad=True)\ny = x ** 2"
    cell = "for p in [x]:\n    p.data += 1\n# the loss\nloss = y.sum()\nloss.backward()"
    fix = fixes(start, cell)["silent_order"]
    text = "# the loss\nloss = y.sum()\nloss.backward()\nfor p in [x]:\n    p.data += 1"
    assert_proved(fix, 3, "%%autograd_check\n" + text)


def test_the_backward_goes_into_the_earlier_cell() -> None:
    make = """
        net = nn.Conv1d(1, 2, 2)
        average = [p.detach() * 0.5 for p in net.parameters()]
        batch = torch.randn(4, 1, 6)
    """
    swap = """
        loss = net(batch.requires_grad_()).pow(2).mean()
        def swap_in():
            for p, a in zip(net.parameters(), average):
                p.data = a
        swap_in()
    """
    fix = fixes(make, swap, "if batch.grad is None: loss.backward()\nbatch.grad.norm()")["silent_order"]
    assert_proved(fix, 3, rewritten(swap, ("\nswap_in()", "\nloss.backward()\nswap_in()")))
    assert fix.cells[4] == "%%autograd_check\nif batch.grad is None: pass\nbatch.grad.norm()"
    assert fix.run == (3, 4)


def test_a_cell_below_a_magic_is_not_left_without_a_body() -> None:
    make = "x = torch.ones(3, requires_grad=True)\nloss = (x ** 2).sum()"
    fix = fixes(make, "x.data += 1\nprint(x.sum().item())", "loss.backward()")["silent_order"]
    assert fix.cells[4].rstrip() == "%%autograd_check\npass"


def test_a_loss_that_a_dict_keeps_beside_what_comes_later_goes_back_first() -> None:
    make = """
        net = nn.Conv1d(1, 2, 2)
        batch, seen = torch.randn(4, 1, 6, requires_grad=True), {}
        seen["loss"] = net(batch).pow(2).mean()
    """
    swap = "for p in net.parameters(): p.data = p.detach() * 0.5\nseen['after'] = net(batch).mean().item()"
    fix = fixes(make, swap, "seen['loss'].backward()\nbatch.grad.norm()")["silent_order"]
    assert fix.cells[3].startswith("seen['loss'].backward()\nfor p in")


def test_a_change_goes_behind_the_backward_where_gradients_are_cleared_in_between() -> None:
    start = """
        net, slow = nn.Conv1d(1, 2, 2), nn.Conv1d(2, 1, 2).requires_grad_(False)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def sync():
            for p in slow.parameters():
                p.data.lerp_(torch.ones_like(p), 0.5)
    """
    cell = """
        loss = slow(net(torch.ones(3, 1, 6))).pow(2).mean()
        sync()  # the average
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
    fix = fixes(start, cell)["silent_order"]
    text = rewritten(
        cell, ("sync()  # the average\n", ""), ("loss.backward()\n", "loss.backward()\nsync()  # the average\n")
    )
    assert_proved(fix, 3, "%%autograd_check\n" + text.strip())


def test_the_backward_goes_ahead_of_a_block_that_changes_what_it_needs() -> None:
    """And no copy is made of what ``data`` is bound to: it is for those who hold the tensor."""
    start = """
        from contextlib import contextmanager
        net = nn.Conv1d(1, 2, 2)
        batch = torch.randn(4, 1, 6, requires_grad=True)
        @contextmanager
        def halved():
            for p in net.parameters():
                p.data = p.data * 0.5
            yield net
            for p in net.parameters():
                p.data = p.data * 2
    """
    cell = """
        out = net(batch)
        with halved() as half:
            print(half(batch).mean().item())
            loss = out.pow(2).mean()
            loss.backward()
    """
    found = fixes(start, cell)
    text = """
        out = net(batch)
        loss = out.pow(2).mean()
        loss.backward()
        with halved() as half:
            print(half(batch).mean().item())
    """
    assert_proved(found["silent_order"], 3, "%%autograd_check\n" + clean(text).rstrip())
    assert "clone_before_write" not in found


NOISY = """
    from contextlib import contextmanager
    conv, x = nn.Conv1d(1, 1, 1), torch.ones(1, 1, 3, requires_grad=True)
    @contextmanager
    def noisy(layer):
        kept = layer.weight.data
        layer.weight.data = kept * 2
        yield layer
        layer.weight.data = kept
    """


def test_the_backward_goes_into_a_block_that_changes_what_it_needs_as_it_is_left() -> None:
    cell = """
        with noisy(conv) as layer:
            out = layer(x)
        scale = out.detach() + 1
        loss = (out * scale).sum()
        loss.backward()
        print(x.grad)
        """
    fix = fixes(NOISY, cell)["silent_order"]
    moved = [("scale =", "    scale ="), ("loss =", "    loss ="), ("loss.backward", "    loss.backward")]
    assert_proved(fix, 3, checked(cell, *moved))


def test_what_a_gradient_is_asked_with_goes_into_the_block_as_well() -> None:
    cell = """
        with noisy(conv) as layer:
            out = layer(x)
        share = 1 / (out + 3)
        g, = torch.autograd.grad(out, x, share.detach())
        print(g)
        """
    fix = fixes(NOISY, cell)["silent_order"]
    assert_proved(fix, 3, checked(cell, ("share =", "    share ="), ("g, =", "    g, =")))


def test_a_loss_by_what_a_block_is_entered_as_stays_in_it() -> None:
    start = (
        "from contextlib import nullcontext\nnet = nn.Conv1d(1, 2, 2)\nbatch = torch.randn(4, 1, 6, requires_grad=True)"
    )
    cell = """
        out = net(batch)
        def enter():
            for p in net.parameters():
                p.data = p.data * 0.5
            return nullcontext(net)
        with enter() as half:
            loss = (out + half(batch)).pow(2).mean()
            loss.backward()
    """
    assert "silent_order" not in fixes(start, cell)


def test_what_binds_data_leaves_a_copy_to_the_graph() -> None:
    start = """
        w = torch.randn(3, 3, requires_grad=True)
        u = torch.randn(3)
        def sigma():
            u.data = (w @ u).data
            return u.dot(w @ u)
    """
    fix = fixes(start, "loss = sigma() + sigma()\nloss.backward()")["clone_at_save"]
    assert fix.cells[2].rstrip() == rewritten(start, ("u.dot(w @ u)", "u.clone().dot(w @ u.clone())"))
    assert fix.gradients == "same"


def test_what_one_method_binds_is_copied_where_another_one_saves_it() -> None:
    start = """
        class Memory:
            def __init__(self):
                self.state = torch.ones(3)
            def read(self, z):
                return (z * self.state).sum()
            def write(self, v):
                self.state.data = v
        memory, w = Memory(), torch.ones(3, requires_grad=True)
    """
    cell = "loss = memory.read(w)\nmemory.write(torch.zeros(3))\nloss.backward()"
    fix = fixes(start, cell)["clone_at_save"]
    assert fix.cells[2].rstrip() == rewritten(start, ("z * self.state)", "z * self.state.clone())"))
    assert fix.gradients == "same"


def test_an_update_that_uses_gradients_is_not_passed_by() -> None:
    start = """
        net = nn.Sequential(nn.Conv1d(1, 2, 2), nn.Tanh(), nn.Conv1d(2, 1, 2))
        params = list(net.parameters())
        out = net(torch.randn(3, 1, 6))
        loss_a, loss_b = out.pow(2).mean(), (out - 1).abs().mean()
    """
    cell = """
        loss_a.backward(retain_graph=True)
        for p in params:
            p.data -= 0.1 * p.grad  # by hand
            p.grad = None
        loss_b.backward()
    """
    assert "silent_order" not in fixes(start, cell)


@pytest.mark.parametrize(
    ("asked", "copied"),
    [
        pytest.param("training", "training", id="by a name"),
        pytest.param("not training if new else training", "(not training if new else training)", id="by an expression"),
    ],
)
def test_the_statistics_that_a_function_is_handed_are_copied_in_eval_mode(asked: str, copied: str) -> None:
    define = f"""
        kept = dict(mean=torch.zeros(4), var=torch.ones(4))
        def norm(h, training, new=False):
            return nn.functional.batch_norm(h, kept["mean"], kept["var"], training={asked})
        lin = nn.Linear(3, 4)
    """
    cell = """
        seen, new = norm(lin(torch.randn(8, 3)), False), norm(lin(torch.randn(8, 3) + 1), training=True)
        loss = (seen ** 3).mean() + (new ** 3).mean()
        loss.backward()
    """
    fix = fixes(define, cell)["silent_batch_norm"]
    copies = [
        (f'kept["{name}"],', f'kept["{name}"] if {copied} else kept["{name}"].clone(),') for name in ("mean", "var")
    ]
    assert_proved(fix, 2, rewritten(define, *copies))


def test_the_statistics_of_a_layer_are_copied_before_the_forward_in_train_mode() -> None:
    make = "bn = nn.BatchNorm1d(3, momentum=0.5)\nx = torch.randn(6, 3, requires_grad=True)"
    cell = """
        clean = bn.eval()(x)
        bn.train()
        unused = bn(4 * torch.randn(6, 3))
        clean.square().sum().backward()
    """
    fix = fixes(make, cell)["silent_batch_norm"]
    copies = "bn.running_mean = bn.running_mean.clone()\nbn.running_var = bn.running_var.clone()\n"
    assert_proved(fix, 3, checked(cell, ("unused = ", f"{copies}unused = ")))


def test_the_statistics_of_every_layer_of_a_net_used_in_a_function() -> None:
    make = """
        net = nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(3, 3), nn.BatchNorm1d(3))])
        x = torch.randn(5, 3)
    """
    cell = """
        def step():
            reference = net.eval()(x)
            net.train()
            loss = (reference - 2 * net(x)).pow(2).mean()
            loss.backward()
        step()
    """
    fix = fixes(make, cell)["silent_batch_norm"]
    loop = "    for norm in (net[1], net[3], net[5]):\n" + "".join(
        f"        norm.{name} = norm.{name}.clone()\n" for name in ("running_mean", "running_var")
    )
    assert fix.verified and fix.gradients == "same"
    assert fix.cells[3].rstrip() in (
        checked(cell, ("    loss = ", f"{loop}    loss = ")),
        checked(cell, ("\nstep()", "\n" + clean(loop) + "step()")),
    )


def test_a_change_of_which_the_graph_never_hears_is_not_written_past_it_once_more() -> None:
    define = "def rate_of(eta):\n    rate = torch.exp(eta)\n    rate.data.clamp_(max=2.0)\n    return rate\nw = torch.ones(3, requires_grad=True)"
    found = run_cells(
        IMPORTS, define, "%%autograd_check\nloss = rate_of(w * torch.arange(3.)).log1p().sum()\nloss.backward()"
    )
    assert found.diagnosis is not None
    assert found.diagnosis.fixes[0].rule == "silent_tracked"
    assert found.diagnosis.fixes[0].cells[2] == define.replace(
        "rate.data.clamp_(max=2.0)", "rate = rate.clamp(max=2.0)"
    )
    assert not any("rate.data = " in text for fix in found.diagnosis.fixes for text in fix.cells.values())


def test_a_function_that_zeroes_elements_past_the_graph_loses_its_decorator_and_no_copy_hides_the_write() -> None:
    define = """
        w, b = torch.randn(3, 2, requires_grad=True), torch.ones(2, requires_grad=True)
        @torch.no_grad()
        def blank_(t, where): t.masked_fill_(where, 0.0)
        """
    cell = """
        x = torch.randn(4, 3)
        out = x @ w + b
        blank_(out, x[:, :1] > 0)
        (out - 1).square().sum().backward()
        """
    found = fixes(define, cell)
    assert list(found) == ["connected"] and found["connected"].gradients == "same"
    assert found["connected"].cells == {2: rewritten(define, ("@torch.no_grad()\n", ""))}
