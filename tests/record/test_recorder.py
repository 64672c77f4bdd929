"""The recorder: that it changes nothing it must not, then who saved, who wrote, who needed, past every conflict."""

from __future__ import annotations

import textwrap
import weakref
from typing import Any

import pytest
import torch

from inplace_magic.gradients.backward import CLOSELY, GradientTrace
from inplace_magic.record.observed import LiveConflict
from inplace_magic.record.recorder import Recorder
from inplace_magic.source.document import CellSource
from inplace_magic.source.sources import Sources


def run(text: str, **options: Any) -> tuple[Recorder, dict[str, Any]]:
    """Runs a cell's text under the recorder, with gradients listened to as in a replay."""
    cell = CellSource(1, textwrap.dedent(text).strip("\n"))
    sources = Sources({1: cell}, {}, 1)
    recorder = Recorder(sources, **options)
    namespace: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
    torch.manual_seed(0)
    with GradientTrace(sources, around=recorder.around_backward).listening(), recorder:
        exec(compile(cell.raw, cell.replay_name, "exec"), namespace)
    return recorder, namespace


def plain(text: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
    torch.manual_seed(0)
    exec(textwrap.dedent(text), namespace)
    return namespace


def lines(recorder: Recorder, clash: LiveConflict) -> tuple[int | None, int | None, int | None]:
    def line(stack: Any) -> int | None:
        return recorder.sources.spot(*stack[0]).line if stack else None

    return (
        line(clash.write.stack) if clash.write else None,
        line(clash.saved.stack) if clash.saved else None,
        clash.need.stack[0].line if clash.need else None,
    )


HEALTHY = [
    pytest.param(
        "w = torch.ones(3, requires_grad=True)\nh = (w * 2).tanh()\nh.sum().backward()\nh.detach_()\n(h * w).sum().backward()",
        id="detached in place once its backward is over",
    ),
    pytest.param(
        "w = torch.ones(3, requires_grad=True)\nh = (w * 2).tanh()\nloss = (h + 1).sum()\nh.detach_()\nloss.backward()",
        id="a result that its own operation keeps, detached in place",
    ),
    pytest.param(
        "w = torch.ones(3, requires_grad=True)\nx = torch.ones(3)\ny = (w * x).sum()\nx.detach_()\ny.backward()",
        id="detached in place without a history",
    ),
    pytest.param("w = torch.ones(3, requires_grad=True)\nx = w * 2\nx += 1\nx.sum().backward()", id="a legal write"),
    pytest.param(
        "net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(inplace=True), torch.nn.BatchNorm1d(4))\n"
        "opt = torch.optim.Adam(net.parameters(), foreach=True)\n"
        "for _ in range(3):\n    opt.zero_grad(); net(torch.randn(5, 3)).pow(2).mean().backward(); opt.step()",
        id="a training loop",
    ),
    pytest.param(
        "lin = torch.nn.Linear(2, 2)\nfrom torch.utils.checkpoint import checkpoint\n"
        "checkpoint(lin, torch.randn(3, 2), use_reentrant=False).sum().backward()",
        id="checkpointing",
    ),
    pytest.param(
        "w = torch.ones(3, requires_grad=True)\ng, = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)\n"
        "g.pow(2).sum().backward()",
        id="a gradient of a gradient",
    ),
    pytest.param(
        "import collections\nPair = collections.namedtuple('Pair', 'w v')\n"
        "w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)\n"
        "g, h = torch.autograd.grad((w * v).exp().sum(), Pair(w, v), create_graph=True)\n"
        "torch.autograd.backward((g * h).sum(), inputs=Pair(w, v))",
        id="gradients of what a named tuple holds",
    ),
    pytest.param(
        "from torch.autograd.graph import get_gradient_edge\nw = torch.ones(3, requires_grad=True)\ny = w.exp()\n"
        "torch.autograd.grad(get_gradient_edge(y), [w, get_gradient_edge(y)], torch.ones(3), retain_graph=True)\n"
        "torch.autograd.backward((one for one in [y.sum()]), inputs={w: 1}.keys())",
        id="edges of the graph, a generator and a view of a dict",
    ),
    pytest.param(
        "w = torch.ones(3, requires_grad=True)\ny = w.exp()\ntorch.ops.aten.add_.Tensor(w * 2, w).sum().backward()",
        id="an overload of an operation",
    ),
    pytest.param(
        "class Net(torch.nn.Sequential):\n"
        "    def __init__(self):\n"
        "        w = torch.zeros(2, 3)\n"
        "        w[0] = torch.ones(3).mul_(2)\n"
        "        super().__init__(torch.nn.Linear(3, 2))\n"
        "        self[0].weight = torch.nn.Parameter(w)\n"
        "net = Net()\nnet(torch.ones(1, 3)).sum().backward()",
        id="a module whose constructor has not called torch's yet",
    ),
    pytest.param(
        "emb = torch.nn.Embedding(5, 3, max_norm=1.0)\nemb(torch.tensor([1, 2])).sum().backward()",
        id="an embedding with max_norm",
    ),
    pytest.param("lstm = torch.nn.LSTM(3, 4)\nout, _ = lstm(torch.randn(5, 2, 3))\nout.sum().backward()", id="an LSTM"),
]


def test_a_dict_of_leaves_gets_a_dict_of_gradients() -> None:
    text = "w = torch.ones(3, requires_grad=True)\ng = torch.autograd.grad((w ** 2).sum(), {'a': w})"
    try:
        plain(text)
    except RuntimeError:
        pytest.skip("this torch gives no dict of gradients")
    assert torch.equal(run(text)[1]["g"]["a"], torch.full((3,), 2.0))


def test_a_write_by_an_overload_of_an_operation_is_seen() -> None:
    recorder, _ = run(
        "y = torch.ones(3, requires_grad=True).exp()\ntorch.ops.aten.add_.Tensor(y, torch.ones(3))\ny.sum().backward()"
    )
    write = recorder.conflicts.found[0].write
    assert write is not None and write.operation == "add_"


@pytest.mark.parametrize("text", HEALTHY)
def test_a_healthy_run_is_left_as_it_is(text: str) -> None:
    recorder, watched = run(text)
    assert recorder.conflicts.found == []
    alone = plain(text)
    for name, value in alone.items():
        if isinstance(value, torch.nn.Module):
            for a, b in zip(value.parameters(), watched[name].parameters(), strict=True):
                assert torch.equal(a, b) and a._version == b._version
                assert (a.grad is None) == (b.grad is None) and (a.grad is None or torch.equal(a.grad, b.grad))
        elif isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad:
            assert torch.equal(value.grad, watched[name].grad)


def test_modes_hooks_and_patches_are_taken_off() -> None:
    before = (torch.autograd.backward, torch.autograd.grad, torch.autograd.function.FunctionCtx.save_for_backward)
    run("w = torch.ones(3, requires_grad=True); w.exp().sum().backward()")
    assert before == (
        torch.autograd.backward,
        torch.autograd.grad,
        torch.autograd.function.FunctionCtx.save_for_backward,
    )
    y = torch.ones(2, requires_grad=True).exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_nothing_is_kept_that_is_not_both_saved_and_written() -> None:
    recorder, namespace = run("w = torch.ones(3, requires_grad=True); y = w.exp(); z = y.sin(); loss = z.sum()")
    references = [weakref.ref(saved) for name in "wyz" for saved in recorder.saved.waiting(namespace[name])]
    assert references and all(saved.value is None for saved in map(lambda r: r(), references) if saved is not None)  # noqa: C417
    namespace.pop("loss").backward()
    namespace.clear()
    assert not [reference for reference in references if reference() is not None]


CONFLICTS = [
    pytest.param("w = torch.ones(3, requires_grad=True)\ny = w.exp()\ny += 1\ny.sum().backward()", [(3, 2, 4)], id="+="),
    pytest.param("w = torch.ones(3, requires_grad=True)\ny = w.exp()\ny[0] = 0\ny.sum().backward()", [(3, 2, 4)],
                 id="a subscript"),
    pytest.param("w = torch.ones(2, 3, requires_grad=True)\ny = w.exp()\nv = y.view(6)\nv[1:].mul_(2)\ny.sum().backward()",
                 [(4, 2, 5)], id="a view with an offset"),
    pytest.param("w = torch.ones(3, requires_grad=True)\ny = w.sigmoid()\ntorch.nn.functional.relu(y, inplace=True)\n"
                 "y.sum().backward()", [(3, 2, 4)], id="inplace=True"),
    pytest.param("w = torch.ones(3, requires_grad=True)\ny = w.exp()\nwith torch.no_grad():\n    torch.add(w, 1, out=y)\n"
                 "y.sum().backward()", [(4, 2, 5)], id="out="),
    pytest.param("w = torch.ones(3, requires_grad=True)\nz = torch.complex(w.exp(), w)\ny = z.abs()\nz[1:].imag = 0.5\n"
                 "y.sum().backward()", [(4, 3, 5)], id="an imaginary part"),
    pytest.param("w = torch.ones(3, requires_grad=True)\nz = torch.complex(w.exp(), w)\ny = z.abs()\nz.real = w.detach() * 2\n"
                 "y.sum().backward()", [(4, 3, 5)], id="a real part"),
    pytest.param("lin = torch.nn.Linear(2, 2)\nopt = torch.optim.SGD(lin.parameters(), 0.1, foreach=True)\n"
                 "x = torch.ones(1, 2, requires_grad=True)\na = lin(x).sum()\na.backward(retain_graph=True)\nopt.step()\n"
                 "a.backward()", [(6, 4, 7)], id="a foreach optimizer"),
    pytest.param("w = torch.ones(2, 3, requires_grad=True)\ndef f(t):\n    y = t.exp()\n    y += 1\n    return y\n"
                 "torch.vmap(f)(w).sum().backward()", [(4, 3, 6)], id="inside vmap"),
    pytest.param("w = torch.ones(3, requires_grad=True)\na = w.exp()\na += 1\nb = a.sin()\na += 1\nb.sum().backward()",
                 [(5, 4, 6), (3, 2, 6)], id="two conflicts in one backward"),
    pytest.param("w = torch.ones(3, requires_grad=True)\ny = w.exp()\ny.data.clamp_(0, 9)\nwith torch.no_grad():\n    y *= 2\ny.sum().backward()",
                 [(5, 2, 6)], id="after a write through .data, which no counter counts"),
    pytest.param("w = torch.ones(3, requires_grad=True)\ny = w * w\nw2 = y.exp()\nw2.unsqueeze_(0)\nw2.sum().backward()",
                 [(4, 3, 5)], id="a change of shape alone"),
    pytest.param("w = torch.ones(3, requires_grad=True)\nh = w.exp().sin()\ny = h * w\nh.detach_()\ny.sum().backward()",
                 [(4, 3, 5)], id="detach_(), which changes no value"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CONFLICTS)
def test_the_three_places_of_every_conflict(text: str, expected: list[tuple[int, int, int]]) -> None:
    recorder, _ = run(text)
    assert [lines(recorder, clash) for clash in recorder.conflicts.found] == expected
    assert {clash.kind for clash in recorder.conflicts.found} == {"modified"}


def test_the_gradient_is_that_of_the_values_as_saved() -> None:
    _, namespace = run(
        "w = torch.tensor([1.0, 2.0], requires_grad=True)\ny = w.exp()\ny[1] = 0\ny *= 3\n(y.sum()).backward()"
    )
    expected = torch.tensor([1.0, 2.0]).exp() * 3
    expected[1] = 0
    assert torch.allclose(namespace["w"].grad, expected)


def test_a_freed_graph_is_kept_and_who_freed_it_is_noted() -> None:
    recorder, namespace = run(
        "w = torch.ones(2, requires_grad=True)\ny = w.exp()\ny.sum().backward()\n(y * 2).sum().backward()",
        keep_graphs=True,
    )
    (clash,) = recorder.conflicts.found
    assert clash.kind == "second_backward" and lines(recorder, clash) == (None, 2, 4)
    assert clash.freed is not None and clash.freed.stack[0].line == 3
    assert torch.allclose(namespace["w"].grad, 3 * torch.ones(2).exp())


REFUSED: list[Any] = [
    pytest.param("a = torch.ones(3, requires_grad=True)\na += 1\n(a ** 2).sum().backward()", "leaf", id="a leaf"),
    pytest.param("a = torch.ones(3, requires_grad=True)\na[:2] *= 2\na.sum().backward()", "view_of_leaf", id="a slice of a leaf"),
    pytest.param("a = torch.ones(3, 2, requires_grad=True) * 1\nfor r in a: r.add_(1)\na.sum().backward()",
                 "multi_output_view", id="one of several views"),
    pytest.param("a = torch.ones(3, 2, requires_grad=True) * 1\np, q, r = a\nwith torch.no_grad(): p.fill_(2)\nq.add_(1)\nr.sum().backward()",
                 "multi_output_view", id="one of several views, another one of which was written"),
    pytest.param("a = torch.ones(3, requires_grad=True) * 1\nwith torch.no_grad(): v = a[1:]\nv.add_(1)\na.sum().backward()",
                 "no_grad_view", id="a view made under no_grad"),
    pytest.param("a = torch.ones(3, requires_grad=True)\nz = torch.zeros(2, 3)\np, q = z[0], z[1]\np.copy_(a)\nq.copy_(a)\nz.sum().backward()",
                 "leaf", id="a view made before another one was written, which torch takes for a leaf"),
    pytest.param("a = torch.ones(3, requires_grad=True)\nr = (a * 2).expand(2, 3)\nr += 1\nr.sum().backward()", "overlap",
                 id="shared memory"),
    pytest.param("a = torch.ones(3, requires_grad=True)\nr = a.expand(2, 3)\nr.clamp_(0, 1)\nr.sum().backward()", "view_of_leaf",
                 id="a leaf's memory, shared"),
    pytest.param("a = torch.ones(3, requires_grad=True)\nout = torch.zeros(3)\ntorch.add(a, 1, out=out)", "out_grad", id="out="),
    pytest.param("import collections\nPair = collections.namedtuple('Pair', 'a b')\na = torch.ones(3, requires_grad=True)\n"
                 "a.mul_(2)\ntorch.stack(Pair(a, a)).sum().backward()", "leaf", id="a leaf in a named tuple"),
    pytest.param("with torch.inference_mode(): f = torch.ones(3)\na = torch.ones(3, requires_grad=True)\n"
                 "(a * f).sum().backward()", "inference", id="an inference tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "family"), REFUSED)
def test_a_refused_operation_is_carried_out_as_the_code_means_it(text: str, family: str) -> None:
    with pytest.raises(RuntimeError):
        plain(text)
    recorder, _ = run(text)
    assert recorder.conflicts.found[0].kind == "refused" and recorder.conflicts.found[0].family == family


def test_what_is_drawn_for_elements_that_share_a_place_is_one_number() -> None:
    drawn = "y = torch.empty(1, 50).DRAWN"
    _, namespace = run(drawn.replace("DRAWN", "expand(3, 50).bernoulli_(0.5)") + "\ny = y * 1")
    expected = plain(drawn.replace("DRAWN", "bernoulli_(0.5)"))["y"]
    assert torch.equal(namespace["y"], expected.expand(3, 50))
    _, namespace = run(
        "p = torch.tensor([[0.0], [1.0]]).expand(2, 50)\ny = torch.empty(1, 50).expand(2, 50).bernoulli_(p)\ny = y * 1"
    )
    assert namespace["y"].sum(1).tolist() == [0, 50]  # whose chances differ from row to row
    _, namespace = run("y = torch.empty(1).expand(50).uniform_()\ny = y * 1")
    assert len(namespace["y"].unique()) > 1  # of a single number each element gets its own


@pytest.mark.parametrize(
    ("text", "gradient"),
    [
        pytest.param("a = torch.tensor([1., 2.], requires_grad=True); leaf = a\na *= 3\n(a ** 2).sum().backward()",
                     [18.0, 36.0], id="tracked: the gradient is that of the value before the write"),
        pytest.param("leaf = torch.tensor([1., 2.], requires_grad=True)\nleaf[1:] *= 3\n(leaf ** 2).sum().backward()",
                     [2.0, 36.0], id="a slice"),
        pytest.param("leaf = torch.tensor([1., 2.], requires_grad=True)\nz = torch.complex(leaf, leaf).detach().requires_grad_()\n"
                     "z.imag[1] = 0\n(z.abs() ** 2).sum().backward()\nleaf.grad = torch.view_as_real(z.grad).sum(1)",
                     [4.0, 4.0], id="the imaginary part of a complex one"),
        pytest.param("leaf = torch.tensor([1., 2.], requires_grad=True)\nz = torch.view_as_complex(leaf)\nz *= 2\n"
                     "(z.abs() ** 2).backward()", [8.0, 16.0], id="pairs, seen as complex numbers"),
        pytest.param("leaf = torch.tensor([1., 2.], requires_grad=True)\nleaf.mul_(3)\n"
                     "leaf.grad, = torch.autograd.grad((leaf ** 2).sum(), [leaf])",
                     [18.0, 36.0], id="asked for: the gradient is the leaf's own"),
        pytest.param("leaf = torch.tensor([1., 2.], requires_grad=True)\nh = leaf * 1\nleaf.mul_(3)\n"
                     "leaf.grad, _ = torch.autograd.grad((leaf ** 2).sum() + h.sum(), [leaf, h])",
                     [19.0, 37.0], id="asked for beside a value that is no leaf"),
        pytest.param("leaf = torch.tensor([1., 2.]).view(1, 2).requires_grad_()\nleaf.mul_(3)\n"
                     "g, = torch.autograd.grad((leaf ** 2).sum(), [leaf])\nleaf = g[0]\nleaf.grad = leaf.clone()",
                     [18.0, 36.0], id="asked for of a leaf that is a view"),
        pytest.param("leaf = torch.tensor([1., 2.], requires_grad=True)\nout = torch.zeros(2)\ntorch.mul(leaf, 3, out=out)\n"
                     "leaf.grad, = torch.autograd.grad((out ** 2).sum(), [out])",
                     [6.0, 12.0], id="asked for of what a leaf was written into"),
    ],
)  # fmt: skip
def test_a_tracked_write_into_a_leaf(text: str, gradient: list[float]) -> None:
    _, namespace = run(text)
    assert namespace["leaf"].grad.tolist() == pytest.approx(gradient)


@pytest.mark.parametrize("update_leaves", [False, True])
def test_a_view_made_before_its_base_was_written_is_no_leaf(update_leaves: bool) -> None:
    text = "leaf = torch.tensor([1., 2.], requires_grad=True)\nz = torch.zeros(2, 2)\np, q = z[0], z[1]\np.copy_(leaf)\nq += 3 * leaf\n(z ** 2).sum().backward()"
    recorder, namespace = run(text, update_leaves=update_leaves)
    assert namespace["leaf"].grad.tolist() == [20.0, 40.0]
    assert [(conflict.write.late, conflict.write.leaf) for conflict in recorder.conflicts.found] == [(True, False)]


def test_a_view_of_a_leaf_that_was_updated_reads_what_it_has_become() -> None:
    text = "leaf = torch.tensor([1., 2.], requires_grad=True)\na, b = leaf.chunk(2)\na.mul_(3)\n(a * a + b).sum().backward()"
    recorder, namespace = run(text, update_leaves=True)
    assert namespace["leaf"].tolist() == [3.0, 2.0] and namespace["leaf"].grad.tolist() == [6.0, 1.0]
    assert [conflict.write.operation for conflict in recorder.conflicts.found] == ["mul_"]


def test_a_view_made_without_grad_mode_knows_its_leaf_also_where_a_step_has_written_that() -> None:
    text = """
        w = torch.nn.Parameter(torch.ones(3, 2))
        with torch.no_grad():
            row = w[0]
        w.sum().backward()
        torch.optim.SGD([w], lr=0.1).step()
        row.zero_()
        """
    recorder, _ = run(text)
    assert [(one.family, one.write.parameter, one.write.leaf) for one in recorder.conflicts.found] == [
        ("no_grad_view", True, False)
    ]


def test_a_write_into_a_leaf_as_an_update() -> None:
    text = "leaf = torch.tensor([1., 2.], requires_grad=True)\nleaf.mul_(3)\n(leaf ** 2).sum().backward()"
    _, namespace = run(text, update_leaves=True)
    assert namespace["leaf"].grad.tolist() == [6.0, 12.0]


def test_another_error_passes_through() -> None:
    with pytest.raises(RuntimeError, match="size"):
        run("torch.ones(2).add_(torch.ones(3))")


@pytest.mark.parametrize("times", [50, 500])
def test_a_loop_is_one_conflict(times: int) -> None:
    recorder, _ = run(
        f"w = torch.ones(3, requires_grad=True)\nfor _ in range({times}):\n    y = w.exp()\n    y += 1\n    y.sum().backward()"
    )
    assert len(recorder.conflicts.found) == 1
    assert recorder.saved.remembered < 200, "what is gone is forgotten"


def test_what_is_gone_is_forgotten_where_nothing_is_ever_written() -> None:
    recorder, _ = run("w = torch.ones(1, requires_grad=True)\nfor _ in range(9000):\n    w.exp()")
    assert recorder.counts["saves"] == 9000
    assert recorder.saved.remembered < 4200


def test_values_that_were_kept_are_forgotten_as_well_where_something_always_waits() -> None:
    """The graph of one round is let go only when the next one has saved: none finds the storage without anybody."""
    recorder, _ = run(
        "w, y, out = torch.ones(3, requires_grad=True), torch.ones(3), None\n"
        "for _ in range(500):\n    out = w * y\n    with torch.no_grad():\n        y.add_(1)"
    )
    assert recorder.saved.remembered < 200


STEPS = """
w = torch.nn.Parameter(torch.ones(3))
opt = torch.optim.Adam([w])
loss = (w.exp() * w).sum()
w.grad = torch.ones(3)
"""


def test_a_step_of_torchs_own_is_noted_as_one_write() -> None:
    recorder, _ = run(STEPS + "opt.step()\nloss.backward()")
    (clash,) = {c.write.clock: c for c in recorder.conflicts.found if c.write is not None}.values()
    assert clash.write is not None and clash.write.origin == "optim"
    assert [recorder.sources.spot(*one).line for one in clash.write.stack] == [5]


def test_a_step_that_raises_leaves_the_recorder_at_work() -> None:
    recorder, _ = run(
        STEPS + "opt.param_groups[0]['betas'] = None\ntry:\n    opt.step()\nexcept TypeError:\n    pass\n"
        "y = w.exp()\ny += 1\ny.sum().backward()"
    )
    assert [recorder.sources.spot(*c.write.stack[0]).line for c in recorder.conflicts.found if c.write is not None] == [
        11
    ]
    assert torch._C._len_torch_function_stack() == 0


def test_many_passes_are_looked_at_near_the_beginning_and_near_a_conflict() -> None:
    trace = GradientTrace(Sources({}, {}, None), conflict=lambda: 50)
    looked = [i for i in range(200) if trace.closely(i)]
    assert looked == [*range(CLOSELY), *range(50, 50 + CLOSELY)]


def test_the_steps_of_optimizers_that_are_made_one_after_the_other_are_told_apart() -> None:
    trace = GradientTrace(Sources({}, {}, None))
    weights = [torch.ones(1, requires_grad=True) for _ in range(3 * CLOSELY)]
    with trace.listening():
        for w in weights:  # each may lie where the one before it lay
            optimizer = torch.optim.SGD([w], lr=0.1)
            w.sum().backward()
            optimizer.step()
            del optimizer
    names = {id(w): f"weights[{i}]" for i, w in enumerate(weights)}
    stepped = [one.stepped for one in trace.passes(lambda tensor: names[id(tensor)])]
    assert stepped == [{f"weights[{i}]"} for i in range(len(weights))]


def test_a_write_into_statistics_that_training_saved_is_seen() -> None:
    text = """
        norm = torch.nn.BatchNorm1d(3)
        x = torch.randn(4, 3)
        a = norm(x)
        b = norm(x)
        with torch.no_grad():
            norm.running_mean.copy_(torch.ones(3))
        (a + b).pow(2).sum().backward()
        """
    recorder, _ = run(text)
    assert [(c.kind, lines(recorder, c)) for c in recorder.conflicts.found] == [
        ("modified", (6, 4, 7)),
        ("modified", (6, 3, 7)),
    ]


def test_a_parameter_made_of_an_inference_tensor_is_refused_once_and_made() -> None:
    text = """
        with torch.inference_mode():
            start = torch.ones(3).exp()
        for _ in range(2):
            p = torch.nn.Parameter(start)
        (p * 2).sum().backward()
        """
    recorder, namespace = run(text)
    (clash,) = recorder.conflicts.found
    assert (clash.family, clash.made and recorder.sources.spot(*clash.made[0]).line) == ("inference", 2)
    assert lines(recorder, clash)[0] == 4
    assert type(namespace["p"]) is torch.nn.Parameter and namespace["p"].grad.tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("text", "held"),
    [
        pytest.param("h = w.exp()\nh[0] += 1", ("h",), id="a part of a tensor lies in the tensor"),
        pytest.param("hs = [w.exp()]\nhs[0] += 1", ("hs[0]",), id="an item of a list is a tensor by itself"),
        pytest.param("w = {'a': w}\nw['a'] -= 1", ("w['a']",), id="a leaf in a dict, which torch refuses"),
        pytest.param(
            "class Neck:\n    pass\n"
            "def fuse(neck, outs):\n    neck.heads['b'][0].mul_(2)\n"
            "neck = Neck()\nneck.heads = {'b': [w.exp()]}\nfuse(neck, neck.heads['b'])\nh = neck.heads['b'][0]",
            ("outs[0]", "neck.heads['b'][0]"),
            id="by all ways that the function's own names give",
        ),
    ],
)
def test_a_write_knows_by_which_paths_its_line_holds_what_is_written(text: str, held: tuple[str, ...]) -> None:
    start = "w = torch.ones(3, requires_grad=True)\n"
    recorder, _ = run(
        f"{start}{text}\nif 'h' in dir() or 'hs' in dir():\n    (h if 'h' in dir() else hs[0]).sum().backward()"
    )
    (clash, *_) = recorder.conflicts.found
    assert clash.write is not None
    assert clash.write.held == held


GRADIENT_KEPT = """
    w, scale = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    (w ** 2).sum().backward()
    match = (scale * w.grad).sum()
    {}
    match.backward()
    """


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("(w ** 2).sum().backward(create_graph=True)", id="a gradient that is not added in place"),
        pytest.param("torch.autograd.grad((w ** 2).sum(), w)", id="a gradient that is handed out"),
        pytest.param("(scale ** 2).sum().backward()", id="another leaf's gradient"),
    ],
)
def test_a_backward_that_leaves_a_saved_gradient_as_it_is_breaks_nothing(line: str) -> None:
    recorder, _ = run(GRADIENT_KEPT.format(line))
    assert recorder.conflicts.found == []


def test_a_backward_that_adds_to_a_saved_gradient_is_what_changed_it() -> None:
    recorder, namespace = run(GRADIENT_KEPT.format("(w ** 3).sum().backward()"))
    (clash,) = recorder.conflicts.found
    assert lines(recorder, clash) == (4, 3, 5)
    assert clash.write is not None and clash.write.operation == "backward"
    assert namespace["scale"].grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "change, by_list",
    [
        ("torch.optim.SGD([w], 0.1).step()", False),
        ("torch.optim.SGD([w], 0.1, foreach=True).step()", True),
        ("torch.optim.SGD([w], 0.1, fused=True).step()", True),
        ("torch.optim.SGD([{'params': [u]}, {'params': [w], 'foreach': True}], 0.1).step()", True),
        ("torch.optim.Adam([w], 0.1, foreach=False).step()", False),
        ("torch.no_grad()(w.add_)(1)", False),
        ("torch.no_grad()(torch._foreach_add_)([w], 1)", True),
    ],
)
def test_whether_one_call_writes_many_tensors(change: str, by_list: bool) -> None:
    recorder, _ = run(
        f"""
        u, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        y = w.exp() * w
        y.sum().backward(retain_graph=True)
        {change}
        y.sum().backward()
        """
    )
    assert {clash.write.by_list for clash in recorder.conflicts.found if clash.write is not None} == {by_list}
