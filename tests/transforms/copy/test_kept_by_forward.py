"""A checkpoint that computes something else again is told to keep its random numbers, or is no checkpoint any more."""

from __future__ import annotations

import pytest

from ..trying import proposals


def found(cell: str, write: str) -> list[str]:
    return [p.texts[1] for p in proposals("kept_by_forward", cell, write=write, family="silent")]


@pytest.mark.parametrize(
    "cell",
    ["y = block(x)\n", "checkpoint = 1\n", "save(checkpoint, path)\n", "y = checkpoint(*given)\n"],
    ids=["a plain call", "a name alone", "an argument", "what is called is not written there"],
)
def test_proposes_nothing(cell: str) -> None:
    assert found(cell, cell.strip()) == []


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param("y = checkpoint(block, x, use_reentrant=False)\n", ["y = block(x)\n"], id="a function"),
        pytest.param(
            "y = checkpoint(block, x, y=z, preserve_rng_state=False)\n",
            ["y = checkpoint(block, x, y=z)\n", "y = block(x, y=z)\n"],
            id="random numbers are not kept",
        ),
        pytest.param("y = checkpoint(net[0], x, preserve_rng_state=True)\n", ["y = net[0](x)\n"], id="they are kept"),
        pytest.param("y = checkpoint(lambda t: t + 1, x)\n", ["y = (lambda t: t + 1)(x)\n"], id="a lambda"),
        pytest.param("y = torch.utils.checkpoint.checkpoint_sequential(net, 2, x)\n", ["y = net(x)\n"], id="segments"),
    ],
)
def test_proposes(cell: str, expected: list[str]) -> None:
    assert found(cell, cell.strip()) == expected
