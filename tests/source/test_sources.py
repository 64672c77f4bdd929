"""The documents of a session: each is parsed once, and its nodes are the same for whoever asks."""

from __future__ import annotations

from inplace_magic.source.document import CellSource
from inplace_magic.source.sources import Sources

MANY = 1_000  # cells: more than a long session has


def _sources() -> Sources:
    return Sources({n: CellSource(n, f"x_{n % 10} = {n}") for n in range(1, MANY)}, {}, MANY)


def test_nodes_stay_the_same_however_many_texts_are_asked_for() -> None:
    sources = _sources()
    first = [sources.code(number) for number in sources.cells]
    assert all(one is sources.code(number) for one, number in zip(first, sources.cells))


def test_a_rewritten_text_is_parsed_anew_and_the_others_keep_their_nodes() -> None:
    sources = _sources()
    old, beside = sources.code(1), sources.code(2)
    rewritten = sources.with_texts({1: "y = 1"})
    new = rewritten.code(1)
    assert rewritten.code(2) is beside
    assert new is not None and new.cell.raw == "y = 1"
    assert sources.code(1) is old


def test_what_cannot_be_parsed_has_no_code() -> None:
    sources = Sources({1: CellSource(1, "x = (")}, {}, 1)
    assert sources.code(1) is None
    assert sources.code(2) is None
    assert sources.code(None) is None
