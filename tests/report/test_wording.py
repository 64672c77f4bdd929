"""The catalogue of sentences: the same kinds in both languages, each with the same places, all of them in use."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import inplace_magic
from inplace_magic.message import LANGUAGES, Language
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


@pytest.mark.parametrize("kind", EN)
def test_a_translation_has_places_for_no_other_arguments(kind: str) -> None:
    assert places_of(ZH[kind]) <= places_of(EN[kind])
    assert places_of(EN[kind]) - places_of(ZH[kind]) <= {"count", "cells"}, "only a plural needs no count of its own"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_that_code_names_is_there_with_its_arguments(language: Language) -> None:
    for path, call in calls():
        kind, *_ = call.args
        if isinstance(kind, ast.Constant):
            assert kind.value in CATALOGUES[language], f"{path.name}:{call.lineno}"
            if not any(keyword.arg is None for keyword in call.keywords):
                given = {keyword.arg for keyword in call.keywords}
                assert places_of(CATALOGUES[language][kind.value]) <= given, f"{path.name}:{call.lineno}"


@pytest.mark.parametrize("kind", ZH)
def test_a_chinese_sentence_has_chinese_punctuation_between_chinese_words(kind: str) -> None:
    assert not re.search(r"[\u3400-\u9fff][,;:!?](?!//)", ZH[kind])
