from __future__ import annotations

import pytest

from ..trying import fix_by, proposals, titles

RULE = "index_views"
FAMILY = "multi_output_view"


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param("for b in f(x):\n    b += 1", "b += 1", id="what the loop goes through has no name to index"),
        pytest.param("for b in x.unbind(1):\n    b += 1", "b += 1", id="a loop over another dimension than the first"),
        pytest.param("for a, b in pairs:\n    b += 1", "b += 1", id="pairs"),
        pytest.param("a, b = x.chunk(2)\na += 1", "a += 1", id="a chunk has no short index"),
        pytest.param("a, *b = x.unbind()\na += 1", "a += 1", id="a star"),
        pytest.param("y = F.apply(x)\ny += 1", "y += 1", id="one view"),
    ],
)
def test_proposes_nothing(cell: str, write: str) -> None:
    assert titles(RULE, cell, write=write, family=FAMILY) == []


@pytest.mark.parametrize(
    ("cell", "write", "expected"),
    [
        pytest.param("for b in boxes:\n    b[0] += 1\n", "b[0] += 1",
                     "for i in range(len(boxes)):\n    b = boxes[i]\n    b[0] += 1\n", id="a loop over a tensor"),
        pytest.param("i = 3\nfor b in self.boxes:  # each\n  b += i\n", "b += i",
                     "i = 3\nfor i_2 in range(len(self.boxes)):  # each\n  b = self.boxes[i_2]\n  b += i\n", id="a free name, comments stay"),
        pytest.param("for b in x.unbind(0):\n    b += 1\n", "b += 1",
                     "for i in range(len(x)):\n    b = x[i]\n    b += 1\n", id="unbind along the first dimension"),
        pytest.param("for n, b in enumerate(x):\n    b += n\n", "b += n",
                     "for n, b in enumerate(x):\n    b = x[n]\n    b += n\n", id="enumerate"),
        pytest.param("for t, m in zip(x, mean):\n    t.sub_(m)\n", "t.sub_(m)",
                     "for i, (t, m) in enumerate(zip(x, mean)):\n    t = x[i]\n    t.sub_(m)\n", id="zip of two"),
        pytest.param("for m, t, s in zip(mean, x, std):\n    t.sub_(m).div_(s)\n", "t.sub_(m)",
                     "for i, (m, t, s) in enumerate(zip(mean, x, std)):\n    t = x[i]\n    t.sub_(m).div_(s)\n", id="zip of three"),
    ],
)  # fmt: skip
def test_makes_each_view_on_its_own(cell: str, write: str, expected: str) -> None:
    assert [p.texts[1] for p in proposals(RULE, cell, write=write, family=FAMILY)] == [expected]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param(
            "h = w * 2\nfor row in h:\n    row.mul_(3)\nh.sum().backward()",
            "h = w * 2\nfor i in range(len(h)):\n    row = h[i]\n    row.mul_(3)\nh.sum().backward()",
            id="the rows of a tensor",
        ),
    ],
)
def test_is_proved(cell: str, expected: str) -> None:
    fix = fix_by(RULE, "import torch\nw = torch.ones(2, 3, requires_grad=True)", cell)
    assert fix.cells == {2: expected}
    assert fix.gradients == "same"
