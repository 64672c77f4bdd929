"""What a constructor computes of the weights becomes a property, where all that it is made of is there for one."""

from __future__ import annotations

import pytest

from ...cells import new_shell, run_in
from ..trying import clean

START = "import torch\nfrom torch import nn\nfrom torch.distributions import Normal\ntorch.manual_seed(0)\n"
CLASS = """
    class Policy(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.log_std = nn.Parameter(torch.zeros(n))
            {made}

        def draw(self):
            return self.noise.sample()
    """
USED = "policy = Policy(2)\nopt = torch.optim.SGD(policy.parameters(), 0.1)\nlosses = []\nfor _ in range(3):\n    loss = -policy.noise.log_prob(torch.full((2,), 3.0)).sum()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n    losses.append(loss.item())"


def fixes(made: str, more: str = "") -> list[str]:
    run = run_in(new_shell(), [START + clean(CLASS.format(made=made)) + more, USED])
    assert run.diagnosis is not None
    return [fix.cells.get(1, "") for fix in run.diagnosis.fixes if fix.title == "`noise` as a property"]


@pytest.mark.parametrize(
    ("made", "more"),
    [
        pytest.param("scale = self.log_std.exp()\n            self.noise = Normal(torch.zeros(n), scale)", "", id="it is made of another value of the constructor"),
        pytest.param("self.noise = Normal(torch.zeros(n), self.log_std.exp())", "\n    def noise_of(self):\n        self.noise = None\n", id="another method sets it"),
        pytest.param("self.n = 2 * n\n            self.noise = Normal(torch.zeros(n), self.log_std.exp())", "", id="the object keeps something else under the name of what it is handed"),
    ],
)  # fmt: skip
def test_it_becomes_none_where(made: str, more: str) -> None:
    assert fixes(made, more) == []


@pytest.mark.parametrize(
    ("made", "kept", "value"),
    [
        pytest.param("self.noise = Normal(0.0, self.log_std.exp())", "", "Normal(0.0, self.log_std.exp())", id="of the weights alone"),
        pytest.param(
            "self.noise = Normal(torch.zeros(n), self.log_std.exp())", "self.n = n", "Normal(torch.zeros(self.n), self.log_std.exp())", id="of what it is handed"
        ),
    ],
)  # fmt: skip
def test_it_becomes_one(made: str, kept: str, value: str) -> None:
    (text,) = fixes(made)
    expected = START + clean(CLASS.format(made=kept or "#"))
    expected = expected.replace("        #\n", "").replace(
        "\n    def draw", f"\n    @property\n    def noise(self):\n        return {value}\n\n    def draw"
    )
    assert [line for line in text.splitlines() if line.strip()] == [
        line for line in expected.splitlines() if line.strip()
    ]


def test_all_that_it_is_made_of_and_was_handed_is_kept() -> None:
    cell = CLASS.replace("def __init__(self, n)", "def __init__(self, n, low)")
    made = START + clean(cell.format(made="self.noise = Normal(torch.full((n,), low), self.log_std.exp())"))
    run = run_in(new_shell(), [made, USED.replace("Policy(2)", "Policy(2, 0.5)")])
    assert run.diagnosis is not None
    (text,) = [fix.cells[1] for fix in run.diagnosis.fixes if fix.title == "`noise` as a property"]
    assert "        self.n = n\n        self.low = low\n" in text
    assert "        return Normal(torch.full((self.n,), self.low), self.log_std.exp())\n" in text


def test_every_reader_has_the_weights_as_they_are() -> None:
    shell = new_shell()
    run = run_in(shell, [START + clean(CLASS.format(made="self.noise = Normal(0.0, self.log_std.exp())")), USED])
    assert run.diagnosis is not None and run.diagnosis.fixes[0].title == "`noise` as a property"
    run = run_in(shell, ["%autograd_fix 1 --run"])
    assert run.error is None
    policy = shell.user_ns["policy"]
    assert policy.noise.scale.equal(policy.log_std.exp())
    assert policy.log_std.abs().sum() > 0
