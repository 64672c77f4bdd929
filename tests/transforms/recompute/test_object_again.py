from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, rewritten

START = """
    import torch
    from torch import nn
    from torch.distributions import Bernoulli
    torch.manual_seed(0)
    p = torch.full((3,), 0.5, requires_grad=True)
    days = [torch.ones(4, 3), torch.zeros(4, 3), torch.ones(4, 3)]
    """
DAYS = """
    def fit(days):
        total = 0.0
        coin = Bernoulli(probs=p)  # one for all
        for flips in days:
            loss = -coin.log_prob(flips).mean()
            loss.backward()
            total += loss.item()
        return total
    """


def test_what_a_distribution_computes_when_it_is_first_asked_is_computed_in_each_iteration() -> None:
    fix = fix_by("recompute", START, DAYS, "fit(days)")
    line, loss = "    coin = Bernoulli(probs=p)  # one for all\n", "        loss = -coin"
    assert fix.cells == {2: rewritten(DAYS, (line, ""), (loss, f"    {line}{loss}"))}
    assert (fix.gradients, fix.changes) == ("same", ())


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 1))", id="a layer, which has weights of its own"),
        pytest.param("layer = nn.Linear(3, 1)", id="a layer of torch's"),
    ],
)  # fmt: skip
def test_what_trains_is_not_made_again(made: str) -> None:
    loop = "y = layer(days[0]).exp()\nfor flips in days:\n    loss = (y * flips.mean()).sum()\n    loss.backward()"
    run = run_cells(START, clean(made), loop)
    assert run.diagnosis is not None
    assert all(made not in (text or "") for fix in run.diagnosis.fixes for n, text in fix.cells.items() if n == 3)
