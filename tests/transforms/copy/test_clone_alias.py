from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, fixes, proposals, rewritten, rules, titles

RULE = "clone_alias"


@pytest.mark.parametrize(
    ("cell", "write", "family"),
    [
        pytest.param("r = x.detach().clone()\nr += 1", "r += 1", "modified", id="it is a copy already"),
        pytest.param("r = x.exp()\nr += 1", "r += 1", "modified", id="a new tensor"),
        pytest.param("r = x.expand(3, 4).contiguous()\nr += 1", "r += 1", "overlap", id="memory of its own"),
        pytest.param("x[1:] += x[:-1] * 2", "x[1:]", "overlap", id="what is computed has memory of its own"),
        pytest.param("a = x[1:]\nb = y[:-1]\na += b", "a += b", "overlap", id="views of two"),
        pytest.param("x[0] = turn(y[1])", "x[0]", "overlap", id="what a function gives of another"),
        pytest.param(
            "self.s[0] = b.expand(3).clone()\nm = self.s[0]\nm += 1",
            "m += 1",
            "overlap",
            id="a copy that an object keeps",
        ),
    ],
)
def test_proposes_nothing(cell: str, write: str, family: str) -> None:
    assert titles(RULE, cell, write=write, family=family) == []


@pytest.mark.parametrize(
    ("cell", "write", "family", "title"),
    [
        pytest.param("r = x.detach()\nr += 1", "r += 1", "modified", "x.detach().clone()", id="detach"),
        pytest.param("r = x.data[0]\nr += 1", "r += 1", "modified", "x.data[0].clone()", id=".data"),
        pytest.param(
            "r = x.detach().cpu().numpy()\nr[0] = 1", "r[0]", "modified", "x.detach().cpu().numpy().copy()", id="numpy"
        ),
        pytest.param(
            "r = torch.from_numpy(a)\nr += 1", "r += 1", "modified", "torch.from_numpy(a).clone()", id="from_numpy"
        ),
        pytest.param("r = b.expand_as(x)\nr[0] = 1", "r[0]", "overlap", "b.expand_as(x).clone()", id="expand_as"),
        pytest.param(
            "r = b.expand_as(x)\nfor t in (x, r):\n    t[0] = 1",
            "t[0]",
            "overlap",
            "b.expand_as(x).clone()",
            id="one of those that a loop goes through",
        ),
        pytest.param(
            "self.register_buffer('m', b.expand(3, 4))\nself.m.mul_(2)",
            "self.m.mul_(2)",
            "overlap",
            "b.expand(3, 4).clone()",
            id="a buffer that is registered so",
        ),
        pytest.param(
            "for name in names:\n    self.register_buffer(name, b.expand(3, 4))\nm = getattr(self, names[0])\nm.mul_(2)",
            "m.mul_(2)",
            "overlap",
            "b.expand(3, 4).clone()",
            id="buffers that a loop registers",
        ),
        pytest.param("x[1:] += x[:-1]", "x[1:]", "overlap", "x[1:] += x[:-1].clone()", id="a stretch of itself"),
        pytest.param(
            "x[1:].copy_(x[:-1])",
            "x[1:].copy_(x[:-1])",
            "overlap",
            "x[1:].copy_(x[:-1].clone())",
            id="copied within itself",
        ),
        pytest.param(
            "x[0] = turn(x[1])", "x[0]", "overlap", "x[0] = turn(x[1]).clone()", id="what a function gives of itself"
        ),
        pytest.param("live[live] = y > 0", "live[live]", "overlap", "live[live.clone()] = y > 0", id="its own mask"),
        pytest.param("a = x[1:]\nb = x[:-1]\na += b", "a += b", "overlap", "a += b.clone()", id="two views of one"),
    ],
)
def test_parts_the_two(cell: str, write: str, family: str, title: str) -> None:
    assert titles(RULE, cell, write=write, family=family) == [title]


@pytest.mark.parametrize(
    ("cell", "expected", "changes"),
    [
        pytest.param(
            "y = (w ** 2).sum()\nr = w.detach(); r.zero_()\ny.backward()\n",
            "y = (w ** 2).sum()\nr = w.detach().clone(); r.zero_()\ny.backward()\n",
            ("w has other values afterwards",),
            id="a detached alias is cleared",
        ),
        pytest.param(
            "rows = (w * 2).expand(4, 3)\nrows += 1\nrows.sum().backward()\n",
            "rows = (w * 2).expand(4, 3).clone()\nrows += 1\nrows.sum().backward()\n",
            (),
            id="an expanded tensor is written",
        ),
    ],
)
def test_is_proved(cell: str, expected: str, changes: tuple[str, ...]) -> None:
    fix = fix_by(RULE, "import torch\nw = torch.ones(3, requires_grad=True)", cell)
    assert fix.cells == {2: expected.rstrip()}
    assert fix.changes == changes
    assert fix.gradients == ("different" if changes else "same")
    assert clean(cell) != expected


KEPT = """
    class Poses(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("poses", torch.ones(2, 3))
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, i):
            pose = self.poses[i]
            pose *= self.scale
            return pose.exp()
    model = Poses()
    """
ITERATIONS = """
    for i in [0, 0, 1]:
        model.zero_grad()
        model(i).sum().backward()
    """


def test_what_is_copied_to_be_a_leaf_stays_one() -> None:
    cell = "r = x.detach().requires_grad_(True)\nr.mul_(2)"
    found = proposals(RULE, cell, write="r.mul_(2)")
    assert [p.texts[1] for p in found] == [cell.replace("detach()", "detach().clone()")]


def test_a_view_that_is_only_read_is_left_alone() -> None:
    read = KEPT.replace(
        "pose *= self.scale", "pose = pose * self.scale; self.poses = torch.cat([self.poses[:1], pose[None]])"
    )
    assert RULE not in rules("import torch", read, ITERATIONS)


def test_memory_that_is_shared_where_an_object_keeps_it_is_copied_there() -> None:
    kept = """
        import torch
        class Scale:
            def __init__(self, sizes):
                self.state = {}
                for n in sizes:
                    self.state[n] = {"m": torch.ones(1).expand(n), "n": n}
            def step(self, g):
                m = self.state[len(g)]["m"]
                m.mul_(0.9).add_(g)
                return m
        """
    fix = fix_by("clone_alias", kept, "scale = Scale([3])", "print(scale.step(torch.arange(3.0)))")
    assert fix.cells == {1: rewritten(kept, (".expand(n)", ".expand(n).clone()"))}
    assert fix.gradients == "same"


STEPS = """
    for step in range(3):
        optimizer.zero_grad()
        (x @ {} - 1).pow(2).mean().backward()
        optimizer.step()
    """
PROMPT = """
    class Prompt(torch.nn.Module):
        def __init__(self):
            super().__init__()
            init = torch.rand(4, 1)
            init = init.expand(4, 3)
            self.tokens = torch.nn.Parameter(init)
    net = Prompt()
    optimizer = torch.optim.Adam(net.parameters())
    """


MASKS = """
    class Masks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.masks = torch.nn.Parameter(self.start(4, "flat"))
        @staticmethod
        def start(n, kind):
            if kind == "flat":
                found = torch.ones(1, 3).expand(n, 3)
            else:
                found = torch.rand(n, 3)
            return found
    net = Masks()
    optimizer = torch.optim.Adam(net.parameters())
    """


def test_a_parameter_with_memory_of_its_own_is_left_alone() -> None:
    cell = "w = nn.Parameter(b.expand(4, 3).clone())\nopt.step()"
    assert titles(RULE, cell, write="opt.step()", family="overlap", origin="optim", name="w") == []


@pytest.mark.parametrize(
    ("cells", "stepped", "changed", "spread"),
    [
        pytest.param(
            ("w = torch.nn.Parameter(torch.zeros(1).expand(4, 3))\noptimizer = torch.optim.SGD([w], 0.1)",), "w",
            2, "expand(4, 3)", id="where the parameter is made",
        ),
        pytest.param(
            ("start = torch.zeros(4, 1).expand(-1, 3)", "w = torch.nn.Parameter(start)\noptimizer = torch.optim.SGD([w], 0.1)"), "w",
            2, "expand(-1, 3)", id="in an earlier cell",
        ),
        pytest.param((PROMPT,), "net.tokens", 2, "expand(4, 3)", id="under another name in a constructor"),
        pytest.param((MASKS,), "net.masks", 2, "expand(n, 3)", id="in a branch of a method that makes it"),
    ],
)  # fmt: skip
def test_what_an_optimizer_steps_gets_memory_of_its_own(
    cells: tuple[str, ...], stepped: str, changed: int, spread: str
) -> None:
    fix = fix_by(RULE, "import torch\ntorch.manual_seed(0)\nx = torch.rand(5, 4)", *cells, STEPS.format(stepped))
    assert fix.cells == {changed: rewritten(cells[0], (spread, f"{spread}.clone()"))}
    assert (fix.gradients, fix.changes) == ("same", ())


PICTURE = """
    import torch
    torch.manual_seed(0)
    image = torch.rand(3, 4, requires_grad=True)
    opt = torch.optim.SGD([image], lr=0.1)
    shown = []
    """


@pytest.mark.parametrize(
    ("define", "show", "copied"),
    [
        pytest.param(
            "def save(tensor):\n    grid = tensor.mul_(255).round()\n    shown.append(grid.mean().item())\n",
            "save(image.cpu().detach())",
            "image.cpu().detach()",
            id="what is handed to a function",
        ),
        pytest.param(
            "def save(tensor):\n    shown.append(tensor.mul_(255).mean().item())\n",
            "img = image.detach()\n    save(img)",
            "img = image.detach()",
            id="a name that is handed to a function",
        ),
        pytest.param(
            "def grid(tensor):\n    return tensor.mul_(255).round()\n",
            "shown.append(grid(image.detach()).mean().item())",
            "image.detach()",
            id="what a function gives back, read by its caller",
        ),
    ],
)
def test_a_picture_of_what_is_trained_is_made_of_a_copy(define: str, show: str, copied: str) -> None:
    cell = f"for step in range(2):\n    loss = image.pow(2).sum()\n    {show}\n    opt.zero_grad()\n    loss.backward()\n    opt.step()"
    first, *others = fixes(PICTURE, define, cell)
    assert first.rule == "clone_alias"
    said = "keeps the result of the code as written, which is probably not what was meant: see fix 1"
    assert all(fix.changes == (said,) for fix in others if fix.gradients == "same")
    assert f"{copied}.clone()" in first.cells[max(first.cells)]
    assert f"{copied}.clone()" in first.title


@pytest.mark.parametrize(
    ("define", "update"),
    [
        pytest.param(
            "", "w = image.detach()\n    w.mul_(0.9)\n    print(w.norm())", id="it is read for a number alone"
        ),
        pytest.param("def limit(w):\n    w = w.clamp_(0, 0.5)\n", "limit(image.detach())", id="under its own name"),
        pytest.param(
            "def decay(w):\n    w.mul_(0.9)\n    return w\n",
            "decay(image.detach())",
            id="nobody reads what is returned",
        ),
    ],
)
def test_an_update_past_the_graph_is_no_picture(define: str, update: str) -> None:
    cell = f"for step in range(2):\n    loss = image.pow(2).sum()\n    {update}\n    opt.zero_grad()\n    loss.backward()\n    opt.step()"
    assert fixes(PICTURE, define, cell)[0].rule != "clone_alias"


def test_what_is_unpacked_is_found_in_the_function_that_spread_it() -> None:
    define = "def both(p):\n    return p.sum(1, keepdim=True).expand(3, 3), p.sum(0, keepdim=True).expand(3, 3)"
    cell = "rows, cols = both(torch.rand(3, 3, requires_grad=True) * 2)\nfor t in (rows, cols):\n    t[t < 1] = 1\n(rows * cols).sum().backward()"
    first = fixes("import torch\ntorch.manual_seed(0)", define, cell)[0]
    assert first.rule == "clone_alias"
    assert first.cells == {2: define.replace("expand(3, 3)", "expand(3, 3).clone()")}


def test_what_was_detached_under_a_name_is_not_meant_to_reach_the_graph() -> None:
    start = """
        import torch
        torch.manual_seed(0)
        w, x = torch.randn(3, 3, requires_grad=True), torch.randn(2, 3)
        """
    cell = """
        h = torch.tanh(x @ w)
        shown = h.detach()
        shown.clamp_(min=0)
        h.pow(2).mean().backward()
        """
    first, *others = fixes(start, cell)
    assert (first.rule, first.title, first.gradients) == ("clone_alias", "h.detach().clone()", "different")
    assert [fix.gradients for fix in others if fix.rule == "clone_at_save"] == ["same"]


def test_of_the_arrays_that_a_function_is_handed_only_the_one_that_it_writes_is_copied() -> None:
    kernel = """
        def kernel(out, scale):
            out *= scale
        x = torch.ones(3, requires_grad=True)
        scale = torch.full((3,), 2.0)
        """
    check = "y = x.exp(); kernel(y.detach().numpy(), scale.numpy()); y.sum().backward()"
    found = run_cells("import torch", kernel, f"%%autograd_check\n{check}").diagnosis
    assert found is not None
    texts = [text for fix in found.fixes for text in fix.cells.values()]
    assert any("y.detach().numpy().copy()" in text for text in texts)
    assert not any("scale.numpy().copy()" in text for text in texts)


def test_what_a_simulator_fills_anew_is_taken_over_as_a_copy() -> None:
    simulator = """
        import numpy as np, torch
        from torch import nn
        torch.manual_seed(0)
        class Pendulum:
            def __init__(self):
                self.state = np.array([0.3, 0.0], dtype=np.float32)
            def step(self, push):
                self.state[1] += push - np.sin(self.state[0])
                self.state[0] += 0.1 * self.state[1]
                return self.state
        env, policy = Pendulum(), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        """
    act = """
        def act(state):
            seen = torch.from_numpy(state).unsqueeze(0)
            return policy(seen).sum()
        """
    episode = """
        values, state = [], env.state
        for _ in range(4):
            values.append(act(state))
            state = env.step(0.5)
        torch.stack(values).mean().backward()
        """
    run = run_cells(simulator, act, "%%autograd_check\n" + clean(episode))
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.gradients == "same"
    assert first.cells == {2: rewritten(act, ("from_numpy(state)", "from_numpy(state).clone()"))}
