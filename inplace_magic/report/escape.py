"""Text of the user made safe to show: what would steer a terminal or a browser is shown escaped instead."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

#: Controls (ANSI escapes among them), bidi and zero-width marks, surrogates, line and paragraph separators.
_STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """One line with tabs widened and every character that steers rather than shows written as its escape."""
    text = text.expandtabs(4)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _STEERING else c for c in text)


def one_line(text: str) -> str:
    """``text`` as a single visible line: line breaks and the indentation around them become one space."""
    return visible(re.sub(r"\s*[\r\n]+\s*", " ", text.strip()))


def lines(text: str) -> list[str]:
    """Lines as an editor counts them. ``str.splitlines`` also breaks at form feeds and U+2028, which code may hold."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def code_spans(text: str) -> Iterator[tuple[bool, str]]:
    """Split prose at its `backticks` into ``(is_code, part)``; a backtick without a partner stays prose."""
    for i, part in enumerate(re.split(r"`([^`]+)`", text)):
        if part:
            yield i % 2 == 1, part


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
