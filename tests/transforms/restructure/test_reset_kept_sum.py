from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean

VOTES = """
    class Jury(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList(nn.Linear(3, 2) for _ in range(3))
            self.votes = torch.zeros(4, 2)
        def forward(self, x):
            for net in self.nets:
                self.votes += net(x).tanh()
            return RESULT
    """


ONE_EACH = "jury = Jury()\nfor _ in range(3):\n    jury(x).pow(2).sum().backward()"
HELPED = """
    jury = Jury()
    def last(x):
        for _ in range(2):
            y = jury(x)
        return y
    for _ in range(3):
        last(x).pow(2).sum().backward()
    """
SEVERAL = (
    "jury = Jury()\nfor _ in range(3):\n    for _ in range(2):\n        y = jury(x)\n    y.pow(2).sum().backward()"
)


@pytest.mark.parametrize(
    ("change", "cell", "anew"),
    [
        pytest.param({}, SEVERAL, False, id="a state that several calls carry to one backward"),
        pytest.param({"self.votes += net(x)": "self.votes += net(x + self.votes[0, 0])"}, ONE_EACH, False,
                     id="a state that its own terms are made of"),
        pytest.param({"in self.nets": "in x", "net(x)": "self.nets[0](net)"}, ONE_EACH, False,
                     id="a state over steps in time"),
        pytest.param({"net(x).tanh()": "0.1 * net(x)"}, ONE_EACH, False, id="a step of a length"),
        pytest.param({"for net in self.nets": "for t in range(len(self.nets))", "net(x)": "self.nets[0](x + t)"}, ONE_EACH, False,
                     id="steps that are counted"),
        pytest.param({"net(x).tanh()": "-0.1 * net(x)"}, ONE_EACH, False, id="a step back"),
        pytest.param({}, clean(HELPED), False, id="a state that a helper's calls carry to one backward"),
        pytest.param({"def forward(self, x):\n": "def forward(self, x):\n            self.votes *= 0.9\n"}, ONE_EACH, False,
                     id="a state that decays"),
        pytest.param({}, ONE_EACH + "\nprint(jury.votes)", False, id="a state that is read elsewhere"),
        pytest.param({}, ONE_EACH, True, id="a sum over its own parts, sent back each time"),
        pytest.param({"RESULT": "self.votes / len(self.nets)"}, SEVERAL, True, id="the sum of a mean"),
    ],
)  # fmt: skip
def test_the_sum_that_a_constructor_has_begun_begins_anew_unless_it_is_a_state(
    change: dict[str, str], cell: str, anew: bool
) -> None:
    text = VOTES
    for old, new in {"RESULT": "self.votes * 1.0", **change}.items():
        text = text.replace(old, new)
    run = run_cells("import torch\nfrom torch import nn\ntorch.manual_seed(0)\nx = torch.rand(4, 3)", text, cell)
    assert run.diagnosis is not None
    begun = ["self.votes = torch.zeros_like(self.votes)" in fix.diff for fix in run.diagnosis.fixes]
    assert begun[0] if anew else not any(begun)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            """
            def make(nets):
                votes = torch.zeros(4, 2)
                def jury(x):
                    for i in range(len(nets)):
                        votes.add_(nets[i](x).tanh())
                    return votes / len(nets)
                return jury
            jury = make([nn.Linear(3, 2) for _ in range(3)])
            """,
            "        votes = torch.zeros(4, 2)\n        for i",
            id="in a name of the function around",
        ),
        pytest.param(
            """
            class Jury(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.nets = nn.ModuleList(nn.Linear(3, 2) for _ in range(3))
                    self.register_buffer("votes", torch.zeros(4, 2))
                def vote(self, net, x):
                    self.votes += net(x).tanh()
                def forward(self, x):
                    for net in self.nets:
                        self.vote(net, x)
                    return self.votes.div(len(self.nets))
            jury = Jury()
            """,
            "        self.votes = torch.zeros_like(self.votes)\n        for net",
            id="in a buffer, by a method",
        ),
        pytest.param(
            """
            from dataclasses import dataclass
            @dataclass
            class Jury:
                nets: list
                def __post_init__(self):
                    self.votes = {"all": torch.zeros(4, 2), "last": torch.zeros(4, 2)}
                def __call__(self, x):
                    for net in self.nets:
                        self.votes["all"] += net(x).tanh()
                        self.votes["last"] += net(x[:, :]).sigmoid()
                    return sum(v / len(self.nets) for v in self.votes.values())
            jury = Jury([nn.Linear(3, 2) for _ in range(3)])
            """,
            '        self.votes = {"all": torch.zeros(4, 2), "last": torch.zeros(4, 2)}\n        for net',
            id="in a dict of a dataclass",
        ),
    ],
)
def test_a_mean_is_of_a_sum_that_begins_anew(text: str, line: str) -> None:
    run = run_cells(
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nx = torch.rand(4, 3)",
        text,
        ONE_EACH.partition("\n")[2],
    )
    assert run.diagnosis is not None
    assert line in run.diagnosis.fixes[0].cells[2]


def test_a_sum_that_another_closure_reads_goes_on() -> None:
    text = """
        def make(nets):
            votes = torch.zeros(4, 2)
            def jury(x):
                for net in nets:
                    votes.add_(net(x).tanh())
                return votes / len(nets)
            def tally():
                return votes
            return jury, tally
        jury, tally = make([nn.Linear(3, 2) for _ in range(3)])
        """
    run = run_cells("import torch\nfrom torch import nn\nx = torch.rand(4, 3)", text, ONE_EACH.partition("\n")[2])
    assert run.diagnosis is not None
    assert all("votes = torch.zeros" not in fix.title for fix in run.diagnosis.fixes)


def test_a_running_total_of_a_closure_goes_on() -> None:
    text = """
        def make(net):
            total = torch.zeros(4, 2)
            def step(x):
                for part in x.split(2):
                    total.add_(net(part).sum())
                return total * 0.5
            return step
        jury = make(nn.Linear(3, 2))
        """
    run = run_cells("import torch\nfrom torch import nn\nx = torch.rand(4, 3)", text, ONE_EACH.partition("\n")[2])
    assert run.diagnosis is not None
    assert all("total = torch.zeros" not in fix.title for fix in run.diagnosis.fixes)
