from __future__ import annotations

import pytest

from inplace_magic.search import COSTS, cost

from ...cells import run_cells
from ..trying import clean, fix_by, proposals, rewritten, rules

RULE = "no_grad"


def edited(cell: str, write: str, **about: str) -> str:
    about = {"family": "leaf"} | about
    found = proposals(RULE, "import torch", cell, write=write, **about)  # type: ignore[arg-type]
    return found[0].texts[2] if found else clean(cell)


@pytest.mark.parametrize(
    ("cell", "write", "family"),
    [
        pytest.param("w -= w.grad", "w -= w.grad", "modified", id="a tensor that is no leaf"),
        pytest.param(
            "class N:\n  def forward(self, x):\n    x.sub_(1)\n    return x\n", "x.sub_(1)", "leaf", id="the input of a module"
        ),
        pytest.param(
            "class N:\n  def f(self, d):\n    q = self.rot\n    q /= q.norm()\n    return q @ d\n", "q /= q.norm()", "leaf",
            id="an attribute under a name of its own that the function goes on with",
        ),
        pytest.param(
            "def f(x):\n  x[0] = 0\n  return x.sum()\n", "x[0] = 0", "leaf", id="an argument that the function goes on with"
        ),
        pytest.param(
            "def f(m):\n  q = m.rot\n  q /= q.norm()\n  return q.sum()\n", "q /= q.norm()", "leaf", id="a value with a name of the function's own"
        ),
        pytest.param(
            "def f(m):\n  q = m.rot\n  q.select(0, 1).add_(1)\n  r = q.narrow(0, 1, 2)\n  r.add_(1)\n  return r.sum()\n", "q.select(0, 1).add_(1)", "leaf",
            id="a value of which a look is read on",
        ),
        pytest.param(
            "def f(q):\n  q[0] = torch.sin(a)\n  value = train(q)\n", "q[0] = torch.sin(a)", "leaf",
            id="an argument that a call goes on with, be its result read or not",
        ),
        pytest.param("a, b = y.chunk(2)\na.fill_(1)", "a.fill_(1)", "multi_output_view", id="one of several views of a value"),
        pytest.param("if a: n += 1; w -= w.grad", "w -= w.grad", "leaf", id="a line that the head of a branch begins"),
        pytest.param("for a in b: w -= w.grad; print(w)", "w -= w.grad", "leaf", id="a line that the head of a loop begins"),
    ],
)  # fmt: skip
def test_leaves_alone(cell: str, write: str, family: str) -> None:
    assert edited(cell, write, family=family) == clean(cell)


@pytest.mark.parametrize(
    ("cell", "write", "expected"),
    [
        pytest.param(
            "loss.backward()\nw -= lr * w.grad   # step\nb -= lr * b.grad\nw.grad = None\nprint(w)\n",
            "w -= lr * w.grad",
            "loss.backward()\nwith torch.no_grad():\n    w -= lr * w.grad   # step\n    b -= lr * b.grad\n    w.grad = None\nprint(w)\n",
            id="neighbours that update go along, a print does not",
        ),
        pytest.param(
            "def f(m):\n    q = m.bias\n    q.select(0, 1).add_(1)\n    r = q.narrow(0, 1, 2)\n    r += 1\n    q[0] = 2\n    return m\n",
            "q.select(0, 1).add_(1)",
            "def f(m):\n    q = m.bias\n    with torch.no_grad():\n        q.select(0, 1).add_(1)\n        r = q.narrow(0, 1, 2)\n        r += 1\n        q[0] = 2\n    return m\n",
            id="a look that is then only written goes along",
        ),
        pytest.param(
            "tail = w[4:]\nw -= 0.1 * w.grad\ntail.clamp_(-1, 1)\nw.grad = None\n",
            "w -= 0.1 * w.grad",
            "tail = w[4:]\nwith torch.no_grad():\n    w -= 0.1 * w.grad\n    tail.clamp_(-1, 1)\n    w.grad = None\n",
            id="a look with a name that others may read stays outside, what is written by it goes along",
        ),
        pytest.param(
            "def f(w):\n    show = lambda: tail.sum()\n    tail = w[4:]\n    w.sub_(w.grad)\n    tail.clamp_(-1, 1)\n    return show\n",
            "w.sub_(w.grad)",
            "def f(w):\n    show = lambda: tail.sum()\n    tail = w[4:]\n    with torch.no_grad():\n        w.sub_(w.grad)\n        tail.clamp_(-1, 1)\n    return show\n",
            id="so does one that a function reads",
        ),
        pytest.param(
            "total += loss\nnet.get_parameter('w').sub_(1)\nh.add_(1)\n",
            "net.get_parameter('w').sub_(1)",
            "total += loss\nwith torch.no_grad():\n    net.get_parameter('w').sub_(1)\nh.add_(1)\n",
            id="what has no name takes no neighbour along",
        ),
        pytest.param(
            'w.set_text("""a\n  b""")',
            'w.set_text("""a\n  b""")',
            'with torch.no_grad():\n    w.set_text("""a\n  b""")',
            id="a text on several lines stays as it is",
        ),
        pytest.param(
            "n = 1\nif n:\n  w.copy_(v)\nprint(w)\n",
            "w.copy_(v)",
            "n = 1\nif n:\n  with torch.no_grad():\n    w.copy_(v)\nprint(w)\n",
            id="a branch of its own stays around the block",
        ),
        pytest.param(
            "if n:\n  w.copy_(v)\nif m:\n  w.zero_()\nprint(w)\n",
            "w.copy_(v)",
            "with torch.no_grad():\n  if n:\n    w.copy_(v)\n  if m:\n    w.zero_()\nprint(w)\n",
            id="branches that update one after the other go into one block",
        ),
        pytest.param(
            "def limit(q):\n  q[0].clamp_(0, 1)\n  q[1].clamp_(0, 2)\n  return q\n",
            "q[0].clamp_(0, 1)",
            "def limit(q):\n  with torch.no_grad():\n    q[0].clamp_(0, 1)\n    q[1].clamp_(0, 2)\n  return q\n",
            id="a helper that does nothing but limit its argument",
        ),
        pytest.param(
            "def table(q):\n  q[0] = torch.sin(t)\n  q.requires_grad = False\n  q = q.to(device)\n",
            "q[0] = torch.sin(t)",
            "def table(q):\n  with torch.no_grad():\n    q[0] = torch.sin(t)\n  q.requires_grad = False\n  q = q.to(device)\n",
            id="a helper that ends with a name that nobody reads",
        ),
        pytest.param(
            "def update(ps, v):\n  for k in ps:\n    v[k] = 0.9 * v[k] + ps[k].grad\n    ps[k] -= v[k]\n    ps[k].grad.zero_()\n  return ps, v\n",
            "ps[k] -= v[k]",
            "def update(ps, v):\n  with torch.no_grad():\n    for k in ps:\n      v[k] = 0.9 * v[k] + ps[k].grad\n      ps[k] -= v[k]\n      ps[k].grad.zero_()\n  return ps, v\n",
            id="momentum in a dict, by a helper that gives both dicts back",
        ),
        pytest.param(
            "def limit(m):\n  w = m.weight\n  w.clamp_(0, 1)\n",
            "w.clamp_(0, 1)",
            "def limit(m):\n  w = m.weight\n  with torch.no_grad():\n    w.clamp_(0, 1)\n",
            id="a parameter with a name of the function's own that is only limited",
        ),
        pytest.param(
            "if a:\n    pass\nelif b:\n    w.fill_(0)\n",
            "w.fill_(0)",
            "if a:\n    pass\nelif b:\n    with torch.no_grad():\n        w.fill_(0)\n",
            id="all that an elif does",
        ),
        pytest.param(
            "for n, p in net.named_parameters():\n  if n in masks:\n    p -= masks[n] * p.grad\n",
            "p -= masks[n] * p.grad",
            "with torch.no_grad():\n  for n, p in net.named_parameters():\n    if n in masks:\n      p -= masks[n] * p.grad\n",
            id="a loop that only updates, indented by two",
        ),
        pytest.param(
            "for n, p in net.named_parameters():\n    size = len(p)\n    if 'w' in n: p.normal_()\n    else: p.zero_(); p[0].fill_(1)\n",
            "p.normal_()",
            "for n, p in net.named_parameters():\n    size = len(p)\n    with torch.no_grad():\n        if 'w' in n: p.normal_()\n        else: p.zero_(); p[0].fill_(1)\n",
            id="branches on the lines of their heads, each of which updates",
        ),
        pytest.param(
            "if a: w.fill_(0)\nprint(w)\n",
            "w.fill_(0)",
            "with torch.no_grad():\n    if a: w.fill_(0)\nprint(w)\n",
            id="an update on the line of its head",
        ),
        pytest.param(
            "for x in data:\n    loss = f(x)\n    for p in ps:\n        p.add_(p.grad, alpha=-lr)\n",
            "p.add_(p.grad, alpha=-lr)",
            "for x in data:\n    loss = f(x)\n    with torch.no_grad():\n        for p in ps:\n            p.add_(p.grad, alpha=-lr)\n",
            id="the inner loop and not the training loop",
        ),
        pytest.param(
            "w.copy_(\n    torch.eye(3)\n)\n", "w.copy_(\n    torch.eye(3)\n)",
            "with torch.no_grad():\n    w.copy_(\n        torch.eye(3)\n    )\n", id="a statement on several lines",
        ),
        pytest.param(
            "w -= w.grad\nw.grad.zero_(); b.grad.zero_()\n", "w -= w.grad",
            "with torch.no_grad():\n    w -= w.grad\n    w.grad.zero_(); b.grad.zero_()\n", id="two updates on a line",
        ),
        pytest.param(
            "if on:\n    a = 1; w -= w.grad; print(w)\nb = 2\n", "w -= w.grad",
            "if on:\n    a = 1\n    with torch.no_grad():\n        w -= w.grad\n    print(w)\nb = 2\n", id="a line that holds something else",
        ),
    ],
)  # fmt: skip
def test_wraps(cell: str, write: str, expected: str) -> None:
    assert edited(cell, write) == expected


@pytest.mark.parametrize(
    ("cell", "write", "first"),
    [
        pytest.param("d += a * d.grad.sign()", "d += a * d.grad.sign()", True, id="an update by the gradient"),
        pytest.param(
            "d.clamp_(-1, 1)\nprint(d.grad)", "d.clamp_(-1, 1)", True, id="a name whose gradient is asked for"
        ),
        pytest.param("lin.weight[0] = 0", "lin.weight[0]", True, id="a parameter of a module"),
        pytest.param("a += 1\nb = a * 2", "a += 1", False, id="a step of a computation"),
        pytest.param(
            "out = images\nout += 0.1\nprint(images.grad)", "out += 0.1", False, id="data under a second name"
        ),
    ],
)
def test_comes_before_a_new_tensor(cell: str, write: str, first: bool) -> None:
    found = proposals(RULE, "import torch as th", cell, write=write, family="leaf")
    assert (cost(found[0]) < COSTS["out_of_place: statement"]) is first
    assert found[0].title.startswith("with th.no_grad():")


def test_what_may_be_a_step_of_a_computation_is_compared_with_one() -> None:
    found = [proposals(RULE, cell, write=cell, family="leaf")[0] for cell in ("a += 1", "a -= 0.1 * a.grad")]
    assert [(p.reading, p.lossless) for p in found] == [("tracked", False), ("update", False)]


def test_what_an_optimizer_steps_is_updated() -> None:
    start = """
        import torch
        torch.manual_seed(0)

        def fit(image, target):
            opt = torch.optim.SGD([image], lr=0.5)
            for _ in range(2):
                image.clamp_(0, 1)
                opt.zero_grad()
                (image - target).pow(2).sum().backward()
                opt.step()
        """
    run = run_cells(start, "image = torch.randn(4, requires_grad=True)\nfit(image, torch.rand(4))")
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert (fix.rule, fix.gradients, fix.changes) == ("no_grad", "same", ())


def test_a_lambda_that_updates_is_called_without_grad_mode() -> None:
    start = "import torch\nw = torch.ones(3, requires_grad=True)\nstep = lambda t: t.sub_(0.1 * t.grad)"
    run = run_cells(start, "w.pow(2).sum().backward()\nstep(w)")
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.cells == {2: "w.pow(2).sum().backward()\nwith torch.no_grad():\n    step(w)"}
    assert fix.gradients == "same"


def test_what_the_recorder_saw_to_be_a_parameter_is_updated() -> None:
    cell = "for w in weights:\n    w.mul_(2)"
    found = [proposals(RULE, cell, write="w.mul_(2)", family="leaf", parameter=known)[0] for known in (True, False)]  # type: ignore[arg-type]
    assert [proposal.form for proposal in found] == ["no_grad: update", "no_grad: value"]


def test_is_proved() -> None:
    cell = """
        for _ in range(3):
            loss = (w * w).sum()
            loss.backward()
            w -= 0.1 * w.grad
            w.clamp_(0, 0.5)
            w.grad.zero_()
        """
    fix = fix_by(RULE, "import torch\nw = torch.ones(3, requires_grad=True)", cell)
    expected = """
        for _ in range(3):
            loss = (w * w).sum()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
                w.clamp_(0, 0.5)
                w.grad.zero_()
        """
    assert fix.cells == {2: clean(expected).rstrip()}
    assert fix.gradients == "same"


def test_a_parameter_that_a_constructor_sets_is_an_update() -> None:
    cell = """
        class Head(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = torch.nn.Conv2d(2, 6, 1)
                for layer in [self.conv]:
                    b = layer.bias.view(3, -1)
                    b[:, 1] += 0.5
        head = Head()
        """
    fix = fix_by(RULE, "import torch", cell)
    changes = ("            b[:, 1] += 0.5", "            with torch.no_grad():\n                b[:, 1] += 0.5")
    assert fix.cells == {2: rewritten(cell, changes)}


def test_a_view_of_a_parameter_that_was_made_without_grad_mode_is_updated_without_it() -> None:
    made = "import torch\nlin = torch.nn.Linear(4, 4)\nwith torch.no_grad():\n    rows = lin.weight.view(2, 2, 4)"
    cell = "rows[0] *= 0.0\nlin(torch.ones(1, 4)).sum().backward()"
    fix = fix_by(RULE, made, cell)
    assert fix.cells == {2: rewritten(cell, ("rows[0]", "with torch.no_grad():\n    rows[0]"))}


def test_several_refused_updates_go_under_one_block() -> None:
    start = "import torch\nlin = torch.nn.Linear(2, 2)"
    cell = "x = torch.ones(3, 2)\nlin.weight.copy_(torch.eye(2))\nlin.bias.copy_(x.mean(0))\nlin(x).sum().backward()"
    fix = fix_by(RULE, start, cell)
    both = "with torch.no_grad():\n    lin.weight.copy_(torch.eye(2))\n    lin.bias.copy_(x.mean(0))"
    assert fix.cells == {2: cell.replace("lin.weight.copy_(torch.eye(2))\nlin.bias.copy_(x.mean(0))", both)}


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        pytest.param("first, second = lin.bias.chunk(2)\nsecond.fill_(1.0)\n", "second.fill_(1.0)\n", id="a part of a bias"),
        pytest.param("first, second = lin.bias.chunk(2)\nfirst.fill_(1.0)\nsecond += 1\n", "first.fill_(1.0)\nsecond += 1\n", id="two parts"),
        pytest.param("for row in lin.weight:\n    row /= row.norm()\n", "for row in lin.weight:\n    row /= row.norm()\n", id="each row of a weight"),
        pytest.param("for row, v in zip(lin.weight, torch.eye(4)):\n    row.copy_(v)\n", "for row, v in zip(lin.weight, torch.eye(4)):\n    row.copy_(v)\n", id="rows beside their values"),
    ],
)  # fmt: skip
def test_several_views_of_a_parameter_are_written_as_it_is(cell: str, written: str) -> None:
    start, rest = "import torch\nlin = torch.nn.Linear(4, 4)", "lin(torch.ones(1, 4)).sum().backward()"
    found = run_cells(start, cell + rest).diagnosis
    assert found is not None and found.family == "multi_output_view"
    lines = "".join(f"    {line}\n" for line in written.splitlines())
    fix = found.fixes[0]
    assert fix.cells == {2: (cell + rest).replace(written, f"with torch.no_grad():\n{lines}")}
    assert fix.gradients == "same"


def test_a_part_of_a_parameter_that_a_forward_goes_on_with_is_a_value() -> None:
    cell = """
        class Attend(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = torch.nn.Parameter(torch.rand(4, 6))
            def forward(self, x):
                query, key = self.w.chunk(2, 1)
                query *= 0.5
                return (x @ query) * (x @ key)
        """
    found = run_cells("import torch", clean(cell) + "Attend()(torch.ones(2, 4)).sum().backward()").diagnosis
    assert found is not None and found.fixes[0].diff.count("+        query = query * 0.5\n") == 1


@pytest.mark.parametrize(
    ("write", "proposed"),
    [
        pytest.param("acts[:, p].zero_()", False, id="a constant is no step"),
        pytest.param("acts[:, p] = 0", False, id="set to one"),
        pytest.param("acts[:, p].add_(step)", True, id="what may come from a gradient"),
    ],
)
def test_a_part_of_what_a_function_gives_back_is_data_where_gradients_are_asked_for(write: str, proposed: bool) -> None:
    helper = f"""
        import torch
        step = torch.ones(4)
        def ablate(acts, ps):
            for p in ps:
                {write}
            return acts
        """
    cell = "acts = torch.ones(4, 3, requires_grad=True)\nout = ablate(acts, [1]).exp()\nprint(torch.autograd.grad(out.sum(), acts))"
    found = run_cells(clean(helper), cell).diagnosis
    assert found is not None and found.family == "view_of_leaf"
    assert any(fix.rule == RULE for fix in found.fixes) == proposed


@pytest.mark.parametrize(
    ("call", "update"),
    [
        pytest.param("w = snapped(w)\n    loss = f(w)", True, id="the leaf's own name is bound to what comes back"),
        pytest.param("loss = f(w)", False, id="only what was handed on gets it back"),
    ],
)
def test_what_a_helper_rounds_and_gives_back_is_a_value_unless_the_leaf_is_called_so(call: str, update: bool) -> None:
    helper = """
        import torch
        def snapped(m):
            m = m.float()
            m[m.abs() < 1e-5] = 0.
            return m
        def f(r):
            r = RESULT
            return (r * r.sum()).sum()
        """
    cell = f"w = torch.eye(3).requires_grad_()\nopt = torch.optim.SGD([w], lr=0.1)\nfor _ in range(2):\n    {call}\n    opt.zero_grad(); loss.backward(); opt.step()"
    text = clean(helper).replace("RESULT", "r * 1" if update else "snapped(r)")
    found = run_cells(text, cell).diagnosis
    assert found is not None and found.family == "leaf"
    assert (found.fixes[0].rule == RULE) is update


def test_a_view_of_a_value_is_no_update() -> None:
    cell = "with torch.no_grad():\n    part = h.view(-1)\npart += g(x)\nprint(h)"
    found = proposals(RULE, "import torch", cell, write="part += g(x)", family="no_grad_view")
    assert [p.form for p in found] == ["no_grad: value"]


def test_an_inner_step_that_is_part_of_the_graph_is_cut() -> None:
    cell = """
        def adapt(w):
            g, = torch.autograd.grad((w * w).sum(), w, create_graph=True)
            w -= 0.1 * g
            return (w * w).sum()
        adapt(w).backward()
        """
    run = run_cells("import torch\nw = torch.ones(3, requires_grad=True)", cell)
    assert run.diagnosis is not None
    assert all(fix.gradients != "same" for fix in run.diagnosis.fixes if fix.rule == RULE)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param("", "import torch\nfor", id="at the top"),
        pytest.param("from __future__ import annotations\n", "annotations\nimport torch\nfor", id="behind the future"),
    ],
)
def test_torch_is_imported_where_no_name_stands_for_it(head: str, expected: str) -> None:
    cell = f"{head}for _ in range(2):\n    (w ** 2).sum().backward()\n    w -= 0.1 * w.grad\n    w.grad = None\n"
    run = run_cells("from torch import tensor\nw = tensor([1., 2.], requires_grad=True)", cell)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert expected in fix.cells[2]
    assert run.cell("%autograd_fix --run").error is None


def test_what_is_called_torch_and_is_not_stays_what_it_is() -> None:
    run = run_cells(
        "from torch import tensor\ntorch = 1\nw = tensor([1., 2.], requires_grad=True)", "w -= 0.1\nprint(torch)\n"
    )
    assert run.diagnosis is not None
    assert "no_grad" not in [fix.rule for fix in run.diagnosis.fixes]


NETS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    one, other, x = nn.Linear(3, 3), nn.Linear(3, 3), torch.randn(4, 3)
    opt = torch.optim.SGD({stepped}, lr=0.1)
    """
WRITES = """
    for _ in range(3):
        for p, q in zip(one.parameters(), other.parameters()):
            p.mul_(0.5).add_(q, alpha=0.5)
        loss = {loss}
        opt.zero_grad(); loss.backward(); opt.step()
    """


def test_an_average_of_weights_is_an_update_for_the_optimizer_learns_without_it() -> None:
    cells = NETS.format(stepped="other.parameters()"), WRITES.format(loss="(one(x).detach() - other(x)).pow(2).mean()")
    fix = fix_by(RULE, *cells)
    assert (fix.gradients, fix.changes, fix.untrained) == ("same", (), ())


def test_no_update_is_made_of_the_value_by_which_alone_an_optimizer_learns() -> None:
    cells = NETS.format(stepped="other.parameters()"), WRITES.format(loss="one(x).pow(2).mean()")
    assert RULE not in rules(*cells)


def test_it_is_said_which_leaves_learn_by_the_value_alone() -> None:
    cells = NETS.format(stepped="[*one.parameters(), *other.parameters()]"), WRITES.format(loss="one(x).pow(2).mean()")
    fix = fix_by(RULE, *cells)
    assert (fix.gradients, fix.untrained) == ("truncated", ("other.bias", "other.weight"))


SAMPLER = """
    import torch
    def sample(energy, x, steps=3):
        x.requires_grad_()
        for _ in range(steps):
            x.add_(0.1 * torch.randn_like(x))
            energy(x).sum().backward()
            x.add_(x.grad, alpha=-0.5)
            x.grad.zero_()
            x.clamp_(0, 1)
        return x.detach()
    """


def test_noise_on_what_is_moved_along_its_gradient_is_an_update_as_well() -> None:
    fix = fix_by(RULE, SAMPLER, "torch.manual_seed(0)\nx = sample(torch.exp, torch.rand(3))")
    assert fix.cells[1].count("with torch.no_grad():") == 2
    assert fix.gradients == "same" and not fix.changes


def test_what_is_given_as_the_out_of_a_call_is_updated_where_it_is_a_leaf() -> None:
    made = "w = torch.ones(3, requires_grad=True)\nloss = (w * 2).sum()\nloss.backward()"
    fix = fix_by(RULE, "import torch", made, "torch.add(w, w.grad, alpha=-0.1, out=w)\nprint(w)")
    assert fix.cells == {3: "with torch.no_grad():\n    torch.add(w, w.grad, alpha=-0.1, out=w)\nprint(w)"}
    assert fix.gradients == "same"


def test_a_helper_that_writes_into_what_an_optimizer_steps_under_another_name_is_an_update() -> None:
    helper = """
        def frame(img):
            img[0, :2] = 0.5
            img[0, -2:] = 0.5
        """
    cell = """
        canvas = torch.rand(1, 6, 6, requires_grad=True)
        opt = torch.optim.Adam([canvas], lr=0.1)
        for _ in range(2):
            opt.zero_grad()
            canvas.square().mean().backward()
            opt.step()
            frame(canvas)
        """
    fix = fix_by(RULE, "import torch", helper, cell)
    written = "    img[0, :2] = 0.5\n    img[0, -2:] = 0.5"
    inside = "    with torch.no_grad():\n        img[0, :2] = 0.5\n        img[0, -2:] = 0.5"
    assert fix.cells == {2: rewritten(helper, (written, inside))}
    assert fix.gradients == "same"


def test_what_an_optimizer_of_a_function_steps_is_updated_though_no_name_of_the_session_leads_to_it() -> None:
    cell = """
        import torch
        def plan(goal):
            at = torch.zeros(3).requires_grad_(True)
            opt = torch.optim.Adam([at], lr=0.3)
            for _ in range(3):
                loss = (at - goal).pow(2).sum()
                opt.zero_grad()
                loss.backward()
                opt.step()
                at.clamp_(-0.5, 0.5)
            best = at.detach()
            return best + 1
        found = plan(torch.ones(3))
        """
    assert rules(cell) == [RULE]


def test_what_carries_a_graph_is_no_update_of_what_an_optimizer_of_a_function_steps() -> None:
    cell = """
        import torch
        def fit():
            scale, w = torch.ones(1, requires_grad=True), torch.ones(4, requires_grad=True)
            opt = torch.optim.SGD([w, scale], lr=0.1)
            (w * scale).sum().backward()
            opt.step()
            for _ in range(3):
                w *= scale
                loss = (w ** 2).sum()
                opt.zero_grad()
                loss.backward()
                opt.step()
            return scale.item()
        found = fit()
        """
    assert RULE not in rules(cell)


STEP = """
    import torch
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, dict(lr=lr))
        def step(self{argument}):
            {first}
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])
    w = torch.ones(3, requires_grad=True)
    opt = Plain([w], 0.1)
    """


@pytest.mark.parametrize(
    ("argument", "first", "decorated"),
    [
        pytest.param("", "pass", True, id="an optimizer's step"),
        pytest.param(", closure", "closure()", False, id="not where a closure needs gradients"),
    ],
)
def test_the_step_of_an_optimizer_has_no_history(argument: str, first: str, decorated: bool) -> None:
    text = clean(STEP.format(argument=argument, first=first))
    call = "opt.step(lambda: w.exp().sum().backward())" if argument else "w.exp().sum().backward()\nopt.step()"
    fix = fix_by("no_grad", text, call)
    assert fix.gradients == "same"
    assert (f"    @torch.no_grad()\n    def step(self{argument})" in fix.cells[1]) is decorated


@pytest.mark.parametrize(
    ("name", "argument", "call", "proposed"),
    [
        pytest.param("normalised", "weight", "w = normalised(self.w)", False, id="a value of its own"),
        pytest.param("normalised", "given", "w = normalised(self.w)", False, id="so by another name of its argument"),
        pytest.param("normalise_", "weight", "w = normalise_(self.w)", True, id="named as torch names what writes in place"),
        pytest.param("normalised", "weight", "normalised(self.w); w = self.w", True, id="written for what it writes into"),
        pytest.param("normalised", "given", "normalised(self.w); w = self.w", True, id="so by another name"),
        pytest.param("normalised", "weight", "w = self.w; w = normalised(w)", True, id="under the same name"),
    ],
)  # fmt: skip
def test_a_parameter_that_a_function_gives_back_for_another_name_is_no_update(
    name: str, argument: str, call: str, proposed: bool
) -> None:
    alias = "" if argument == "weight" else f"weight = {argument}; "
    define = f"""
        import torch
        def {name}({argument}):
            {alias}weight[:, 1:] = torch.nn.functional.normalize(weight[:, 1:], dim=1)
            return weight
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = torch.nn.Parameter(torch.rand(4, 6))
            def forward(self, x):
                {call}
                return x @ w
        net = Net()
        """
    found = run_cells(define, "net(torch.ones(2, 4)).exp().sum().backward()").diagnosis
    assert found is not None and any(fix.rule == RULE for fix in found.fixes) == proposed


@pytest.mark.parametrize(
    "one",
    [
        pytest.param("def one():\n    unit = normalised(w)\n    unit.exp().sum().backward()\n", id="a function"),
        pytest.param(
            "if True:\n    def one():\n        unit = normalised(w)\n        unit.exp().sum().backward()\n",
            id="in a branch",
        ),
        pytest.param("one = lambda: normalised(w).exp().sum().backward()\n", id="a lambda"),
    ],
)
def test_a_backward_in_a_function_that_is_only_defined_ahead_does_not_make_it_an_update(one: str) -> None:
    define = """
        import torch
        w = torch.nn.Parameter(torch.rand(4, 6))
        def normalised(weight):
            weight[:, 1:] = torch.nn.functional.normalize(weight[:, 1:], dim=1)
            return weight
        """
    found = run_cells(define, f"{one}for _ in range(2): one()").diagnosis
    assert found is not None and found.fixes and RULE not in {fix.rule for fix in found.fixes}


@pytest.mark.parametrize(
    ("write", "call"),
    [
        pytest.param("w -= 0.1 * g\n            return w", "update(w, g)", id="its value is left"),
        pytest.param("w -= 0.1 * g\n            return w", "new = update(w, g)", id="under another name"),
        pytest.param("return w.sub_(0.1 * g)", "news = [update(one, g) for one in (w,)]", id="in a comprehension"),
    ],
)
def test_a_leaf_that_a_function_updates_behind_the_backward_and_gives_back_is_updated(write: str, call: str) -> None:
    define = f"""
        import torch
        torch.manual_seed(0)
        w, x = torch.randn(3, requires_grad=True), torch.randn(10, 3)
        def update(w, g):
            {write}
        """
    cell = f"for _ in range(3):\n    g, = torch.autograd.grad((x @ w - 1).square().mean(), w)\n    {call}"
    found = run_cells(define, cell).diagnosis
    assert found is not None and [(fix.rule, fix.gradients) for fix in found.fixes] == [(RULE, "same")]


WALK = """
    def walk(energy, x, steps=3):
        x.requires_grad_(True)
        for _ in range(steps):
            x.add_(0.1)
            grad, = torch.autograd.grad(energy(x), x)
            x.sub_(0.1 * grad)
            x.clamp_(0, 1)
        return x
    """


def test_what_a_sampler_asks_the_gradient_of_is_updated_outside_of_the_graph() -> None:
    fix = fix_by(RULE, "import torch\nstart = torch.rand(4)", WALK, "x = walk(lambda x: x.pow(3).sum(), start)")
    changes = [
        ("        x.add_(0.1)", "        with torch.no_grad():\n            x.add_(0.1)"),
        ("        x.sub_(0.1 * grad)\n        x.clamp_(0, 1)", "        with torch.no_grad():\n            x.sub_(0.1 * grad)\n            x.clamp_(0, 1)"),
    ]  # fmt: skip
    assert fix.cells == {2: rewritten(WALK, *changes)} and fix.gradients == "same"


def test_what_an_in_place_call_gives_to_another_name_is_no_update() -> None:
    cell = """
        net = nn.Linear(3, 3)
        def forward(x):
            w = nn.functional.dropout(net.weight, 0.5, inplace=True)
            return (x @ w).tanh() @ w
        forward(torch.ones(2, 3)).sum().backward()
        """
    run = run_cells("import torch\nfrom torch import nn", cell)
    assert run.diagnosis is not None and "nn.functional.dropout(net.weight, 0.5)" in run.diagnosis.fixes[0].diff
    assert RULE not in [fix.rule for fix in run.diagnosis.fixes]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("x -= rate * grad", id="at the top of a cell"),
        pytest.param("x += 0.1 * grad + drift(torch.ones(4))", id="with a module"),
    ],
)
def test_what_a_step_that_is_learned_is_computed_from_keeps_its_gradient(step: str) -> None:
    """Where no loss stands in the cell, nothing that was run tells what no_grad would take."""
    setup = "import torch\nrate = torch.tensor(0.1, requires_grad=True)\ndrift = torch.nn.Linear(4, 4)\nx = torch.rand(4, requires_grad=True)"
    assert RULE not in rules(setup, f"grad, = torch.autograd.grad(x.pow(3).sum(), x)\n{step}")


def test_a_projection_that_shows_a_number_is_an_update() -> None:
    cell = """
        class Rates(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.rand(4) + 1)
            def project(self):
                w = self.w
                w[w < 0] = 0
                return w.sum().item()
        rates = Rates()
        opt = torch.optim.SGD(rates.parameters(), lr=0.1)
        """
    loop = (
        "for _ in range(2):\n    opt.zero_grad(); rates.w.pow(2).sum().backward(); opt.step(); print(rates.project())"
    )
    run = run_cells("import torch\nfrom torch import nn\ntorch.manual_seed(0)", cell, loop)
    assert run.diagnosis is not None and run.diagnosis.fixes[0].rule == RULE
