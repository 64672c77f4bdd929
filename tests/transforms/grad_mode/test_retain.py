from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, rewritten, rules

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
        def forward(self, x):
            out = torch.tanh(self.lin(x))
            self.loss = out.square().mean()
            return out
        def send(self, keep=False):
            self.loss.backward(retain_graph=keep)
            return self.loss.item()
    net = nn.Sequential(Layer(), Layer(), Layer())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    """
LOOP = """
    for x in torch.randn(2, 4, 3):
        opt.zero_grad()
        net(x)
        score = 0
        for layer in net:
            score += layer.send()
        opt.step()
    """


def test_each_layers_own_loss_goes_back_through_a_graph_that_is_kept() -> None:
    run = run_cells(START, LOOP)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.gradients) == ("retain", "same")
    assert "self.loss.backward(retain_graph=True)" in first.cells[1]


def test_one_loss_again_and_again_keeps_no_graph() -> None:
    again = rewritten(
        LOOP, ("for layer in net:\n        score += layer.send()", "for _ in range(3):\n        score += net[2].send()")
    )
    assert "retain" not in rules(START, again)


def test_a_graph_that_a_step_has_made_stale_is_not_kept_for_ever() -> None:
    assert "retain" not in rules(START, rewritten(LOOP, ("layer.send()", "layer.send(); opt.step()")))


def test_a_graph_whose_weights_were_changed_past_torch_is_not_kept() -> None:
    start = """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        def update(loss):
            loss.backward()
            for p in net.parameters():
                p.data.sub_(0.1 * p.grad)
                p.grad = None
    """
    assert rules(start, "loss = net(torch.ones(3, 2)).pow(2).mean()", "update(loss)", "update(loss)") == ["recompute"]


PENALTY = """
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.randn(2, 5, 2):
        x.requires_grad_()
        u = net(x)
        du = torch.autograd.grad(u.sum(), x)[0]
        loss = u.pow(2).mean() + {penalty}
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


@pytest.mark.parametrize(
    ("penalty", "argument", "gradients"),
    [
        pytest.param("net(x + 0.1 * du).mean()", "retain_graph", "same", id="an input is moved along its gradient"),
        pytest.param("((x - du).detach() - u).pow(2).mean()", "retain_graph", "same", id="a target that is cut off"),
        pytest.param("((x - du).data - u).pow(2).mean()", "retain_graph", "same", id="or whose data are taken"),
        pytest.param("net(x).mean() * du.norm()", "retain_graph", "same", id="its size weighs another loss"),
        pytest.param("net(x).mean() * float(du.norm())", "retain_graph", "same", id="a number weighs another loss"),
        pytest.param("(u**2 + du.pow(2)).mean() / (u**2).mean()", "create_graph", "different", id="a part of a loss is one"),
        pytest.param("(du.norm(dim=1) - 1).pow(2).mean()", "create_graph", "different", id="a loss is made of the gradient"),
    ],
)  # fmt: skip
def test_a_gradient_that_a_loss_is_made_of_is_a_part_of_its_graph(penalty: str, argument: str, gradients: str) -> None:
    run = run_cells("import torch\nfrom torch import nn\ntorch.manual_seed(0)", PENALTY.format(penalty=penalty))
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (f"u.sum(), x, {argument}=True)" in first.diff, first.gradients) == (True, gradients)


JOINT = """
    edges, paint = nn.Linear(3, 3), nn.Linear(3, 1)
    edge_opt, paint_opt = torch.optim.SGD(edges.parameters(), lr=0.1), torch.optim.SGD(paint.parameters(), lr=0.1)
    for x in torch.randn(2, 4, 3):
        edge_opt.zero_grad()
        paint_opt.zero_grad()
        h = edges(x).tanh()
        near, far = (h - x).pow(2).mean(), paint(h).pow(2).mean()
        far.backward()
        paint_opt.step()
        near.backward()
        edge_opt.step()
    """


@pytest.mark.parametrize(("used", "argument"), [("trace", "create_graph"), ("trace.detach()", "retain_graph")])
def test_of_several_gradients_of_one_call_a_loss_may_be_made(used: str, argument: str) -> None:
    start = """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        z = torch.rand(3, 2, requires_grad=True)
        """
    cell = f"""
        v, trace = net(z), 0.
        for i in range(2):
            trace = trace + torch.autograd.grad(v[:, i].sum(), z)[0][:, i]
        (v.square().sum() - {used}.sum()).backward()
        """
    found = run_cells(clean(start), clean(cell)).diagnosis
    assert found is not None and found.fixes[0].cells[2] == clean(cell).rstrip().replace(
        "sum(), z)", f"sum(), z, {argument}=True)"
    )


def test_gradients_that_are_another_nets_target_are_no_part_of_its_loss() -> None:
    start = """
        import torch
        torch.manual_seed(0)
        net, student = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        opt = torch.optim.SGD(student.parameters(), lr=0.1)
        z = torch.rand(3, 2, requires_grad=True)
        """
    cell = """
        for _ in range(2):
            v, columns = net(z).tanh(), []
            for i in range(2):
                columns.append(torch.autograd.grad(v[:, i].sum(), z)[0].sum(1))
            loss = (student(z.detach()) - torch.stack(columns, 1)).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """
    found = run_cells(clean(start), clean(cell)).diagnosis
    assert found is not None and all("create_graph" not in fix.title for fix in found.fixes)


def test_a_graph_is_kept_past_a_step_of_what_the_later_backward_does_not_go_to() -> None:
    run = run_cells(START, JOINT)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.cells == {2: rewritten(JOINT, ("far.backward()", "far.backward(retain_graph=True)"))}
    assert (first.gradients, first.changes) == ("same", ())


def test_a_graph_is_not_kept_first_past_a_step_of_what_the_later_backward_goes_to() -> None:
    run = run_cells(START, rewritten(JOINT, ("SGD(paint.parameters()", "SGD([*paint.parameters(), edges.bias]")))
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].rule != "retain"


@pytest.mark.parametrize(
    ("later", "kept"),
    [
        pytest.param("parts[1]", True, id="another loss of one forward"),
        pytest.param("parts[0]", False, id="the loss that has been used"),
    ],
)
def test_a_helper_that_updates_keeps_the_graph_for_another_loss_alone(later: str, kept: bool) -> None:
    start = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def update(loss):
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    cell = """
        parts = net(torch.rand(4, 3)).square().mean(0)
        update(parts[0])
        """
    assert ("retain" in rules(start, cell, f"update({later})")) is kept


@pytest.mark.parametrize("ahead", ["retain_graph=False", ""])
def test_a_hook_that_goes_back_through_one_graph_again_and_again_keeps_it(ahead: str) -> None:
    layer = f"""
        def fixed_point(f, x):
            z = f(torch.zeros_like(x), x)
            start = z.detach().requires_grad_()
            again = f(start, x)
            def solve(g):
                found = g
                for _ in range(3):
                    found = torch.autograd.grad(again, start, found{", " + ahead if ahead else ""})[0] + g
                return found
            z.register_hook(solve)
            return z
        """
    cell = "w = torch.full((3,), 0.5, requires_grad=True)\nfixed_point(lambda z, x: torch.tanh(w * z + x), torch.ones(3)).sum().backward()"
    fix = fix_by("retain", "import torch", layer, cell)
    assert "torch.autograd.grad(again, start, found, retain_graph=True)[0] + g" in fix.cells[2]
