from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import fix_by, rewritten

START = "import torch\nfrom torch import nn\ntorch.manual_seed(0)"
TEMPERATURE = """
    class Temperature(nn.Module):
        def __init__(self, start=0.2):
            super().__init__()
            self.log = nn.Parameter(torch.tensor(start).log())
            self.value = self.log.exp()
        def penalty(self):
            return self.value.square()
    temperature = Temperature()
    opt = torch.optim.Adam(temperature.parameters(), lr=0.1)
    """
LOOP = """
    for target in (1.0, 2.0, 3.0):
        loss = (temperature.value - target).square()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
PROPERTY = "\n\n        @property\n        def value(self):\n            return self.log.exp()\n        def penalty"


@pytest.mark.parametrize(
    ("changes", "loop"),
    [
        pytest.param([], LOOP.replace("temperature.value", "temperature.penalty()"), id="read by one method alone"),
        pytest.param([("self.log.exp()", "self.log.exp() * start")], LOOP, id="computed of an argument"),
        pytest.param(
            [("return self.value", "self.value = self.value * 1; return self.value")], LOOP, id="set elsewhere"
        ),
    ],
)
def test_what_is_no_value_for_others_stays_an_attribute(changes: list[tuple[str, str]], loop: str) -> None:
    found = run_cells(START, rewritten(TEMPERATURE, *changes), loop).diagnosis
    assert found is not None and not [fix for fix in found.fixes if "@property" in fix.title]


def test_what_a_constructor_computed_and_a_loop_reads_is_a_property() -> None:
    fix = fix_by("recompute", START, TEMPERATURE, LOOP)
    changes = [("\n        self.value = self.log.exp()", ""), ("\n    def penalty", PROPERTY.replace("\n    ", "\n"))]
    assert fix.title == "@property def value(self)"
    assert fix.cells == {2: rewritten(TEMPERATURE, *changes)}
    assert fix.gradients == "different" and not fix.changes
