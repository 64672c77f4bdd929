"""The tour's table where terminals are narrow."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from inplace_magic import tour
from inplace_magic.diagnosis import Conflict, Diagnosis, Fix, Place
from inplace_magic.message import LANGUAGES, Language


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_breaks_no_word(width: int, language: Language) -> None:
    place = Place(2, 7, "loss.backward(retain_graph=True)")
    found = Diagnosis(
        "modified", "", 2,
        conflicts=(Conflict(place, None, None, None, None, None, ""),),
        fixes=(Fix("hidden = tuple(h.detach() for h in hidden)", "", "", "", {}, True, "truncated"),),
    )  # fmt: skip
    drawn = io.StringIO()
    stops = [tour.Stop(situation, found, seconds=1.2) for situation in tour.SITUATIONS]
    tour._table(Console(width=width, file=drawn), stops, language)
    shown = drawn.getvalue()
    assert max(map(cell_len, shown.splitlines())) <= width
    assert shown.count("…") in (0, len(stops)), "of the cells only a fix may be cut"
    assert ("what came of it" in shown) == (language == "en")
    if language == "zh":
        return
    words = {word for situation in tour.SITUATIONS for word in situation.title.split()}
    assert {word for word in words | {"verified", "truncated", "In[2]:7", "situation"} if word not in shown} == set()


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_a_visit_is_shown_whatever_the_stream_knows(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "SITUATIONS", tour.SITUATIONS[4:5])
    with io.TextIOWrapper(io.BytesIO(), encoding=encoding) as out:
        monkeypatch.setattr("sys.stdout", out)
        assert tour.run(color=False, language="zh") == 0
        out.flush()
        out.seek(0)
        shown = out.read()
    assert "a += 1" in shown
    assert ("已验证" in shown and "结果" in shown) == (encoding == "utf-8")
