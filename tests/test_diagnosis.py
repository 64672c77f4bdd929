"""Records and json: what goes out comes back, field by field."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inplace_magic.diagnosis import Conflict, Diagnosis, Fix, LiveChange, Place
from inplace_magic.message import Message, message, said

words = st.text(max_size=8)
numbers = st.integers(1, 99)
sentences = st.one_of(
    words,
    st.builds(lambda problem: message("failed_to_explain", problem=problem), words),
    st.builds(lambda file, problem: message("not_readable", file=file, problem=message("failed_to_explain", problem=problem)), words, words),
)  # fmt: skip
texts = st.dictionaries(numbers, words, max_size=2)
files = st.dictionaries(words, words, max_size=2)
columns = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))
known_places = st.builds(Place, st.none() | numbers, numbers, words, st.none() | words, st.none() | words, columns)
places = st.none() | known_places
values = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | words
changes = st.builds(LiveChange, st.sampled_from(["set", "detach", "clone"]), words, st.none() | words, values)


def built(record: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Every field of a record, also one that comes to it after this was written, by what its type is called."""
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "str": sentences, "str | None": st.none() | sentences, "int | None": st.none() | numbers, "bool": st.booleans(),
        "float": st.floats(0, 1e6), "Place | None": places, "Mapping[int, str]": texts, "Mapping[str, str]": files,
        "tuple[str, ...]": st.lists(sentences, max_size=2).map(tuple), "tuple[int, ...]": st.lists(numbers, max_size=2).map(tuple),
        "tuple[Place, ...]": st.lists(known_places, max_size=2).map(tuple),
        "tuple[LiveChange, ...]": st.lists(changes, max_size=2).map(tuple),
        "Gradients": st.sampled_from(["same", "truncated", "different", "unknown"]),
        "Mapping[str, float]": st.dictionaries(words, st.floats(0, 10) | st.just(float("inf")), max_size=2),
    }  # fmt: skip
    return st.builds(
        record, **{f.name: known[f.name] if f.name in known else kinds[str(f.type)] for f in fields(record)}
    )


diagnoses = built(
    Diagnosis,
    conflicts=st.lists(built(Conflict), max_size=2).map(tuple),
    fixes=st.lists(built(Fix), max_size=2).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(diagnoses)
def test_json_and_back(found: Diagnosis) -> None:
    again = Diagnosis.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again == found
    assert again.to_dict() == found.to_dict()
    for one, other in zip(_texts(again), _texts(found), strict=True):
        assert type(one) is type(other) and said(one, "zh") == said(other, "zh")


def _texts(found: Diagnosis) -> list[str]:
    records = [found, *found.conflicts, *found.fixes]
    held = [getattr(record, f.name) for record in records for f in fields(record)]
    return [
        text for value in held for text in (value if isinstance(value, tuple) else (value,)) if isinstance(text, str)
    ]


def test_a_sentence_of_another_version_is_kept_as_it_reads() -> None:
    found = Diagnosis("modified", message("failed_to_explain", problem="x"), 2)
    data = json.loads(json.dumps(found.to_dict()))
    data["messages"]["headline"]["kind"] = "of tomorrow"
    assert Diagnosis.from_dict(data) == found and not isinstance(Diagnosis.from_dict(data).headline, Message)


def test_what_is_no_diagnosis_is_refused() -> None:
    with pytest.raises(KeyError):
        Diagnosis.from_dict({"family": "modified"})
