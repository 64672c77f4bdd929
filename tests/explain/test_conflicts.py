"""What is said of a conflict: whose value it was, and who changed it."""

from __future__ import annotations

import pytest

from inplace_magic.diagnosis import Diagnosis
from inplace_magic.message import kind_of
from inplace_magic.report.contents import report_of
from tests.cells import run_cells

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    D = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    def update(optim, loss):
        optim.zero_grad()
        loss.backward(retain_graph=True)
        optim.step()
    """
OPTIMIZERS = [
    "SGD(D.parameters(), lr=0.1)",
    "Adam(D.parameters(), lr=0.1)",
    "AdamW(D.parameters(), lr=0.1, foreach=True)",
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_optimizers_step_overwrites_a_parameter_and_not_the_optimizer(optimizer: str) -> None:
    cell = "optimD.zero_grad(); d = D(torch.ones(4, 2))\nd.sum().backward(retain_graph=True)\noptimD.step()\n(d ** 2).sum().backward()"
    found = run_cells(START, f"optimD = torch.optim.{optimizer}", cell).diagnosis
    assert found is not None and found.conflicts[0].tensor == "D[2].weight"
    assert found.sentence == (
        "`optimD.step()` overwrote the value of `D[2].weight` that `nn.Linear` had kept for its gradient."
    )


def test_so_does_one_in_a_helper() -> None:
    cell = "opt = torch.optim.SGD(D.parameters(), lr=0.1)\nd = D(torch.ones(4, 2))\nupdate(opt, d.sum())\n(d ** 2).sum().backward()"
    found = run_cells(START, cell).diagnosis
    assert found is not None and found.conflicts[0].tensor == "D[2].weight"
    assert "optim.step()" in found.sentence


def test_of_a_chain_of_calls_the_method_that_writes_is_marked() -> None:
    found = run_cells(
        "import torch\nw = torch.ones(3, requires_grad=True)", "x = w.exp().mul_(2)\nx.sum().backward()"
    ).diagnosis
    assert found is not None and found.changed is not None and found.changed.columns is not None
    start, end = found.changed.columns
    assert found.changed.text[start:end] == ".mul_(2)"


AVERAGES = {
    "an average that is the parameter itself": ("dict(D.named_parameters())", True),
    "an average of its own": ("{n: p.detach().clone().requires_grad_() for n, p in D.named_parameters()}", False),
}


@pytest.mark.parametrize("kept", AVERAGES)
@pytest.mark.parametrize("update", ["mean[n].mul_(0.9).add_(p, alpha=0.1)", "mean[n] -= 0.1 * (mean[n] - p)"])
def test_a_leaf_that_is_written_and_read_under_another_name_is_told(kept: str, update: str) -> None:
    made, told = AVERAGES[kept]
    found = run_cells(START, f"mean = {made}", f"for n, p in D.named_parameters():\n    {update}").diagnosis
    assert found is not None and found.family == "leaf"
    sentence = "`p` is `mean[n]` itself, not a copy: this line writes the very leaf that it reads."
    assert (sentence in found.sentence) == told, found.sentence


SHARING = {
    "two parts of one tensor": ("a, b = (torch.ones(4, requires_grad=True) * 1).chunk(2)", "multi_output_view"),
    "two views of one leaf": ("a, b = torch.ones(2, 3, requires_grad=True).unbind(0)", "multi_output_view"),
    "two rows of one leaf": ("w = torch.ones(2, 3, requires_grad=True)\na, b = w[0], w[1]", "view_of_leaf"),
    "two leaves in one memory": (
        "w = torch.zeros(4)\na, b = w[:2].detach().requires_grad_(), w[2:].detach().requires_grad_()", "leaf",
    ),
}  # fmt: skip


@pytest.mark.parametrize("made", SHARING)
def test_what_only_shares_memory_is_not_called_one_tensor(made: str) -> None:
    setup, family = SHARING[made]
    found = run_cells(f"import torch\n{setup}", "a += b\na.sum().backward()").diagnosis
    assert found is not None and found.family == family and "itself" not in found.sentence


@pytest.mark.parametrize("line", ["p -= 0.1 * p", "p.mul_(0.9).add_(1)", "p.add_(other)"])
def test_nothing_is_said_of_a_leaf_under_its_own_name_alone(line: str) -> None:
    found = run_cells(START, f"other = torch.ones(1)\nfor p in D.parameters():\n    {line}").diagnosis
    assert found is not None and "itself" not in found.sentence


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        pytest.param("loss = loss / 2\nloss += 1\nloss.sum().backward()", None, id="a normal tensor made from it"),
        pytest.param("loss /= 2", "cannot be modified in place outside of inference mode", id="written"),
        pytest.param("(D.weight * loss).sum().backward()", "cannot be saved for backward", id="saved"),
    ],
)
def test_what_an_inference_tensor_is_refused_for_is_told(cell: str, said: str | None) -> None:
    made = "import torch\nD = torch.nn.Linear(2, 2)\nwith torch.inference_mode():\n    loss = torch.ones(2)"
    found = run_cells(made, cell).diagnosis
    assert (found is None) is (said is None)
    assert found is None or said is None or said in found.conflicts[0].needed_note


@pytest.mark.parametrize(
    ("made", "said"),
    [
        pytest.param("step = nn.Linear(3, 3)", "nn.Linear", id="what a linear layer keeps"),
        pytest.param("step = nn.GRUCell(3, 3)", "nn.GRUCell", id="a cell that is made of linear layers"),
        pytest.param("n, step = 3, nn.LSTM(3, 3)", "nn.LSTM", id="bound beside others"),
        pytest.param("step = nn.GRUCell(3, 3)\nstep = nn.Linear(3, 3)", "nn.Linear", id="a name that was bound twice"),
    ],
)
def test_the_module_that_keeps_a_weight_is_the_one_that_was_called(made: str, said: str) -> None:
    cell = """
        opt = torch.optim.SGD(step.parameters(), lr=0.1)
        loss = step(torch.ones(1, 3, requires_grad=True))
        loss = (loss[0] if isinstance(loss, tuple) else loss).exp().sum()
        loss.backward(retain_graph=True)
        opt.step()
        loss.backward()
        """
    found = run_cells("import torch\nfrom torch import nn", made, cell).diagnosis
    assert found is not None and f"`{said}`" in found.sentence


@pytest.mark.parametrize(
    "other", ["z = torch.zeros(2)\n    z += 1", "z = torch.zeros(3)\n    z += 1"], ids=["of its shape", "of another"]
)
def test_a_change_inside_torch_func_is_blamed_on_nothing_where_two_lines_write(other: str) -> None:
    found = run_cells(
        "import torch\nfrom torch.func import grad",
        f"def f(x):\n    y = x.exp()\n    y += 1\n    {other}\n    return y.sum()\ng = grad(f)(torch.randn(2))",
    ).diagnosis
    assert found is not None and found.changed is None and not found.fixes
    assert found.needed is not None and found.needed.line == 7
    assert kind_of(found.conflicts[0].sentence) == "changed_unfollowed"


@pytest.mark.parametrize(
    ("call", "write"),
    [
        pytest.param("grad(f)(torch.randn(2))", "y += 1", id="grad"),
        pytest.param("vmap(grad(f))(torch.randn(3, 2))", "y.add_(1)", id="grad of each sample"),
        pytest.param("jacrev(f)(torch.randn(2))", "y[0] = 0", id="jacrev"),
        pytest.param("hessian(f)(torch.randn(2))", "y *= 2", id="hessian"),
    ],
)
def test_the_one_line_that_writes_inside_torch_func_is_named_and_rewritten(call: str, write: str) -> None:
    found = run_cells(
        "import torch\nfrom torch.func import grad, hessian, jacrev, vmap",
        f"def f(x):\n    y = x.exp()\n    {write}\n    return y.sum()\ng = {call}",
    ).diagnosis
    assert found is not None and found.changed is not None and found.changed.text == write
    assert found.fixes and found.fixes[0].gradients in ("unknown", "same")


@pytest.mark.parametrize(
    ("cell", "calls"),
    [
        pytest.param("update(opt, d.sum())\n(d ** 2).sum().backward()", [], id="the line that needs it is beside the call"),
        pytest.param("for _ in range(2):\n    update(opt, d.sum())", [], id="one line that calls it twice"),
        pytest.param("update(opt, d.sum())\nprint(1)\nupdate(opt, (d ** 2).sum())", [(2, 3), (2, 5)], id="two lines"),
        pytest.param("update(opt, d.sum()), update(opt, (d ** 2).sum())", [(2, 3), (2, 3)], id="two calls in one line"),
    ],
)  # fmt: skip
def test_calls_of_one_function_that_changed_a_value_and_needed_it_are_told(
    cell: str, calls: list[tuple[int, int]]
) -> None:
    made = "opt = torch.optim.SGD(D.parameters(), lr=0.1)\nd = D(torch.ones(4, 2))\n"
    found = run_cells(START, made + cell).diagnosis
    assert found is not None
    assert [(place.cell, place.line) for place in found.conflicts[0].calls] == calls
    assert Diagnosis.from_dict(found.to_dict()) == found
    shown = [mark.label for block in report_of(found).blocks for line in block.lines for mark in line.marks]
    said = ["in this call it is overwritten", "in this call it is needed"] if calls else []
    assert [label for label in shown if "in this call" in label] == said


@pytest.mark.parametrize(
    ("cell", "needed"),
    [
        pytest.param(
            "y = Kept.apply(w)\ny.sum().backward()\ny.sum().backward()", "In[2]:3", id="a graph that is freed"
        ),
        pytest.param(
            "h = w * 2\ny = Kept.apply(h)\nh.add_(1)\ny.sum().backward()", "In[2]:4", id="a value that is changed"
        ),
    ],
)
def test_what_a_function_reads_in_its_backward_is_needed_by_who_calls_backward(cell: str, needed: str) -> None:
    function = """
        import torch
        w = torch.ones(3, requires_grad=True)
        class Kept(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.save_for_backward(t)
                return t ** 2
            @staticmethod
            def backward(ctx, g):
                t, = ctx.saved_tensors
                return g * 2 * t
        """
    found = run_cells(function, cell).diagnosis
    assert found is not None and found.needed is not None and found.saved is not None
    assert (found.needed.label, found.saved.label) == (needed, "In[1]:6")


def test_the_diagonal_of_a_leaf_is_what_torch_says_it_is() -> None:
    found = run_cells("import torch", "w = torch.ones(3, 3, requires_grad=True)\nw.fill_diagonal_(0)").diagnosis
    assert found is not None and found.family == "view_of_leaf"
    assert found.headline == "In-place change of a view of a leaf that requires grad"


def test_two_leaves_in_one_memory_have_one_headline_from_the_first_report_on() -> None:
    setup, family = SHARING["two leaves in one memory"]
    found = run_cells(f"import torch\n{setup}", "a += b").diagnosis
    assert found is not None and (found.family, found.headline) == (
        family,
        "In-place change of a leaf that requires grad",
    )


def test_a_view_made_before_its_base_was_written_is_called_no_leaf() -> None:
    cell = "z = torch.zeros(2, 3)\np, q = z[0], z[1]\np.copy_(w)\nq.copy_(2 * w)\nz.exp().sum().backward()"
    found = run_cells("import torch\nw = torch.ones(3, requires_grad=True)", cell).diagnosis
    assert found is not None and found.family == "leaf"
    assert "a view that was created before its base was changed in place" in found.sentence
    assert found.fixes[0].rule == "view_at_write" and found.fixes[0].gradients == "same"
