"""What writes into a parameter or an input that requires grad gets a value of its own."""

from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import fix_by, proposals, rewritten, titles

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    """
HEAD = """
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.randn(3, 4))
        def forward(self, x):
            self.rows.div_(self.rows.norm(dim=1, keepdim=True))
            return x @ self.rows.t()
    """


@pytest.mark.parametrize(
    ("body", "write"),
    [
        pytest.param("self.rows *= 2", "self.rows *= 2", id="an update that nothing in its function reads"),
        pytest.param(
            "for _ in range(2):\n            self.rows *= 2\n        return self.rows",
            "self.rows *= 2",
            id="a write in a loop, which goes on from what it wrote",
        ),
        pytest.param(
            "self.rows *= 2\n        self.rows.requires_grad = False",
            "self.rows *= 2",
            id="what is said of the parameter itself afterwards",
        ),
        pytest.param("rows = self.rows\n        rows *= 2\n        return rows", "rows *= 2", id="a name of its own"),
        pytest.param(
            "self.rows -= self.rows.grad\n        return self(x)",
            "self.rows -= self.rows.grad",
            id="an update, which all are to see",
        ),
        pytest.param(
            "self.rows *= 2\n        return self.run(x)", "self.rows *= 2", id="a method, which no one can call so"
        ),
    ],
)
def test_keeps_its_name(body: str, write: str) -> None:
    cell = f"class Head(nn.Module):\n    def forward(self, x):\n        {body}\n"
    about = {"family": "leaf", "parameter": True, "held": ("self.rows",)}
    assert [t for t in titles("out_of_place", cell, write=write, **about) if t.startswith("rows = self.rows")] == []


@pytest.mark.parametrize(
    ("lines", "write", "expected"),
    [
        (
            "self.rows /= 2 + x\nreturn self.rows @ x",
            "self.rows /= 2 + x",
            "rows = self.rows / (2 + x)\nreturn rows @ x",
        ),
        (
            "self.rows[0] = 0\nreturn self.rows @ x",
            "self.rows[0] = 0",
            "rows = self.rows.clone()\nrows[0] = 0\nreturn rows @ x",
        ),
        (
            "rows = x\nself.rows.mul_(2)\nreturn self.rows @ rows",
            "self.rows.mul_(2)",
            "rows = x\nrows_2 = self.rows.mul(2)\nreturn rows_2 @ rows",
        ),
        (
            "self.rows[0].weight.mul_(x)\nreturn self.rows[0].weight @ x",
            "self.rows[0].weight.mul_(x)",
            "weight = self.rows[0].weight.clone()\nweight.mul_(x)\nreturn weight @ x",
        ),
    ],
    ids=["an operator", "a part of it, in a copy", "a name that is not taken yet", "no name to bind anew"],
)
def test_the_function_works_on_a_value_of_its_own(lines: str, write: str, expected: str) -> None:
    head = "def forward(self, x):\n    "
    cell, wanted = (head + text.replace("\n", "\n    ") for text in (lines, expected))
    found = [p.texts[1] for p in proposals("out_of_place", cell, write=write, family="leaf")]
    assert wanted in found


def test_the_parameter_learns_through_it_and_keeps_its_value() -> None:
    fix = fix_by("out_of_place", START, HEAD, "net = Head()\nnet(torch.ones(2, 4)).pow(2).sum().backward()")
    assert fix.cells[2] == rewritten(HEAD, ("self.rows.div_(", "rows = self.rows.div("), ("x @ self.rows", "x @ rows"))
    assert fix.changes == ("net.rows has other values afterwards",)


IMAGE = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net, image = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1)), torch.rand(1, 3, 4)
    image.requires_grad_()
    """
SALIENCY = "{}\nloss = net(image).sum()\nloss.backward()\nprint(image.grad.abs().sum())"


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(SALIENCY.format("image.add_(0.1 * image.sign())") + "\nimage.sub_(0.1 * image.grad)", id="moved along its gradient"),
        pytest.param(SALIENCY.format("image.uniform_(0, 1)"), id="begun anew as a whole"),
        pytest.param("opt = torch.optim.SGD([image], 0.1)\n" + SALIENCY.format("image.clamp_(0.2, 0.8)") + "\nopt.step()", id="stepped"),
        pytest.param("image = nn.Parameter(image)\n" + SALIENCY.format("image.clamp_(0.2, 0.8)"), id="a parameter"),
    ],
)  # fmt: skip
def test_a_leaf_that_is_trained_is_updated_and_no_value_is_made_of_it(cell: str) -> None:
    run = run_cells(IMAGE, cell)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert (fix.rule, fix.gradients, fix.changes) == ("no_grad", "same", ())
    assert not any("image_2" in other.diff for other in run.diagnosis.fixes)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("part = image[:, :2]\npart *= 0.5", "image_2 = image.clone()\npart = image_2[:, :2]\npart *= 0.5"),
        ("part = image[:, 0]\npart.copy_(image[:, 1])", "image_2 = image.clone()\npart = image_2[:, 0]\npart.copy_(image_2[:, 1])"),
        ("image[:, 0] = 0", "image_2 = image.clone()\nimage_2[:, 0] = 0"),
        ("image *= 0.5", "image_2 = image * 0.5"),
    ],
    ids=["through a view", "copied into a view", "a part", "the whole"],
)  # fmt: skip
def test_what_nothing_trains_keeps_its_value_and_the_loss_is_made_of_another(lines: str, expected: str) -> None:
    run = run_cells(IMAGE, SALIENCY.format(lines))
    assert run.diagnosis is not None
    fix, *others = run.diagnosis.fixes
    assert fix.cells[2] == SALIENCY.format(expected).replace("net(image)", "net(image_2)")
    assert fix.changes == ("image has other values afterwards",)
    assert [other.gradients for other in others if other.rule == "no_grad"] in ([], ["truncated"])


OCCLUDED = """
    def occluded(image, size):
        part = image[:, :size]
        part *= 0.5
        return image
    loss = net(occluded(image, 2)).sum()
    loss.backward()
    print(image.grad.abs().sum())
    """


def test_a_function_that_writes_into_a_view_of_what_it_gives_back_copies_the_whole() -> None:
    run = run_cells(IMAGE, OCCLUDED)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    part = "    part = image[:, :size]"
    assert fix.cells == {2: rewritten(OCCLUDED, (part, f"    image = image.clone()\n{part}"))}
    assert fix.changes == ("image has other values afterwards",)


def test_what_is_only_asked_whether_it_is_a_leaf_gets_no_value_that_nobody_reads() -> None:
    run = run_cells("import torch\nc = torch.ones(3, requires_grad=True)", "c[:] += 1\nprint(c.is_leaf)")
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes] == ["no_grad"]


PIPELINE = """
    class Erase:
        def __call__(self, image):
            image[image < 0.2] = 0.
            return image
    class Compose:
        def __init__(self, *steps):
            self.steps = steps
        def __call__(self, sample):
            out = sample["image"]
            for i in range(len(self.steps)):
                out = self.steps[i](out)
            return out
    sample, pipeline = {"image": torch.rand(2, 3, requires_grad=True)}, Compose(Erase())
    """


def test_an_input_that_a_step_gives_back_written_is_data_and_no_update() -> None:
    run = run_cells(IMAGE, PIPELINE, "pipeline(sample).pow(2).sum().backward()\nprint(sample['image'].grad.sum())")
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes if fix.rule == "no_grad"] == []
    assert "image = image.masked_fill(image < 0.2, 0.)" in run.diagnosis.fixes[0].diff
