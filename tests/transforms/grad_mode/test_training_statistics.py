from __future__ import annotations

import pytest

from ..trying import clean, fix_by, rewritten, rules

RULE = "training_statistics"
START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    x = torch.randn(5, 3)
    """
CELL = """
    out = net(x)
    with torch.no_grad():
        for buffer in net.buffers():
            buffer.copy_(torch.zeros_like(buffer))
    out.pow(2).sum().backward()
    """


def test_what_the_eval_mode_reads_is_not_written_past_the_counter() -> None:
    assert RULE not in rules(clean(START) + "net.eval()\n", CELL)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("buffer.copy_(torch.zeros_like(buffer))", "buffer.data.copy_(torch.zeros_like(buffer))", id="method"),
        pytest.param("buffer *= 0", "buffer.data *= 0", id="augmented"),
    ],
)  # fmt: skip
def test_is_proved(old: str, new: str) -> None:
    cell = CELL.replace("buffer.copy_(torch.zeros_like(buffer))", old)
    fix = fix_by(RULE, START, cell)
    assert (fix.cells[2].rstrip(), fix.gradients) == (rewritten(cell, (old, new)), "same")
