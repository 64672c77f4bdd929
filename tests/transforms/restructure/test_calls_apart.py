from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import rewritten

GAN = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt_g, opt_d = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (G, D))
    def step(opt, loss):
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        return loss.item()
    """
HARMONISER = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    class Harmoniser:
        def __init__(self):
            self.encoder, self.heads = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3)), nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])
            self.opts = [torch.optim.SGD([*self.encoder.parameters(), *h.parameters()], lr=0.1) for h in self.heads]
        def encode(self, x):
            self.z = self.encoder(x)
        def task(self):
            self.opts[0].zero_grad()
            self.heads[0](self.z).pow(2).mean().backward(retain_graph=True)
            self.opts[0].step()
        def confuse(self):
            self.opts[1].zero_grad()
            self.heads[1](self.z).exp().mean().backward()
            self.opts[1].step()
        def fit(self, x):
            self.encode(x)
            return self.task(), self.confuse()
    """


def trained(line: str) -> str:
    return f"def train(x):\n    score = D(G(x))\n    {line}\nfor x in torch.randn(3, 5, 2):\n    train(x)"


def texts(*cells: str) -> list[str]:
    run = run_cells(*cells)
    assert run.diagnosis is not None
    return [fix.cells[2] for fix in run.diagnosis.fixes]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("return [step(*one) for one in ((opt_d, score.mean()), (opt_g, -score.mean()))]", id="calls of a comprehension"),
        pytest.param("return x is None or (step(opt_d, score.mean()) and step(opt_g, -score.mean()))", id="a call behind a condition"),
        pytest.param("return step(opt_d, score.mean()), step(opt_g, -D(G(x)).mean()), step(opt_d, score.exp().mean())", id="calls with another one between them"),
    ],
)  # fmt: skip
def test_calls_that_have_to_stay_where_they_are(line: str) -> None:
    assert not [text for text in texts(GAN, trained(line)) if "first = " in text]


@pytest.mark.parametrize("both", ["{}, {}", "{{'d': {}, 'g': {}}}", "dict(d={}, g={})"])
def test_each_gets_a_statement_and_they_change_places(both: str) -> None:
    line = "return " + both.format("step(opt_d, score.mean())", "step(opt_g, -score.mean())")
    lines = [
        "second = step(opt_g, -score.mean())",
        "first = step(opt_d, score.mean())",
        "return " + both.format("first", "second"),
    ]
    assert texts(GAN, trained(line))[0] == trained("\n    ".join(lines))


def test_names_that_they_are_given_stay() -> None:
    line = "d, g = step(opt_d, score.mean()), step(opt_g, -score.mean())"
    lines = "g = step(opt_g, -score.mean())\n    d = step(opt_d, score.mean())"
    assert texts(GAN, trained(line))[0] == trained(lines)


def test_a_name_that_the_other_call_reads_keeps_its_old_value() -> None:
    line = "d = 2.0; d, g = step(opt_d, score.mean()), step(opt_g, -d * score.mean())"
    assert not [text for text in texts(GAN, trained(line)) if "d = step(opt_d, score.mean())\n" in text]


def test_what_an_object_keeps_is_made_again_between_them() -> None:
    run = run_cells(HARMONISER, "model = Harmoniser()\nfor x in torch.randn(3, 5, 2):\n    model.fit(x)")
    assert run.diagnosis is not None
    lines = "first = self.task()\n        self.encode(x)\n        second = self.confuse()\n        return first, second"
    expected = rewritten(HARMONISER, ("return self.task(), self.confuse()", lines))
    assert expected in [fix.cells[1].rstrip() for fix in run.diagnosis.fixes]
    assert [fix.title for fix in run.diagnosis.fixes if "first" in fix.title] == []
