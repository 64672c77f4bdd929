"""A notebook file as text: the sources of cells are changed with every other byte left as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..message import message
from .settings import BadUseError

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Notebook:
    """A notebook's text and what it says. ``code`` are the indices of its code cells, in order."""

    path: str
    text: str
    data: dict[str, Any]

    @property
    def code(self) -> list[int]:
        return [i for i, cell in enumerate(self.data["cells"]) if cell.get("cell_type") == "code"]

    def source(self, index: int) -> str:
        source = self.data["cells"][index].get("source", "")
        return source if isinstance(source, str) else "".join(source)

    @property
    def language(self) -> str:
        """The language of its kernel; Python if it says nothing."""
        metadata = self.data.get("metadata", {})
        named = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
        return str(named or "python")


def read(path: str) -> Notebook:
    """Raises BadUseError with one line for whatever is no notebook of today's format."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        data = json.loads(text)
    except OSError as problem:
        raise BadUseError(message("cli_unreadable", target=path, problem=problem.strerror)) from None
    except ValueError as problem:
        raise BadUseError(message("cli_invalid_json", target=path, problem=str(problem))) from None
    if not isinstance(data, dict) or not isinstance(data.get("nbformat"), int):
        raise BadUseError(message("cli_no_nbformat", target=path))
    cells = data.get("cells")
    if data["nbformat"] < 4 or not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise BadUseError(message("cli_old_format", target=path))
    return Notebook(path, text, data)


def rewritten(notebook: Notebook, sources: Mapping[int, str]) -> str:
    """The notebook's text with new sources for some cells, by index."""
    text = notebook.text
    cells = list(_items(text, _value_at(text, _start(text), "cells")))
    for index, source in sorted(sources.items(), reverse=True):
        start = _value_at(text, cells[index], "source")
        _, end = _DECODER.raw_decode(text, start)
        text = text[:start] + _encoded(notebook, text[start:end], source) + text[end:]
    return text


def _encoded(notebook: Notebook, old: str, source: str) -> str:
    """A source as json in the manner of the old one: a list of lines on lines of their own, or a string."""
    ascii_only = notebook.text.isascii()
    if not old.startswith("["):
        return json.dumps(source, ensure_ascii=ascii_only)
    lines = [json.dumps(line, ensure_ascii=ascii_only) for line in source.splitlines(keepends=True)]
    if not lines:
        return "[]"
    first = re.match(r"\[(\s*)", old)
    last = re.search(r"(\s*)\]$", old)
    inner, outer = (first.group(1), last.group(1)) if first and last and old.strip("[] \r\n\t") else ("", "")
    between = f",{inner}" if inner else ", "
    return f"[{inner}{between.join(lines)}{outer}]"


def _start(text: str) -> int:
    return _skip(text, 0)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _value_at(text: str, at: int, key: str) -> int:
    """Where the value of a key begins, in the object that begins at ``at``."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if name == key:
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _next(text, at)
    raise KeyError(key)


def _items(text: str, at: int) -> Iterator[int]:
    """Where the items begin of the list that begins at ``at``."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        _, at = _DECODER.raw_decode(text, at)
        at = _next(text, at)


def _next(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at
