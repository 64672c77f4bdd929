from __future__ import annotations

import json
import pickle

import pytest

from inplace_magic.message import Message, kind_of, listed, message, read_message, said


def test_a_plain_text_stays_as_it_is() -> None:
    assert said("x = x + 1", "zh") == "x = x + 1"
    assert kind_of("x = x + 1") is None


def test_a_message_reads_in_english_wherever_a_text_may_stand() -> None:
    reason = message("timed_out", seconds=20.0)
    assert isinstance(reason, str)
    assert reason == "it took longer than 20 s"
    assert f"{reason}." == "it took longer than 20 s."


def test_a_message_is_told_by_its_kind_and_arguments() -> None:
    reason = message("timed_out", seconds=20.0)
    assert kind_of(reason) == "timed_out"
    assert reason.arguments["seconds"] == 20.0


def test_an_argument_that_is_a_message_is_said_in_the_same_language() -> None:
    told = message("not_rerun_watched", what=message("the_cell"), reason=message("did_not_fail"))
    assert told == "No fix could be verified, since the cell was not run again: it did not fail again."
    assert said(told, "zh") == "无法验证任何修复，因为单元格没有重新运行：这次没有失败。"


@pytest.mark.parametrize(
    ("names", "en", "zh"),
    [
        (("a",), "a", "a"),
        (("a", "b", "c"), "a, b and c", "a、b 和 c"),
        (("a", "b", "c", "d"), "a, b, c and d", "a、b、c 和 d"),
        (tuple("abcdef"), "a, b, c and 3 more", "a、b、c 和 另外 3 个"),
    ],
    ids=["one", "a few", "as many as are named", "many"],
)
def test_names_are_joined_as_the_language_joins_them(names: tuple[str, ...], en: str, zh: str) -> None:
    assert (listed(names), listed(names, "zh")) == (en, zh)


@pytest.mark.parametrize(("count", "ending"), [(1, "1 more change"), (2, "2 more changes")])
def test_one_is_no_plural(count: int, ending: str) -> None:
    assert message("and_more_changes", title="t", count=count) == f"t and {ending}"


def test_text_of_the_persons_own_is_no_template() -> None:
    assert message("live_too", code="x['{y}'] = {z}") == "`x['{y}'] = {z}` is also applied to the existing object"


def test_a_message_comes_back_whole_out_of_a_pickle_and_out_of_json() -> None:
    told = message("not_rerun", what=message("the_cell"), reason=message("timed_out", seconds=2.5), basis="{n}")
    for back in (pickle.loads(pickle.dumps(told)), read_message(json.loads(json.dumps(told.to_dict())))):
        assert isinstance(back, Message)
        assert (back, back.kind, dict(back.arguments)) == (told, told.kind, dict(told.arguments))
        assert said(back, "zh") == said(told, "zh")


def test_a_kind_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(KeyError):
        message("no_such_kind")
