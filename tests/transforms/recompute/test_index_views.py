from __future__ import annotations

import pytest

from ..trying import fix_by, proposals, titles

RULE = "index_views"
FAMILY = "multi_output_view"


@pytest.mark.parametrize(
    ("cell", "write"),
    [
        pytest.param("for b in f(x):\n    b += 1", "b += 1", id="what the loop goes through has no name to index"),
        pytest.param("for b in x.unbind(-1):\n    b += 1", "b += 1", id="a dimension that is counted from the end"),
        pytest.param("for b in x.split([2, 3]):\n    b += 1", "b += 1", id="stretches of several sizes"),
        pytest.param("for b in x.chunk(2):\n    b += 1", "b += 1", id="chunks, whose size nobody says"),
        pytest.param("for a, b in pairs:\n    b += 1", "b += 1", id="pairs"),
        pytest.param("a, b = x.chunk(2)\na += 1", "a += 1", id="a chunk has no short index"),
        pytest.param(
            "rows = x.split(4)\npart = rows[-1][:2]\npart += 1",
            "part += 1",
            id="a stretch that is counted from the end",
        ),
        pytest.param(
            "rows = x.unbind(1)\nx = y\npart = rows[k][:2]\npart += 1",
            "part += 1",
            id="a part of what the name no longer has",
        ),
        pytest.param("a, *b = x.unbind()\na += 1", "a += 1", id="a star"),
        pytest.param("rows = f(x)\nrows[0] += 1", "rows[0] += 1", id="an item of what a function gives"),
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
        pytest.param("def f(boxes, range=None):\n    for b in boxes:\n        b += 1\n", "b += 1",
                     "def f(boxes, range=None):\n    for i, b in enumerate(boxes):\n        b = boxes[i]\n        b += 1\n",
                     id="where range is an argument"),
        pytest.param("for b in x.unbind(0):\n    c = b[:2]\n    c += 1\n", "c += 1",
                     "for i in range(len(x)):\n    b = x[i]\n    c = b[:2]\n    c += 1\n", id="a part of a view"),
        pytest.param("for b in x.unbind(0):\n    b += 1\n", "b += 1",
                     "for i in range(len(x)):\n    b = x[i]\n    b += 1\n", id="unbind along the first dimension"),
        pytest.param("for b in x.unbind(dim=1):\n    b += 1\n", "b += 1",
                     "for i, b in enumerate(x.unbind(dim=1)):\n    b = x[:, i]\n    b += 1\n", id="unbind along another dimension"),
        pytest.param("for n, b in enumerate(h.split(1)):\n    b *= n\n", "b *= n",
                     "for n, b in enumerate(h.split(1)):\n    b = h[n : n + 1]\n    b *= n\n", id="split into single rows"),
        pytest.param("for b in h.split(self.size, dim=2):\n    b *= 2\n", "b *= 2",
                     "for i, b in enumerate(h.split(self.size, dim=2)):\n    b = h[:, :, i * self.size : (i + 1) * self.size]\n    b *= 2\n",
                     id="split along another dimension"),
        pytest.param("r, g, b = image\ng -= 1\n", "g -= 1",
                     "r, g, b = image[0], image[1], image[2]\ng -= 1\n", id="the views of one assignment"),
        pytest.param("top, low = h.unbind(1)\nlow[0] = 1\n", "low[0]",
                     "top, low = h[:, 0], h[:, 1]\nlow[0] = 1\n", id="the same along another dimension"),
        pytest.param("rows = x.unbind(1)\npart = rows[k][:2]\npart += 1\n", "part += 1",
                     "rows = x.unbind(1)\npart = x[:, k][:2]\npart += 1\n", id="a part of an item of what holds them"),
        pytest.param("rows = x.unbind()\nrows[k] += 1\n", "rows[k]",
                     "rows = x.unbind()\nx[k] += 1\n", id="an item of what holds them"),
        pytest.param("rows = dict(zip(names, x))\nrows['a'] += 1\n", "rows['a']",
                     "rows = {key: x[i] for i, key in enumerate(names)}\nrows['a'] += 1\n", id="a dict with a key for each"),
        pytest.param("rows = x.split(2, 1)\nrows[0][:, 1].mul_(3)\n", "rows[0][:, 1].mul_(3)",
                     "rows = x.split(2, 1)\nx[:, 0 : 2][:, 1].mul_(3)\n", id="a part of such an item"),
        pytest.param("[b.mul_(m) for b, m in zip(x, means)]\n", "b.mul_(m)",
                     "[x[i].mul_(m) for i, (b, m) in enumerate(zip(x, means))]\n", id="a comprehension"),
        pytest.param("for n, b in enumerate(x):\n    b += n\n", "b += n",
                     "for n, b in enumerate(x):\n    b = x[n]\n    b += n\n", id="enumerate"),
        pytest.param("for t, m in zip(x, mean):\n    t.sub_(m)\n", "t.sub_(m)",
                     "for i, (t, m) in enumerate(zip(x, mean)):\n    t = x[i]\n    t.sub_(m)\n", id="zip of two"),
        pytest.param("for row in x:\n    for b in row:\n        b += 1\n", "b += 1",
                     "for j in range(len(x)):\n    row = x[j]\n    for i in range(len(row)):\n        b = row[i]\n        b += 1\n",
                     id="a loop over what a loop goes through"),
        pytest.param("for p in h.split(4): p *= 2\n", "p *= 2",
                     "for i, p in enumerate(h.split(4)): p = h[i * 4 : (i + 1) * 4]; p *= 2\n", id="a loop on one line"),
        pytest.param("for m, t, s in zip(mean, x, std):\n    t.sub_(m).div_(s)\n", "t.sub_(m)",
                     "for i, (m, t, s) in enumerate(zip(mean, x, std)):\n    t = x[i]\n    t.sub_(m).div_(s)\n", id="zip of three"),
    ],
)  # fmt: skip
def test_makes_each_view_on_its_own(cell: str, write: str, expected: str) -> None:
    assert [p.texts[1] for p in proposals(RULE, cell, write=write, family=FAMILY)] == [expected]


SCALE = "def scale(img, by):\n    img.mul_(by)\n"
STRETCH = SCALE + "def stretch(t):\n    scale(by=2, img=t)\n"


@pytest.mark.parametrize(
    ("text", "callers", "loop"),
    [
        pytest.param(SCALE, ("scale(row, 2)",), "for row in rows:\n    scale(row, 2)", id="one function"),
        pytest.param(
            STRETCH, ("scale(by=2, img=t)", "stretch(row)"), "for row in rows:\n    stretch(row)", id="two, by keyword"
        ),
        pytest.param(
            STRETCH + "class Norm:\n    def one(self, n, row):\n        stretch(row[0])\nnorm = Norm()\n",
            ("scale(by=2, img=t)", "stretch(row[0])", "norm.one(2, row)"),
            "for row in rows:\n    norm.one(2, row)",
            id="three, a method among them, with a part",
        ),
    ],
)
def test_goes_up_through_all_that_hands_the_view_on(text: str, callers: tuple[str, ...], loop: str) -> None:
    found = proposals(RULE, text + loop, write="img.mul_(by)", family=FAMILY, callers=callers)
    expected = loop.replace("for row in rows:\n", "for i in range(len(rows)):\n    row = rows[i]\n")
    assert [p.texts[1] for p in found] == [text + expected]


def test_of_several_lists_gone_through_the_one_that_is_handed_on_is_indexed() -> None:
    text = STRETCH + "for row, by in zip(rows, factors):\n    stretch(by)"
    callers = ("scale(by=2, img=t)", "stretch(by)")
    found = proposals(RULE, text, write="img.mul_(by)", family=FAMILY, callers=callers)
    assert [p.texts[1] for p in found] == [
        STRETCH + "for i, (row, by) in enumerate(zip(rows, factors)):\n    by = factors[i]\n    stretch(by)"
    ]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param(
            "h = w * 2\nfor row in h:\n    row.mul_(3)\nh.sum().backward()",
            "h = w * 2\nfor i in range(len(h)):\n    row = h[i]\n    row.mul_(3)\nh.sum().backward()",
            id="the rows of a tensor",
        ),
        pytest.param(
            "h = w * 2\nfor i, part in enumerate(h.split(2, 1)):\n    part *= i + 1\nh.sum().backward()",
            "h = w * 2\nfor i, part in enumerate(h.split(2, 1)):\n    part = h[:, i * 2 : (i + 1) * 2]\n"
            "    part *= i + 1\nh.sum().backward()",
            id="stretches of columns, the last one shorter",
        ),
        pytest.param(
            "h = w * 2\nrows = list(torch.unbind(h, 0))\nfor i in range(2):\n    rows[i] -= i\n    rows[i] /= 2\nh.sum().backward()",
            "h = w * 2\nrows = list(torch.unbind(h, 0))\nfor i in range(2):\n    h[i] -= i\n    h[i] /= 2\nh.sum().backward()",
            id="items of a list that a function of torch's gave",
        ),
        pytest.param(
            "h = w * 2\nleft, middle, right = h.t()\nleft.clamp_(min=0); right.mul_(2)\nh.sum().backward()",
            "h = w * 2\nleft, middle, right = h.t()[0], h.t()[1], h.t()[2]\nleft.clamp_(min=0); right.mul_(2)\nh.sum().backward()",
            id="columns by their names",
        ),
    ],
)
def test_is_proved(cell: str, expected: str) -> None:
    fix = fix_by(RULE, "import torch\nw = torch.ones(2, 3, requires_grad=True)", cell)
    assert fix.cells == {2: expected}
    assert fix.gradients == "same"


def test_an_item_that_a_helper_writes_is_taken_from_the_tensor() -> None:
    helper = "def fill(row, v):\n    row[0].fill_(v)\nrows = x.split(1)\n"
    text = helper + "fill(rows[k], 0)"
    found = proposals(RULE, text, write="row[0].fill_(v)", family=FAMILY, callers=("fill(rows[k], 0)",))
    assert [p.texts[1] for p in found] == [helper + "fill(x[k : k + 1], 0)"]
