"""What a rewrite must not change: other statements, other people's names, the text of a string, an argument it does not know."""

from __future__ import annotations

import pytest

from .trying import clean, fix_by, fixes, proposals, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    x, a = torch.randn(5, 3), 1
    opt = torch.optim.SGD(net.parameters(), 0.1)
    """
GAN = """
    import torch as th
    from torch import nn
    th.manual_seed(0)
    G, D = nn.Linear(3, 3), nn.Linear(3, 1)
    og, od = th.optim.SGD(G.parameters(), 0.1), th.optim.SGD(D.parameters(), 0.1)
    def noted(t, text):
        print(len(text))
        return t
    """


def test_statements_ahead_of_a_one_line_branch_stay() -> None:
    cell = """
        keep = 1; other = 2
        weights = keep + other
        if a: u = net(x)
        for i in range(3):
            loss = (u ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    fix = fix_by("recompute", START, cell)
    assert fix.cells == {
        2: rewritten(cell, ("if a: u = net(x)", "if a: pass"), ("    loss =", "    u = net(x)\n    loss ="))
    }


def test_a_string_on_several_lines_is_moved_as_it_is() -> None:
    text = '"""one\n    two\n\n    three"""'
    cell = """
        for i in range(2):
            fake = G(th.ones(2, 3))
            od.zero_grad(); og.zero_grad()
            out = noted(D(fake), TEXT)
            dl = (D(fake.detach()) - 1).pow(2).mean()
            dl.backward()
            od.step()
            gl = (out ** 2).mean()
            gl.backward()
            og.step()
        """
    found = [fix for fix in fixes(GAN, clean(cell).replace("TEXT", text)) if fix.rule == "recompute"]
    assert found and all(text in fix.cells[2] for fix in found)


def test_a_lambda_keeps_its_own_argument() -> None:
    cell = """
        import torch
        x = torch.randn(3, requires_grad=True)
        z = torch.randn(3)
        x[0] = 0
        f = lambda x: x * 2
        y = f(x).sum() + f(z).sum()
        y.backward()
        print(x.grad)
        """
    found = [fix for fix in fixes(cell) if fix.rule == "out_of_place"]
    assert found and all("f = lambda x: x * 2\n" in fix.cells[1] for fix in found)


STATES = """
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.h = nn.Linear(3, 3), torch.zeros(3)
        def reset(self):
            self.h = torch.zeros(3)
        def forward(self, x):
            self.h = torch.tanh(self.l(x) + self.h)
            return self.h
    net, module = nn.Sequential(Cell(), Cell()), "mine"
    opt = torch.optim.SGD(net.parameters(), 0.1)
    """


def test_a_name_of_another_cell_is_not_given_something_else() -> None:
    cell = """
        for x in torch.randn(3, 3):
            loss = net(x).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(module)
        """
    fix = fix_by("reset_state", START, STATES, cell)
    assert "for module_2 in net:" in fix.cells[3]


def test_torch_is_called_as_the_notebook_calls_it() -> None:
    start = """
        import torch as th
        from torch import nn
        th.manual_seed(0)
        trunk, head, data = nn.Linear(3, 3), nn.Linear(3, 1), th.randn(4, 3)
        both = [*trunk.parameters(), *head.parameters()]
        o1, o2 = th.optim.SGD(both, 0.1), th.optim.SGD(both, 0.1)
        p, g = "mine", "mine as well"
        """
    cell = """
        feat = trunk(data)
        l1, l2 = head(th.tanh(feat)).mean(), head(feat ** 2).pow(2).mean()
        o1.zero_grad()
        l1.backward(retain_graph=True)
        o1.step()
        o2.zero_grad()
        l2.backward()
        o2.step()
        """
    first = next(fix for fix in fixes(start, cell) if "autograd.grad" in fix.title)
    assert "grads = th.autograd.grad(" in first.cells[2]
    assert "for p_2, g_2 in zip(params, grads):" in first.cells[2]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param("mode=frozen", "torch.set_grad_enabled(not frozen)", id="a switch"),
        pytest.param("a or b", "torch.set_grad_enabled(not (a or b))", id="an expression"),
        pytest.param("True", "torch.no_grad()", id="switched on"),
        pytest.param("mode=False", None, id="switched off"),
    ],
)
def test_a_switch_of_inference_mode_stays_one(mode: str, expected: str | None) -> None:
    cell = f"with torch.inference_mode({mode}):\n    f = g(x)\n"
    found = [p.texts[1] for p in proposals("inference_mode", cell, "l = h(f)", write="h(f)", family="inference")]
    assert found == ([] if expected is None else [f"with {expected}:\n    f = g(x)\n"])


def test_the_call_that_goes_back_is_not_made_a_second_time() -> None:
    step = """
        def run(step):
            y = torch.sigmoid(net(x))
            y *= 2
            return y.sum()
        """
    assert "recompute" not in rules(START, step, "run(1).backward()")
    assert "out_of_place" in rules(START, step, "run(1).backward()")


def test_a_part_of_a_tuple_in_a_tuple_is_counted_by_the_outer_one() -> None:
    start = """
        enc, v = nn.Linear(3, 3), nn.Linear(3, 1)
        opt = torch.optim.SGD([*enc.parameters(), *v.parameters()], 0.1)
        def two(x): return (enc(x), enc(x) * 2), enc(x) * 3
        """
    cell = """
        _, state = two(torch.ones(3))
        for x in torch.randn(3, 3):
            (a, b), nxt = two(x)
            loss = (v(state) - v(nxt)).pow(2).mean() + a.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            state = nxt
        """
    fix = fix_by("recompute_carried", START, start, cell)
    assert fix.cells == {3: rewritten(cell, ("state = nxt", "state = two(x)[1]"))}
