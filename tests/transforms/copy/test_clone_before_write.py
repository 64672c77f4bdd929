from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, proposals, rewritten, titles

RULE = "clone_before_write"


@pytest.mark.parametrize(
    ("cell", "write", "about"),
    [
        pytest.param("opt.step()", "opt.step()", {"origin": "optim"}, id="an optimizer wrote"),
        pytest.param(
            "for p in ps:\n    p.mul_(2)", "p.mul_(2)", {}, id="a copy of the loop's name would take the write with it"
        ),
        pytest.param("f(g(x))[0] = 1", "f(g(x))[0]", {}, id="what is written has no name"),
        pytest.param(
            "self.main(x)",
            "self.main(x)",
            {"origin": "nn", "module": "net.main[2]"},
            id="a module inside of the one that is called",
        ),
    ],
)
def test_proposes_nothing(cell: str, write: str, about: dict[str, str]) -> None:
    assert titles(RULE, cell, write=write, **about) == []


def edited(cell: str, write: str, **about: object) -> str:
    found = proposals(RULE, cell, write=write, **about)  # type: ignore[arg-type]
    return found[0].texts[1]


@pytest.mark.parametrize(
    ("cell", "write", "expected"),
    [
        pytest.param("a = f(v)\nv[:, 0] = 0  # hide\n", "v[:, 0]", "a = f(v)\nv = v.clone()\nv[:, 0] = 0  # hide\n", id="in front of a slice's write"),
        pytest.param("out = x\nout += y\n", "out += y", "out = x.clone()\nout += y\n", id="where a second name is given"),
        pytest.param("if on: v[0] = 1\n", "v[0]", "if on: v = v.clone(); v[0] = 1\n", id="on the line of an if"),
        pytest.param("self.h[i] = 0\n", "self.h[i]", "self.h = self.h.clone()\nself.h[i] = 0\n", id="an attribute"),
        pytest.param("y = Halve.apply(x)\n", "Halve.apply(x)", "y = Halve.apply(x.clone())\n", id="a Function that writes into its argument"),
        pytest.param("d = torch.diagonal(r)\nd += 1\ny = f(r)\n", "d += 1", "r = r.clone()\nd = torch.diagonal(r)\nd += 1\ny = f(r)\n", id="the whole that is read on, where a view of it is written"),
        pytest.param("a = x[:2]\nb = x[2:]\nb.mul_(2)\ny = f(x)\n", "b.mul_(2)", "x = x.clone()\na = x[:2]\nb = x[2:]\nb.mul_(2)\ny = f(x)\n", id="the whole, ahead of all that looks at it"),
        pytest.param("a = x[:2]\nx = g(x)\nb = x[2:]\nb.mul_(2)\ny = f(x)\n", "b.mul_(2)", "a = x[:2]\nx = g(x)\nx = x.clone()\nb = x[2:]\nb.mul_(2)\ny = f(x)\n", id="the whole that has the name by then"),
    ],
)  # fmt: skip
def test_copies_first(cell: str, write: str, expected: str) -> None:
    assert edited(cell, write) == expected


@pytest.mark.parametrize(
    ("line", "held", "copy"),
    [
        pytest.param("rows[i] += y", "rows[0]", "rows[i] = rows[i].clone()", id="an item of a list"),
        pytest.param("rows[i][0] = y", "rows[0]", "rows[i] = rows[i].clone()", id="a part of an item"),
        pytest.param("rows[i][0] = y", "rows['a'][2]", "rows[i][0] = rows[i][0].clone()", id="an item of an item"),
        pytest.param("rows[i][0] = y", "rows", "rows = rows.clone()", id="a part of a tensor"),
        pytest.param('rows["h"][0] = y', "p", 'rows["h"] = rows["h"].clone()', id="no tensor has texts for indices"),
    ],
)
def test_copies_the_tensor_and_not_the_container(line: str, held: str, copy: str) -> None:
    write = line if "+=" in line else line.partition(" = ")[0]
    cell = edited(f"s = rows.f()\nfor i in range(3):\n    rows = g(rows)\n    {line}\n", write, held=(held,))
    assert cell.splitlines()[3].strip() == copy


def test_copies_once_in_front_of_a_loop_that_saves_nothing() -> None:
    cell = "s = torch.sin(v)\nfor i in range(3):\n    v[i] = 0\n"
    assert edited(cell, "v[i]", save="torch.sin(v)").splitlines()[1] == "v = v.clone()"


@pytest.mark.parametrize(
    ("loop", "write", "line"),
    [
        pytest.param("for i in ids:\n    v[i].zero_()", "v[i].zero_()", 0, id="where nothing was saved"),
        pytest.param("for i in ids:\n    v[0][i] = 0", "v[0][i]", 0, id="of an item that stays the same one"),
        pytest.param("for i in ids:\n    v[i][0] = 0", "v[i][0]", 1, id="not of one that the loop picks"),
        pytest.param("for i in ids:\n    g(v).backward()\n    v[0] = 0", "v[0]", 2, id="not of a training"),
        pytest.param("for i in ids:\n    v = g(v)\n    v[0] = 0", "v[0]", 2, id="not of what the loop makes"),
    ],
)
def test_copies_in_front_of_the_loop(loop: str, write: str, line: int) -> None:
    held = ("v[0]",) if "][" in write else ()
    assert edited(loop + "\n", write, family="leaf", held=held).splitlines()[line].strip().endswith(".clone()")


def test_an_item_of_a_tuple_is_copied_into_another_tuple() -> None:
    cell = """
        out = torch.nn.LSTM(2, 2)(torch.ones(3, 1, 2))
        for j in range(2):
            out[0][:, :, j] = out[0][:, :, j].sigmoid() * 2
        out[0].sum().backward()
        """
    run = run_cells("import torch\ntorch.manual_seed(0)", clean(cell))
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.gradients == "same" and "\nout = (out[0].clone(), *out[1:])\nfor j in range(2):" in fix.cells[2]


@pytest.mark.parametrize(
    ("cell", "expected", "label"),
    [
        pytest.param(
            """
            images = torch.ones(2, 3, requires_grad=True)
            bright = images
            bright += 0.1
            bright.pow(2).sum().backward()
            """,
            """
            images = torch.ones(2, 3, requires_grad=True)
            bright = images.clone()
            bright += 0.1
            bright.pow(2).sum().backward()
            """,
            "different",
            id="data under a second name",
        ),
        pytest.param(
            """
            p = torch.softmax(torch.zeros(4, 4, requires_grad=True), -1)
            p[torch.arange(4), torch.arange(4)] = 0
            p.sum().backward()
            """,
            """
            p = torch.softmax(torch.zeros(4, 4, requires_grad=True), -1)
            p = p.clone()
            p[torch.arange(4), torch.arange(4)] = 0
            p.sum().backward()
            """,
            "same",
            id="an index of integers",
        ),
    ],
)
def test_is_proved(cell: str, expected: str, label: str) -> None:
    fix = fix_by(RULE, "import torch", cell)
    assert fix.cells == {2: clean(expected).rstrip()}
    assert fix.gradients == label and bool(fix.changes) == (label == "different")


def test_a_function_that_writes_into_a_parameter_is_given_a_copy_and_keeps_its_gradient() -> None:
    start = """
        import torch
        from torch import nn
        class Halve(torch.autograd.Function):
            @staticmethod
            def forward(ctx, w):
                ctx.mark_dirty(w)
                return w.mul_(0.5)
            @staticmethod
            def backward(ctx, g):
                return g * 0.5
        net = nn.Linear(3, 1)
        """
    loop = "w = Halve.apply(net.weight)\nloss = (torch.ones(2, 3) @ w.t()).sum()\nloss.backward()"
    run = run_cells(start, loop)
    assert run.diagnosis is not None
    assert ["Halve.apply(net.weight.clone())" in fix.cells[2] for fix in run.diagnosis.fixes[:1]] == [True]
    assert "no_grad" not in [fix.rule for fix in run.diagnosis.fixes]


def test_a_function_that_writes_into_what_it_is_handed_is_handed_a_copy_where_its_value_is_read_on() -> None:
    start = """
        import torch
        def squash_(rows):
            for i in range(len(rows)):
                rows[i] = rows[i].tanh()
        w = torch.ones(2, 3, requires_grad=True)
        """
    cell = "h = w.exp()\nsquash_(h)\nh.sum().backward()"
    fix = fix_by(RULE, start, cell)
    assert fix.cells == {2: "h = w.exp()\nh = h.clone()\nsquash_(h)\nh.sum().backward()"}
    assert fix.gradients == "same"


def test_a_leaf_that_is_to_require_grad_once_more_goes_on_as_a_new_one() -> None:
    start = """
        import torch
        weight = torch.randn(4, 2)
        def importance(mask):
            mask.requires_grad_()
            (mask @ weight).pow(2).sum().backward()
            return mask.grad.abs()
        """
    cell = """
        mask = torch.ones(3, 4)
        for _ in range(2):
            least = importance(mask).view(-1).argmin()
            mask = mask.view(-1)
            mask[least] = 0
            mask = mask.view(3, 4)
        """
    fix = fix_by(RULE, start, cell)
    line = "    mask = mask.detach().clone()\n    mask[least]"
    assert fix.cells == {2: clean(cell).rstrip().replace("    mask[least]", line)} and fix.gradients == "truncated"


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            "h = w.exp(); kept = [h]\nsquash_(h)\nkept[0].sum().backward()", id="which is read by another name"
        ),
        pytest.param(
            "kept = [w.exp(), w.sin()]\nfor h in kept: squash_(h)\nsum(kept).sum().backward()",
            id="which a loop calls so",
        ),
    ],
)
def test_a_helper_keeps_its_effect_on_what_it_is_handed(cell: str) -> None:
    start = """
        import torch
        def squash_(rows):
            for i in range(len(rows)):
                rows[i] = rows[i].tanh()
        w = torch.ones(2, 3, requires_grad=True)
        """
    run = run_cells(start, cell)
    assert run.diagnosis is not None
    assert not any("h = h.clone()" in fix.diff for fix in run.diagnosis.fixes)


def test_a_function_under_a_name_of_its_own_gets_a_copy_where_a_comprehension_gives_it_its_argument() -> None:
    made = """
        import torch
        class Clamp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                t.clamp_(0, 1)
                ctx.mark_dirty(t)
                return t
            @staticmethod
            def backward(ctx, g):
                return g
        clamp_, parts = Clamp.apply, {"a": torch.randn(3).requires_grad_()}
        """
    run = run_cells(
        made, "def bounded():\n    return {k: clamp_(v) for k, v in parts.items()}", "bounded()['a'].sum().backward()"
    )
    assert run.diagnosis is not None
    assert [fix.cells[2].splitlines()[-1] for fix in run.diagnosis.fixes[:1]] == [
        "    return {k: clamp_(v.clone()) for k, v in parts.items()}"
    ]


def test_of_a_tensor_whose_imaginary_part_a_function_sets_that_works_on_a_copy() -> None:
    start = """
        import torch
        w = torch.ones(3, requires_grad=True)
        def back(x):
            x[..., 0].imag = 0.0
            return torch.fft.irfft(x)
        """
    cell = "z = torch.fft.rfft(w) * 1j\npenalty = z.abs().sum()\n(back(z).square().sum() + penalty).backward()"
    fix = fix_by(RULE, start, cell)
    assert fix.verified and "+    x = x.clone()\n     x[..., 0].imag = 0.0" in fix.diff


@pytest.mark.parametrize(
    ("given_back", "own"),
    [("mat[..., 1:].prod(-1)", True), ("mat", False)],
    ids=["what is computed of it", "the tensor itself"],
)
def test_a_constant_that_a_function_sets_for_what_it_gives_back_is_no_change_for_its_caller(
    given_back: str, own: bool
) -> None:
    start = f"""
        import torch
        w = torch.ones(3, requires_grad=True)
        def without(mat, i):
            mat[..., i] = 1
            return {given_back}
        """
    cell = "m = (w * torch.arange(1.0, 4)).exp()\nloss = sum(without(m, i).sum() for i in (0, 1)) + m.sum()\nloss.backward()"
    run = run_cells(start, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert ("mat = mat.clone()" in first.diff and first.gradients == "different") is own


NORMALISED = """
    import torch
    torch.manual_seed(0)
    w = torch.rand(3, 4, requires_grad=True)
    def normalised(x):
        for i in range(len(x)):
            m, s = x[i].mean().detach(), x[i].std().detach()
            LINE
        return x
    """


@pytest.mark.parametrize(
    ("call", "own"),
    [("z = normalised(h)", True), ("z = 2 * normalised(h)", True), ("normalised(h); z = h * 2", False)],
    ids=["is given a name", "is computed with", "is dropped"],
)
@pytest.mark.parametrize("line", ["x[i] = (x[i] - m) / s", "x[i] -= m", "x[i].sub_(m).div_(s)", "x[x < m] = 0"])
def test_a_part_that_is_computed_of_itself_is_no_change_for_the_caller_where_what_is_given_back(
    call: str, own: bool, line: str
) -> None:
    cell = f"h = w * 2\nfit = h.pow(2).mean()\n{call}\nloss = fit + z[0].sum() + h.mean()\nloss.backward()"
    run = run_cells(NORMALISED.replace("LINE", line), cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert ("x = x." in first.diff and first.gradients == "different") is own


@pytest.mark.parametrize(
    ("call", "copied"),
    [
        pytest.param("scale_(parts[i], i)", True, id="by position"),
        pytest.param("scale_(factor=i, part=parts[i])", True, id="by name"),
        pytest.param("scale_(parts[0], i)\n    parts = parts[1:]", False, id="not where the loop goes on with others"),
    ],
)
def test_items_that_a_loop_hands_to_a_function_are_all_copied_ahead_of_it(call: str, copied: bool) -> None:
    start = """
        import torch
        def scale_(part, factor):
            part.mul_(factor)
        w = torch.ones(4, 3, requires_grad=True)
        """
    cell = f"parts = w.exp().chunk(4)\nfor i in range(2):\n    {call}\ntorch.cat(parts).sum().backward()"
    found = run_cells(start, cell).diagnosis
    assert found is not None
    ahead = "parts = [t.clone() for t in parts]\nfor i in range(2):"
    texts = [fix.cells.get(2, "") for fix in found.fixes if fix.gradients == "same"]
    assert any(ahead in text for text in texts) is copied


@pytest.mark.parametrize("silenced", [True, False], ids=["by a helper", "in the loop"])
@pytest.mark.parametrize("reads_on", [True, False], ids=["what they are pieces of is read on", "nothing else is read"])
def test_what_a_call_gives_pieces_of_is_copied_ahead_of_the_loop_that_writes_them_where(
    reads_on: bool, silenced: bool
) -> None:
    start = """
        import torch
        def pieces(acts, spans):
            for low, high in spans:
                yield acts[:, low:high]
        def silence(piece):
            piece.fill_(0.0)
        def without(acts, spans):
            for piece in pieces(acts, spans):
                WRITE
            GIVE
        prefix = torch.ones(2, 6, requires_grad=True)
        """
    start = start.replace("WRITE", "silence(piece)" if silenced else "piece.fill_(0.0)")
    start = clean(start.replace("GIVE", "return acts" if reads_on else "return piece"))
    run = run_cells(start, "out = without(prefix, [(0, 2), (3, 4)])\n(out * prefix.detach()).sum().backward()\n")
    assert run.diagnosis is not None
    copied = rewritten(start, ("    for piece in", "    acts = acts.clone()\n    for piece in"))
    assert (copied in [fix.cells.get(1) for fix in run.diagnosis.fixes]) == reads_on
