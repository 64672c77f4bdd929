from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, proposals, rewritten, titles


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param("x = torch.zeros(3)\nx[0] += 1", "x[0] += 1", id="a part of a tensor is still written in place"),
        pytest.param("x[1:3] = 0", "x[1:3]", id="a slice is no mask"),
        pytest.param("for i in range(3):\n    x[i] = 0", "x[i]", id="what a loop counts is no mask"),
        pytest.param("mask = 2\nx[mask] = 0", "x[mask]", id="a number is no mask, whatever it is called"),
        pytest.param("x[i + 1] = 0", "x[i + 1]", id="a sum is no mask"),
        pytest.param(
            "nn.init.zeros_(w)", "nn.init.zeros_(w)", id="nn.init has no functions that leave its argument alone"
        ),
        pytest.param("w.uniform_(-1, 1)", "w.uniform_(-1, 1)", id="random numbers between bounds have no short form"),
        pytest.param("x[0].mul_(2)", "x[0].mul_(2)", id="the result of a slice would go nowhere"),
        pytest.param("normalize_(x)", "normalize_(x)", id="a function of the user's own that ends in an underscore"),
        pytest.param("F.relu(x, inplace=False)", "F.relu(x, inplace=False)", id="a flag that is off"),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    assert titles("out_of_place", cell, write=write) == []


@pytest.mark.parametrize(
    ("cell", "write", "title"),
    [
        pytest.param("w /= n + eps", "w /= n + eps", "w = w / (n + eps)", id="a sum on the right gets parentheses"),
        pytest.param("p += v * dt", "p += v * dt", "p = p + v * dt", id="a product in a sum needs none"),
        pytest.param("p -= a - b", "p -= a - b", "p = p - (a - b)", id="a difference is not associative"),
        pytest.param("p *= a if b else c", "p *= a if b else c", "p = p * (a if b else c)", id="a conditional"),
        pytest.param("p **= 2", "p **= 2", "p = p ** 2", id="a power"),
        pytest.param("p @= m.t()", "p @= m.t()", "p = p @ m.t()", id="a matrix product"),
        pytest.param("self.s += y", "self.s += y", "self.s = self.s + y", id="an attribute"),
        pytest.param('d["h"] += y', 'd["h"] += y', 'd["h"] = d["h"] + y', id="an item of a dict"),
        pytest.param("x.t_()", "x.t_()", "x = x.t()", id="a method that changes the shape alone"),
        pytest.param("x.copy_(y)", "x.copy_(y)", "x = y.clone()", id="copy_"),
        pytest.param("x.fill_(0.5)", "x.fill_(0.5)", "x = torch.full_like(x, 0.5)", id="fill_"),
        pytest.param("x.mul_(2).add_(1)", "x.mul_(2)", "x = x.mul(2).add(1)", id="a chain from its first link"),
        pytest.param("z = x.add_(y).sigmoid().mul_(2)", "x.add_(y).sigmoid().mul_(2)", "x.add_(y).sigmoid().mul(2)", id="a chain as far as the tensor goes"),
        pytest.param("y = f(x.exp_())", "x.exp_()", "x.exp()", id="a value inside of an expression"),
        pytest.param("F.dropout(h, p, True, True)", "F.dropout(h, p, True, True)", "h = F.dropout(h, p, True)", id="a flag by position"),
        pytest.param("h = F.elu(h, inplace=True, alpha=2)", "F.elu(h, inplace=True, alpha=2)", "F.elu(h, alpha=2)", id="a flag before other arguments"),
        pytest.param("torch.normal(m, s + 1, out=z)", "torch.normal(m, s + 1, out=z)", "z = m + (s + 1) * torch.randn_like(z)",
                     id="a sample whose mean is to be learned"),
        pytest.param("torch.normal(mean=m, std=s, out=z)", "torch.normal(mean=m, std=s, out=z)", "z = m + s * torch.randn_like(z)",
                     id="by keyword"),
        pytest.param("torch.normal(m, s, out=z, generator=g)", "torch.normal(m, s, out=z, generator=g)",
                     "z = torch.normal(m, s, generator=g)", id="a stream of its own"),
        pytest.param("y = 2 * torch.normal(m, s, out=z)", "torch.normal(m, s, out=z)", "(m + s * torch.randn_like(z))",
                     id="within an expression"),
        pytest.param("torch.normal(0., 1., (3,), out=z)", "torch.normal(0., 1., (3,), out=z)", "z = torch.normal(0., 1., (3,))",
                     id="of a size"),
        pytest.param("torch.add(a, b, out=c)", "torch.add(a, b, out=c)", "c = torch.add(a, b)", id="out="),
        pytest.param("p[p < 0] = 0", "p[p < 0]", "p = p.masked_fill(p < 0, 0)", id="a comparison as a mask"),
        pytest.param("def f(x, keep):\n    x[keep] = 0", "x[keep]", "x = x.masked_fill(keep, 0)", id="what a function is handed may be a mask"),
        pytest.param("pad = padding(x)\nx[pad] = 0", "x[pad]", "x = x.masked_fill(pad, 0)", id="what a call gives may be a mask"),
        pytest.param("bad = x.isnan()\np[bad] = q[bad]", "p[bad]", "p = torch.where(bad, q, p)", id="a mask on both sides"),
        pytest.param("for w, g in zip(ws, gs):\n    w -= a * g", "w -= a * g", "ws = [w - a * g for w, g in zip(ws, gs)]", id="one list of two"),
        pytest.param("hs = [h[i].squeeze_(0) for i in ns]", "h[i].squeeze_(0)", "h[i].squeeze(0)", id="an item, in a comprehension"),
        pytest.param("for w in ws:\n    w.data -= a", "w.data -= a", "ws = [w - a for w in ws]", id="no look past the graph"),
        pytest.param("for t in ts:\n    t.mul_(2)", "t.mul_(2)", "ts = [t.mul(2) for t in ts]", id="a loop that does nothing else"),
    ],
)  # fmt: skip
def test_writes_a_new_tensor(cell: str, write: str, title: str) -> None:
    assert titles("out_of_place", cell, write=write)[0] == title


@pytest.mark.parametrize(
    ("line", "held", "expected"),
    [
        pytest.param("o[k] += y", "o", [], id="a part of a tensor"),
        pytest.param("o[k].clamp_(0)", "o", [], id="a part of a tensor, by a method"),
        pytest.param("o[k][j] += y", "o[0]", [], id="a part of an item"),
        pytest.param('o["h"][j] += y', "p", [], id="a part of an item that has a text for a name"),
        pytest.param("o[k] += y", "o[0]", ["o[k] = o[k] + y"], id="an item of a list"),
        pytest.param("o[k][j] += y", "o['a'][2]", ["o[k][j] = o[k][j] + y"], id="an item of a list in a dict"),
        pytest.param("o[-1].clamp_(0)", "o[2]", ["o[-1] = o[-1].clamp(0)"], id="an item, by a method"),
        pytest.param('o["h"].mul_(2).add_(y)', "p", ['o["h"] = o["h"].mul(2).add(y)'], id="no tensor has texts for indices"),
        pytest.param("self.o[k] += y", "self.o['h']", ["self.o[k] = self.o[k] + y"], id="an item of an attribute"),
        pytest.param("o[k][m < 0] = 0", "o[0]", ["o[k] = o[k].masked_fill(m < 0, 0)"], id="a mask over an item"),
    ],
)  # fmt: skip
def test_an_item_of_a_container_gets_a_new_tensor(line: str, held: str, expected: list[str]) -> None:
    for function in "def f(self, o, p, k, y):\n    {}\n", "def f(self, os, k, y):\n    for o in os:\n        {}\n":
        cell, write = function.format(line), line.partition(" = ")[0]
        found = proposals("out_of_place", cell, write=write.partition(".add_")[0], held=(held,))
        in_place_of_it = [p for p in found if p.form == "out_of_place: statement"]
        assert [p.title for p in in_place_of_it] == expected and not any(p.lossless for p in in_place_of_it)


def test_a_tuple_that_a_function_was_handed_is_made_no_list_of_its_own_unless_that_changes_nothing() -> None:
    kept, given_back = "def f(o, y):\n    o[0] += y\n", "def f(o, y):\n    o[0] += y\n    return o\n"
    found = [proposals("out_of_place", cell, write="o[0] += y", held=("o[0]",)) for cell in (kept, given_back)]
    lists = [next(p for p in some if p.form == "out_of_place: container") for some in found]
    assert [p.lossless for p in lists] == [True, False]


def test_a_view_whose_whole_is_bound_anew_was_not_meant_for_it() -> None:
    halves = "a, b = z[:, :2], z[:, 2:]\nb += f(a)\n"
    kept, anew = (
        proposals("out_of_place", halves + end, write="b += f(a)") for end in ("print(z)", "z = g(a, b)\nprint(z)")
    )
    assert [p.lossless for p in kept] == [True]
    assert [p.lossless for p in anew] == [False]


def test_an_item_of_a_dict_is_no_view_of_it() -> None:
    cell = "loss = out['loss']\nloss *= n\nprint(loss, out)"
    assert [p.lossless for p in proposals("out_of_place", cell, write="loss *= n")] == [False]


def test_an_item_of_a_list_that_a_call_gave_gets_a_new_tensor() -> None:
    start = "import torch\nlin = torch.nn.Linear(3, 3)\ndef parts():\n    return [lin(torch.ones(2, 3)).exp() for _ in range(2)]"
    cell = "outs = parts()\nfor i in range(2):\n    outs[i] /= outs[i].norm()\nsum(o.sum() for o in outs).backward()"
    fix = fix_by("out_of_place", start, cell)
    assert fix.cells == {2: cell.replace("outs[i] /= outs[i].norm()", "outs[i] = outs[i] / outs[i].norm()")}


SPLIT = """
    import torch
    lin = torch.nn.Linear(2, 4)
    def shift(parts, by):
        for name in parts:
            parts[name] += by
        return parts
    """


def test_an_item_of_a_dict_that_was_handed_to_a_function_gets_a_new_tensor() -> None:
    cell = """
        left, right = lin(torch.ones(3, 2)).chunk(2, -1)
        parts = shift({"left": left, "right": right}, 1.0)
        (parts["left"] * parts["right"]).sum().backward()
        """
    assert fix_by("out_of_place", SPLIT, cell).title == "parts[name] = parts[name] + by"


START = """
    import torch
    w = torch.ones(3, requires_grad=True)
    """


@pytest.mark.parametrize(
    ("cell", "expected", "gradients"),
    [
        pytest.param(
            """
            p = torch.exp(w)
            p /= (p.sum()   # every line of it
                  + 1)
            p.sum().backward()
            """,
            """
            p = torch.exp(w)
            p = p / (p.sum()   # every line of it
                  + 1)
            p.sum().backward()
            """,
            "same",
            id="comments and line breaks stay",
        ),
        pytest.param(
            """
            a = w.exp(); a += 1
            b = a.sigmoid()
            b *= 2
            b.sum().backward()
            """,
            """
            a = w.exp(); a = a + 1
            b = a.sigmoid()
            b = b * 2
            b.sum().backward()
            """,
            "same",
            id="two writes are one fix",
        ),
        pytest.param(
            """
            t = torch.exp(w)
            with torch.no_grad():
                t += 1e-3   # keep away from zero
            t.sum().backward()
            """,
            """
            t = torch.exp(w)
            t = t + 1e-3   # keep away from zero
            t.sum().backward()
            """,
            "same",
            id="hidden from the graph by no_grad",
        ),
    ],
)
def test_is_proved(cell: str, expected: str, gradients: str) -> None:
    fix = fix_by("out_of_place", START, cell)
    assert fix.cells == {2: clean(expected).rstrip()}
    assert fix.gradients == gradients


WEIGHTS = """
    import torch
    torch.manual_seed(0)
    x = torch.randn(4, 2)
    w = {"a": torch.randn(2, 3, requires_grad=True), "b": torch.ones(3, requires_grad=True)}
    def loss_of(w):
        return ((x @ w["a"]).tanh() * w["b"]).pow(2).mean()
    """
ITEMS = """
    fast = {k: p * 1 for k, p in w.items()}
    for _ in range(2):
        grads = torch.autograd.grad(loss_of(fast), fast.values(), create_graph=True)
        for (k, p), g in zip(fast.items(), grads):
            p -= 0.1 * g
    loss_of(fast).backward()
    """
KEYS = """
    fast = dict(w)
    grads = torch.autograd.grad(loss_of(fast), fast.values(), create_graph=True)
    for k, g in zip(fast, grads):
        fast[k] -= 0.1 * g
    loss_of(fast).backward()
    """


def test_what_no_grad_hid_in_a_loop_is_seen_by_the_graph() -> None:
    cell = """
        loss = 0
        for _ in range(2):
            fast = list(theta)
            grads = torch.autograd.grad((fast[0] * fast[1]).exp().sum(), fast, create_graph=True)
            with torch.no_grad():
                for i in range(len(fast)):
                    fast[i] -= 0.1 * grads[i]
            loss = loss + (fast[0] * fast[1]).sum()
        loss.backward()
        opt.step()
        """
    start = """
        import torch
        theta = [torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)]
        opt = torch.optim.SGD(theta, lr=0.1)
        """
    run = run_cells(start, cell)
    assert run.diagnosis is not None
    hidden = "with torch.no_grad():\n        for i in range(len(fast)):\n            fast[i] -= 0.1 * grads[i]"
    seen = "for i in range(len(fast)):\n        fast[i] = fast[i] - 0.1 * grads[i]"
    found = [fix.cells[2].rstrip() for fix in run.diagnosis.fixes if fix.rule == "out_of_place"]
    assert found == [rewritten(cell, (hidden, seen))]


def test_a_dict_whose_items_a_loop_writes_is_made_anew() -> None:
    run = run_cells(WEIGHTS, ITEMS)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    made = "    fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), grads)}"
    assert fix.cells[2].splitlines()[3] == made
    assert (fix.gradients, fix.changes, fix.untrained) == ("same", (), ())


def test_an_item_of_a_dict_of_leaves_is_replaced() -> None:
    run = run_cells(WEIGHTS, KEYS)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.title == "fast[k] = fast[k] - 0.1 * g"
    again = run_cells(WEIGHTS, fix.cells[2])
    assert again.error is None
    assert all(p.grad is not None for p in again.shell.user_ns["w"].values()), "the weights keep their meta-gradient"


def test_a_tuple_whose_items_a_loop_writes_is_made_a_list() -> None:
    cache = """
        class Cache:
            def __init__(self):
                self.state = None
            def update(self, *state):
                if self.state is None:
                    self.state = state
                else:
                    for i, s in enumerate(state):
                        self.state[i].copy_(s)
        """
    cell = """
        cache, w, loss = Cache(), torch.ones(2, 3, requires_grad=True), 0
        for x in torch.randn(3, 2, 3):
            h = x * w
            if cache.state is not None:
                h = h + h * cache.state[0]
            cache.update(h, x)
            loss = loss + h.exp().mean()
        loss.backward()
        """
    run = run_cells("import torch\ntorch.manual_seed(0)", cache, cell)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    loop = "for i, s in enumerate(state):\n                self.state[i]"
    made = f"self.state = list(self.state)\n            {loop} = s.clone()"
    assert fix.cells == {2: rewritten(cache, (f"{loop}.copy_(s)", made))}
    assert fix.gradients == "same"


def test_a_tuple_of_which_a_loop_writes_a_part_keeps_the_rest() -> None:
    cell = """
        rows = (w.exp(), w.tanh(), w.sigmoid())
        for i, new in enumerate(torch.ones(2, 3), 1):
            rows[i].copy_(new)
        sum(row.sum() for row in rows).backward()
        """
    fix = fix_by("out_of_place", "import torch\nw = torch.ones(3, requires_grad=True)", cell)
    assert "rows = list(rows)\nfor i, new" in fix.cells[2]
    assert fix.gradients == "same"


def test_what_is_added_to_a_leaf_learns_by_way_of_a_custom_function_as_well() -> None:
    setup = """
        import torch
        from torch.utils.checkpoint import checkpoint
        w, shift = torch.ones(3, requires_grad=True), torch.zeros((), requires_grad=True)
        """
    function = """
        def loss():
            hidden = torch.arange(3.).requires_grad_()
            hidden += shift
            return checkpoint(lambda h: (h * w).exp().sum(), hidden, use_reentrant=True)
        """
    run = run_cells(setup, function, "loss().backward()")
    assert run.diagnosis is not None
    assert [(f.title, f.gradients) for f in run.diagnosis.fixes[:1]] == [("hidden = hidden + shift", "same")]
    assert all(f.rule != "no_grad" or f.gradients != "same" for f in run.diagnosis.fixes)


STATE = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    class Amp(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out, self.h = nn.Linear(5, 4), nn.Linear(4, 1), torch.zeros(2, 4)
        def forward(self, xs):
            ys = []
            for x in xs:
                self.h = torch.tanh(self.cell(torch.cat([x, self.h], 1)))
                ys.append(self.out(self.h))
            self.h.detach_()
            return torch.stack(ys)
    amp = Amp()
    opt = torch.optim.SGD(amp.parameters(), lr=0.1)
    """
CHUNKS = """
    for xs in torch.randn(3, 4, 2, 1):
        loss = amp(xs).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_a_state_that_is_detached_in_place_ahead_of_its_backward_is_detached_out_of_place() -> None:
    run = run_cells(STATE, CHUNKS)
    assert run.diagnosis is not None
    (clash, *_), (fix, *_) = run.diagnosis.conflicts, run.diagnosis.fixes
    assert clash.changed is not None and clash.changed.text == "self.h.detach_()"
    assert (fix.rule, fix.gradients) == ("out_of_place", "same")
    assert fix.cells == {1: clean(STATE).rstrip().replace("self.h.detach_()", "self.h = self.h.detach()")}


def test_a_watched_cell_fails_at_it_as_it_does_alone() -> None:
    alone, watched = run_cells(STATE, CHUNKS), run_cells(STATE, f"%%autograd_check\n{clean(CHUNKS)}")
    assert str(watched.error) == str(alone.error)
    assert watched.diagnosis is not None and watched.diagnosis.fixes[0].rule == "out_of_place"


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(
            "for row in x.unbind():\n    part = row.narrow(0, 0, 2)", id="an item of what the loop goes through"
        ),
        pytest.param(
            "for i in range(3):\n    row = x.unbind()[i]\n    part = row.narrow(0, 0, 2)", id="a name bound in it"
        ),
    ],
)
def test_a_view_of_what_each_iteration_has_anew_is_written_for_nobody_else(loop: str) -> None:
    start = "import torch\nw = torch.ones(3, 3, requires_grad=True)\nx, kept = w * 2, []"
    cell = f"{loop}\n    part.mul_(2)\n    kept.append(part)\ntorch.cat(kept).sum().backward()"
    fix = fix_by("out_of_place", start, cell)
    assert fix.cells == {2: cell.replace("part.mul_(2)", "part = part.mul(2)")}


def test_what_a_function_was_handed_stays_where_it_gives_back_what_it_wrote() -> None:
    start = "import torch\ntorch.manual_seed(0)\nw, pos = (torch.randn(3, 3, requires_grad=True) for _ in range(2))"
    helper = "def embed(tokens, pos):\n    return tokens.add_(pos)"
    cell = "tokens = torch.randn(4, 3, 3) @ w\ntotal = sum((embed(tokens, pos) @ w).pow(2).mean() for _ in range(2))\ntotal.backward()"
    run = run_cells(start, helper, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.cells, first.gradients) == ({2: helper.replace("add_", "add")}, "different")


@pytest.mark.parametrize(
    ("cell", "write", "line"),
    [
        pytest.param("def parts(x):\n    for part in x.split(1):\n        yield part.squeeze_(0)", "part.squeeze_(0)", "part.squeeze(0)", id="what a generator gives out"),
        pytest.param("for k, v in zip(ks, vs):\n    if k:\n        v.div_(2)\n    out[k] = v.view(3)", "v.div_(2)", "v = v.div(2)", id="what a branch writes and its loop reads on"),
    ],
)  # fmt: skip
def test_an_item_of_a_loop_whose_value_goes_on_is_a_new_tensor(cell: str, write: str, line: str) -> None:
    assert line in titles("out_of_place", cell, write=write, family="multi_output_view")


def test_one_item_after_the_other_is_no_view_of_its_list() -> None:
    cell = "hs = torch.unbind(x)\nfor k in range(3):\n    h = hs[k]\n    h.squeeze_(0)\n    out[k] = h"
    write: dict[str, object] = {"write": "h.squeeze_(0)", "family": "multi_output_view", "held": ("h", "hs[1]")}
    plain, both = proposals("out_of_place", cell, **write), cell + "\n    y = hs[0] + 1"  # type: ignore[arg-type]
    assert [one.form for one in plain] == ["out_of_place: statement"]
    assert [one.form for one in proposals("out_of_place", both, **write)] == ["out_of_place: meant for more"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cell", "write", "expected"),
    [
        pytest.param("for w, head in zip(ws, heads):\n    d = head(x)\n    w += d\n", "w += d",
                     "for i, (w, head) in enumerate(zip(ws, heads)):\n    d = head(x)\n    ws[i] = w + d\n", id="of a list"),
        pytest.param("for k, w in ws.items():\n    d = f(k)\n    w.mul_(d)\n", "w.mul_(d)",
                     "for k, w in ws.items():\n    d = f(k)\n    ws[k] = w.mul(d)\n", id="of a dict"),
        pytest.param("for n, w in enumerate(ws):\n    d = f(n)\n    w.copy_(d)\n", "w.copy_(d)",
                     "for n, w in enumerate(ws):\n    d = f(n)\n    ws[n] = d.clone()\n", id="that is counted already"),
    ],
)  # fmt: skip
def test_a_loop_that_does_more_puts_each_new_item_in_its_place(cell: str, write: str, expected: str) -> None:
    (fix,) = proposals("out_of_place", cell, write=write, family="no_grad_view")
    assert fix.form == "out_of_place: container" and list(fix.texts.values()) == [expected]


def test_no_other_tensor_takes_the_place_of_a_leaf_that_is_updated() -> None:
    cell = "for p in params:\n    p.sub_(lr * p.grad)\n    p.grad = None"
    assert titles("out_of_place", cell, write="p.sub_(lr * p.grad)", of_leaf=True) == []
    assert (
        titles("out_of_place", "for g in gs:\n    g.div_(p.grad.norm())\n    f(g)", write="g.div_(p.grad.norm())") != []
    )
    assert titles("out_of_place", cell.replace("p.grad)", "g)"), write="p.sub_(lr * g)", of_leaf=True) == [
        "params[i] = p.sub(lr * g)"
    ]


def test_what_a_loop_goes_through_without_a_name_has_no_place_to_put_an_item() -> None:
    assert titles("out_of_place", "for w in f(x):\n    d = 1\n    w += d", write="w += d", family="no_grad_view") == []
