from __future__ import annotations

import pytest

from ..trying import clean, fix_by, proposals, titles

NET = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU(inplace=True)
            self.main = nn.Sequential(nn.Tanh(), nn.ReLU(True), nn.Dropout(0.5, True))
        def forward(self, x):
            return self.main(self.act(x))
    """


@pytest.mark.parametrize(
    "about",
    [
        pytest.param({"origin": "user", "operation": "mul_"}, id="the user's own line wrote"),
        pytest.param(
            {"origin": "nn", "operation": "batch_norm", "module": "net.bn"}, id="running statistics have no flag"
        ),
        pytest.param({"origin": "nn", "operation": "embedding", "module": "emb"}, id="max_norm has no flag"),
    ],
)
def test_proposes_nothing(about: dict[str, str]) -> None:
    assert titles("module_flag", NET, write="self.act(x)", **about) == []


@pytest.mark.parametrize(
    ("cell", "module", "kind", "title"),
    [
        pytest.param(NET, "net.act", "ReLU", "nn.ReLU()", id="the attribute that the path ends in"),
        pytest.param(NET, "net.main[2]", "Dropout", "nn.Dropout(0.5)", id="a flag by position, by its index in a Sequential"),
        pytest.param(
            "def block(c):\n    return nn.Sequential(nn.Conv2d(c, c, 1), nn.LeakyReLU(0.2, inplace=True))\nnet(x)",
            "net[3][1]", "LeakyReLU", "nn.LeakyReLU(0.2)", id="made in a function",
        ),
        pytest.param(
            "for m in net.modules():\n    m.inplace = True\nnet(x)", "net[0]", "ReLU", "module.inplace = False for every module of net", id="a sweep over modules()",
        ),
        pytest.param("act = partial(nn.ReLU, inplace=True)\nnet(x)", "net[1]", "ReLU", "partial(nn.ReLU)", id="a partial"),
        pytest.param("net.act = nn.ELU(inplace=flag)\nnet(x)", "net.act", "ELU", "nn.ELU(inplace=False)", id="a flag from a name"),
        pytest.param(
            "net = torchvision.models.vgg11()\nnet(x)", "net.features[1]", "ReLU", "module.inplace = False for every module of net",
            id="a library's model",
        ),
    ],
)  # fmt: skip
def test_takes_the_flag_out(cell: str, module: str, kind: str, title: str) -> None:
    write = "self.act(x)" if "self.act(x)" in cell else "net(x)"
    inplace = ((module, kind),)
    found = titles("module_flag", cell, write=write, origin="nn", operation="relu", module=module, inplace=inplace)
    assert found[0] == title


def test_changes_every_live_module_of_the_line() -> None:
    inplace = (("net.blocks[0].act", "ReLU"), ("net.blocks[1].act", "ReLU"), ("net.drop", "Dropout"))
    found = proposals("module_flag", NET, "net(x)", write="self.act(x)", callers=("net(x)",), origin="nn",
                      operation="relu", module="net.blocks[1].act", inplace=inplace)  # fmt: skip
    assert sorted(c.text for c in found[0].live) == [
        "net.blocks[0].act.inplace = False",
        "net.blocks[1].act.inplace = False",
    ]
    assert found[0].spared == (1,)


def test_a_trained_model_is_kept() -> None:
    definition = """
        import torch
        from torch import nn
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin, self.gate, self.act = nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU(True)
            def forward(self, x):
                h = self.gate(self.lin(x))
                return self.act(h) * h
        """
    fix = fix_by(
        "module_flag", definition, "net = nn.Sequential(Block(), Block())", "net(torch.ones(2, 3)).sum().backward()"
    )
    assert fix.cells == {1: clean(definition).replace("nn.ReLU(True)", "nn.ReLU()").rstrip()}
    assert (fix.gradients, fix.run) == ("same", (3,))
