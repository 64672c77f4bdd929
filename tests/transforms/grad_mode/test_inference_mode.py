from __future__ import annotations

import pytest

from ...cells import new_shell, run_cells, run_in
from ..trying import clean, fix_by, proposals, titles

RULE = "inference_mode"


@pytest.mark.parametrize(
    ("cell", "write", "family"),
    [
        pytest.param(
            "with torch.no_grad():\n    f = g(x)\nl = h(f)", "h(f)", "inference", id="no inference mode anywhere"
        ),
        pytest.param("with torch.inference_mode():\n    f = g(x)\nl += 1", "l += 1", "modified", id="another family"),
    ],
)
def test_proposes_nothing(cell: str, write: str, family: str) -> None:
    assert titles(RULE, cell, write=write, family=family) == []


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param("with torch.inference_mode():\n    f = g(x)\n", "with torch.no_grad():\n    f = g(x)\n", id="a block"),
        pytest.param("with torch.inference_mode(True), amp():\n    f = g(x)\n", "with torch.no_grad(), amp():\n    f = g(x)\n", id="one of two"),
        pytest.param("@torch.inference_mode()\ndef g(x):\n    return x\n", "@torch.no_grad()\ndef g(x):\n    return x\n", id="a decorator"),
        pytest.param("@th.inference_mode\ndef g(x):\n    return x\n", "@th.no_grad()\ndef g(x):\n    return x\n", id="a decorator without a call"),
    ],
)  # fmt: skip
def test_takes_no_grad(cell: str, expected: str) -> None:
    assert [p.texts for p in proposals(RULE, cell, "l = h(f)", write="h(f)", family="inference")] == [{1: expected}]


def test_is_proved_and_the_tensors_at_hand_become_normal() -> None:
    start = "import torch\nbody, head, x = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1), torch.ones(3, 2)"
    made = "with torch.inference_mode():\n    feats = [body(x)]"
    fix = fix_by(RULE, start, made, "head(feats[0]).sum().backward()")
    assert fix.cells == {2: made.replace("inference_mode", "no_grad")}
    assert [c.text for c in fix.live] == ["feats[0] = feats[0].clone()"]
    assert (fix.gradients, fix.run) == ("same", (3,))


def test_what_the_rerun_makes_past_the_failure_is_not_looked_for_in_the_session() -> None:
    start = """
        import torch
        net, kept = torch.nn.Linear(2, 1), {}
        @torch.inference_mode()
        def snapshot(n):
            net.half().float()
            kept[n] = net.weight.clone()
        """
    cell = """
        for n in range(4):
            net(torch.ones(3, 2, requires_grad=True)).sum().backward()
            snapshot(n)
        """
    fix = fix_by(RULE, start, cell)
    assert fix.cells[1].strip() == clean(start).replace("inference_mode", "no_grad").strip()
    assert all("kept[0]" in change.text for change in fix.live)


def test_what_a_function_may_not_save_is_made_without_inference_mode() -> None:
    start = """
        import torch
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, s):
                ctx.save_for_backward(s)
                return x * s
            @staticmethod
            def backward(ctx, g):
                return g * ctx.saved_tensors[0], None
        w = torch.ones(3, requires_grad=True)
        """
    made = "with torch.inference_mode():\n    s = torch.ones(1) * 3"
    fix = fix_by(RULE, start, made, "Scale.apply(w, s).sum().backward()")
    assert fix.cells == {2: made.replace("inference_mode", "no_grad")}
    assert fix.gradients == "same"


def test_a_view_that_a_decorated_helper_returns_and_nobody_names_is_made_with_gradients() -> None:
    helper = "@torch.inference_mode()\ndef border(maps):\n    return maps[..., -1:]"
    run = run_cells(
        "import torch\nw = torch.ones(2, 3, requires_grad=True)", helper, "maps = w * 2\nborder(maps).mul_(0.5)"
    )
    assert run.diagnosis is not None
    first, *others = run.diagnosis.fixes
    assert first.title.startswith("def border without") and first.gradients == "same"
    assert all(
        fix.gradients != "same" and any("later backward from maps" in one for one in fix.changes) for fix in others
    )


@pytest.mark.parametrize(
    ("params", "offered"),
    [
        ("net.parameters()", True),
        ("net.head.parameters()", False),
        ("[*net.head.parameters(), *net.idle.parameters()]", False),
    ],
)
def test_what_an_optimizer_steps_may_be_meant_to_be_trained(params: str, offered: bool) -> None:
    start = """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head, self.idle = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), torch.nn.Linear(2, 2)
            @torch.inference_mode()
            def features(self, x):
                return self.body(x).tanh()
            def forward(self, x):
                return self.head(self.features(x))
        """
    cell = f"net = Net()\nopt = torch.optim.SGD({params}, lr=0.1)\nfor _ in range(3):\n    opt.zero_grad()\n    net(torch.ones(2, 3)).sum().backward()\n    opt.step()"
    found = run_cells(clean(start), cell).diagnosis
    assert found is not None and found.fixes[0].gradients == "same"
    assert any("without @torch.inference_mode()" in fix.title for fix in found.fixes) is offered


def test_what_an_object_computes_when_it_is_asked_is_not_computed_in_the_session() -> None:
    start = """
        import functools, torch
        class Category:
            @functools.cached_property
            def vector(self):
                with torch.inference_mode():
                    return torch.ones(3)
        categories = [Category(), Category()]
        gate = torch.ones(3, requires_grad=True)
        """
    shell = new_shell()
    run_in(shell, [clean(start)])
    run = run_in(shell, ["sum((gate * one.vector).sum() for one in categories).backward()"])
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert [vars(one).keys() for one in shell.user_ns["categories"]] == [{"vector"}, set()]
