"""The title of a fix: the place and the line by which it is told from the others of its report."""

from __future__ import annotations

import pytest

from inplace_magic.report.contents import title
from tests.report.samples import diff, fix

LINE = "y = torch.sigmoid(self.scale * hidden); y += self.shift; y.sum().backward()"


def titled(before: str, after: str) -> str:
    return title(fix("", diff("In[3]", before, after))).replace("`", "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x += 1", "x = x + 1", id="a short line"),
        pytest.param("x = F.relu(x, inplace=True)", "x = F.relu(x)", id="a change soon seen"),
        pytest.param(
            "h.add_(" + "self.bias + " * 9 + "1)", "h = h.add(" + "self.bias + " * 9 + "1)", id="long behind it"
        ),
    ],
)
def test_the_line_is_whole(before: str, after: str) -> None:
    assert titled(before, after) == f"In[3]:1 {after}"


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        pytest.param(
            "y += self.shift", "y = y + self.shift", "…hidden); y = y + self.shift; y.sum().backward()", id="in it"
        ),
        pytest.param("backward()", "backward(retain_graph=True)", "…backward(retain_graph=True)", id="at its end"),
    ],
)
def test_a_long_line_is_shown_from_a_little_before_the_change(old: str, new: str, shown: str) -> None:
    assert titled(LINE, LINE.replace(old, new)) == f"In[3]:1 {shown}"
