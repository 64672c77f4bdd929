"""Sentences as kinds with arguments: stages hand them on, the report says them in a person's language.

A stage that has something to say declares it where it happens,

    failure=message("timed_out", seconds=20.0)

and the sentence stands under that kind in ``report/wording/en.py`` and ``zh.py``. Code decides by ``kind`` and
``arguments``, never by searching the sentence. A message may be an argument of another one.
"""

from __future__ import annotations

import os
import string
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
_NAMED = 4  # in a sentence
Argument = str | int | float | tuple[str, ...] | None


class Message(str):
    """A sentence. As a ``str`` it reads in English, so that it stands wherever a text may stand."""

    __slots__ = ("arguments", "kind")
    kind: str
    arguments: Mapping[str, Argument]

    def __new__(cls, kind: str, arguments: Mapping[str, Argument]) -> Message:
        made = super().__new__(cls, _filled(kind, arguments, "en"))
        made.kind = kind
        made.arguments = MappingProxyType(dict(arguments))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (self.kind, dict(self.arguments))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "arguments": {name: _plain(value) for name, value in self.arguments.items()}}


def message(kind: str, **arguments: Argument) -> Message:
    """The sentence of a kind. Raises KeyError for a kind, or a place in its sentence, that is not there."""
    return Message(kind, arguments)


def read_message(data: Mapping[str, Any]) -> Message:
    """What ``Message.to_dict`` was made of. Raises KeyError if this version has no such kind."""
    return Message(data["kind"], {name: _read(value) for name, value in data["arguments"].items()})


def kind_of(text: str) -> str | None:
    """The kind of a text, or None if it is plain."""
    return text.kind if isinstance(text, Message) else None


def said(text: str, language: Language) -> str:
    """A text in a language. What is no message (code, a name, torch's own words) is the same in all of them."""
    return _filled(text.kind, text.arguments, language) if isinstance(text, Message) else text


def listed(items: Sequence[str], language: Language = "en") -> str:
    """``a``, ``a and b``, ``a, b and c``; of many the first ones and how many more: who reads a record has them all."""
    if len(items) > _NAMED:
        items = [*items[: _NAMED - 1], said(message("and_more", count=len(items) - _NAMED + 1), language)]
    comma, last = (", ", " and ") if language == "en" else ("、", " 和 ")
    return last.join([comma.join(items[:-1]), items[-1]] if len(items) > 1 else items)


def language_of(setting: str) -> Language:
    """The language that is set, or for ``auto`` that of the locale: Chinese where it is Chinese, else English."""
    if setting != "auto":
        return "zh" if setting == "zh" else "en"
    named = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "zh" if named.lower().startswith(("zh", "chinese")) else "en"


def sentence_of(kind: str, language: Language) -> str:
    """The catalogue's sentence for a kind, its places still open."""
    from .report.wording import CATALOGUES  # a table without imports of its own, of which nothing else is needed

    return CATALOGUES[language][kind]


def _filled(kind: str, arguments: Mapping[str, Argument], language: Language) -> str:
    return _Filling(language).vformat(sentence_of(kind, language), (), arguments)


class _Filling(string.Formatter):
    """``str.format`` with two forms of its own: ``{x:capital}`` and ``{n:plural|iteration|iterations}``; lists are joined."""

    def __init__(self, language: Language) -> None:
        self._language = language

    def format_field(self, value: Any, form: str) -> str:
        if form.startswith("plural|"):
            _, one, more = form.split("|")
            return one if value == 1 else more
        if isinstance(value, (tuple, list)):
            return listed([said(item, self._language) for item in value], self._language)
        if isinstance(value, str):
            text = said(value, self._language)
            return text[:1].upper() + text[1:] if form == "capital" else text
        return format(value, form)


def _plain(value: Argument) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return read_message(value)
    return tuple(_read(item) for item in value) if isinstance(value, list) else value
