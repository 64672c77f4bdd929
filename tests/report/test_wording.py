"""The catalogue of sentences: the same kinds in both languages, each with the same places, all of them in use."""

from __future__ import annotations

import ast
import os
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import inplace_magic
from inplace_magic.message import LANGUAGES, Language
from inplace_magic.report import panel_words
from inplace_magic.report.wording import CATALOGUES

PACKAGE = Path(inplace_magic.__file__).parent
EN, ZH = CATALOGUES["en"], CATALOGUES["zh"]


def places_of(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def calls() -> Iterator[tuple[Path, ast.Call]]:
    """Every ``message(...)`` of the package."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "message":
                yield path, node


def test_both_languages_have_the_same_kinds_in_the_same_order() -> None:
    assert list(EN) == list(ZH)


def test_a_translation_has_places_for_no_other_arguments() -> None:
    for kind in EN:
        assert places_of(ZH[kind]) <= places_of(EN[kind]), kind
        assert places_of(EN[kind]) - places_of(ZH[kind]) <= {"count", "cells"}, f"{kind}: only a plural needs no count"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_that_code_names_is_there_with_its_arguments(language: Language) -> None:
    for path, call in calls():
        kind, *_ = call.args
        if isinstance(kind, ast.Constant):
            assert kind.value in CATALOGUES[language], f"{path.name}:{call.lineno}"
            if not any(keyword.arg is None for keyword in call.keywords):
                given = {keyword.arg for keyword in call.keywords}
                assert places_of(CATALOGUES[language][kind.value]) <= given, f"{path.name}:{call.lineno}"


def titles() -> Iterator[tuple[str, str]]:
    """What a fix is called where that is no message, ``x`` for what is put into it."""
    for path in (PACKAGE / "transforms").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            at = {"Proposal": 0, "in_one_text": 2}.get(getattr(getattr(node, "func", None), "id", ""))
            if isinstance(node, ast.Call) and at is not None:
                named = [keyword.value for keyword in node.keywords if keyword.arg == "title"]
                (title,) = [*node.args[at : at + 1], *named]
                parts = title.values if isinstance(title, ast.JoinedStr) else [title]
                if isinstance(title, (ast.JoinedStr, ast.Constant)):
                    text = "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
                    yield f"{path.name}:{node.lineno}", text


def test_a_title_is_a_message_unless_it_is_code() -> None:
    found = dict(titles())
    assert found
    for place, title in found.items():
        assert ast.parse(f"{title}\ndef f(): ..." if title.startswith("@") else title), place


def test_a_chinese_sentence_has_chinese_punctuation_between_chinese_words() -> None:
    assert [kind for kind, text in ZH.items() if re.search(r"[\u3400-\u9fff][,;:!?](?!//)", text)] == []


def test_the_panels_sentences_are_the_catalogues() -> None:
    """INPLACE_MAGIC_WRITE_GOLDEN=1 puts them there."""
    path = PACKAGE / "labextension" / "static" / "remoteEntry.js"
    text = path.read_text(encoding="utf-8")
    start, end = text.index(panel_words.BEGIN) + len(panel_words.BEGIN), text.index(panel_words.END)
    if os.environ.get("INPLACE_MAGIC_WRITE_GOLDEN"):
        path.write_text(text[:start] + panel_words.block() + text[end:], encoding="utf-8")
        return
    assert text[start:end] == panel_words.block()


def test_every_sentence_of_the_panel_is_said_by_it() -> None:
    text = (PACKAGE / "labextension" / "static" / "remoteEntry.js").read_text(encoding="utf-8")
    code = text[text.index(panel_words.END) :]
    assert [kind for kind in EN if kind.startswith("panel_") and f"'{kind}'" not in code] == []


def test_no_sentence_is_left_over() -> None:
    """A kind stands in the code by its name, or by the beginning to which a family or an effect is added."""
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.parent.name != "wording"
    )
    beginnings = tuple(re.findall(r'f"(\w+_)\{', code))
    named = set(re.findall(r'"(\w+)"', code))
    spare = [
        kind
        for kind in EN
        if not kind.startswith(("panel_", *beginnings)) and kind not in named and not kind.endswith("_others")
    ]
    assert spare == []
