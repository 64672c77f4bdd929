"""Programs some of whose tensors have no values, no sizes or no life of their own: transforms, traced graphs, nested tensors."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from inplace_magic.record.recorder import Recorder
from inplace_magic.record.watcher import Watcher
from inplace_magic.source.sources import Sources

from ..cells import new_shell, run_in

SETUP = "import torch\nfrom torch import nn\nnet, x = nn.Linear(3, 3), torch.randn(4, 3)"
HEALTHY = {
    "gradients of each sample": """
        from torch.func import functional_call, grad, vmap
        def loss(weights, row):
            return functional_call(net, weights, (row[None],)).pow(2).sum()
        each = vmap(grad(loss), in_dims=(None, 0))(dict(net.named_parameters()), x)
    """,
    "a Function of its own in a transform": """
        from torch.func import grad, vmap
        class Cube(torch.autograd.Function):
            generate_vmap_rule = True
            @staticmethod
            def forward(v):
                return v ** 3
            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)
            @staticmethod
            def backward(ctx, g):
                return 3 * ctx.saved_tensors[0] ** 2 * g
        cube = Cube.apply
        each = vmap(grad(lambda row: cube(row).sum()))(x), vmap(cube)(x), cube(net(x)).sum().backward()
    """,
    "a hessian": """
        from torch.func import hessian
        curved = hessian(lambda t: t.exp().sum())(x[0])
    """,
    "several gradients in one backward": """
        w = torch.randn(3, requires_grad=True)
        rows = torch.autograd.grad(w.exp(), w, torch.eye(3), is_grads_batched=True)
    """,
    "a nested tensor": """
        parts = torch.nested.nested_tensor([x[:1], x[1:]], requires_grad=True)
        torch.nested.to_padded_tensor(parts * 2, 0.0).sum().backward()
    """,
    "tensors without memory": """
        with torch.device("meta"):
            nn.Linear(3, 3)(torch.randn(2, 3)).sum().backward()
    """,
    "compressed rows": """
        (torch.eye(4).to_sparse_csr() @ net(x)).sum().backward()
    """,
    "a trace": """
        traced = torch.jit.trace(net, x)
        traced(x).sum().backward()
    """,
}
HEALTHY = {name: re.sub(r"^ {8}", "", text.strip("\n"), flags=re.M).rstrip() for name, text in HEALTHY.items()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", HEALTHY)
def test_a_watched_cell_runs_as_it_does_alone(name: str) -> None:
    done = run_in(new_shell(), [SETUP, f"%%autograd_check\n{HEALTHY[name]}"])
    assert done.error is None and done.diagnosis is None
    assert "nothing found" in done.output and "turned off" not in done.output


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", HEALTHY)
def test_a_failure_beside_it_is_explained_and_its_fix_compared(name: str) -> None:
    cell = f"{HEALTHY[name]}\nnet.zero_grad()\ny = net(x).exp()\ny += 1\ny.sum().backward()"
    found = run_in(new_shell(), [SETUP, cell]).diagnosis
    assert found is not None and found.changed is not None and found.changed.text == "y += 1"
    assert found.fixes and found.fixes[0].gradients == "same"


def operations(graph: object) -> list[str]:
    return re.findall(r"(?:aten|prim)::\w+|torch\.ops\.[\w.]+", str(graph))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("listener", [Watcher, Recorder])
@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(lambda net, x: torch.jit.trace(net, x).inlined_graph, id="torch.jit"),
        pytest.param(lambda net, x: torch.export.export(net, (x,)).graph, id="torch.export"),
    ],
)
def test_a_graph_that_is_traced_has_no_operation_of_ours(
    graph: Callable[[nn.Module, torch.Tensor], object], listener: type[Recorder]
) -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(4, 3)
    alone = operations(graph(net, x))
    with listener(Sources({}, {}, None)):
        listened = operations(graph(net, x))
    assert listened == alone and alone
