"""The tour's table where terminals are narrow."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from inplace_magic import tour
from inplace_magic.diagnosis import Conflict, Diagnosis, Fix, Place


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_breaks_no_word(width: int) -> None:
    place = Place(2, 7, "loss.backward(retain_graph=True)")
    found = Diagnosis(
        "modified", "", 2,
        conflicts=(Conflict(place, None, None, None, None, None, ""),),
        fixes=(Fix("hidden = tuple(h.detach() for h in hidden)", "", "", "", {}, True, "truncated"),),
    )  # fmt: skip
    drawn = io.StringIO()
    stops = [tour.Stop(situation, found, seconds=1.2) for situation in tour.SITUATIONS]
    tour._table(Console(width=width, file=drawn), stops)
    shown = drawn.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    words = {word for situation in tour.SITUATIONS for word in situation.title.split()}
    assert {word for word in words | {"verified", "truncated", "In[2]:7", "situation"} if word not in shown} == set()
