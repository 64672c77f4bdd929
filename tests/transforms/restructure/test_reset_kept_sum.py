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
