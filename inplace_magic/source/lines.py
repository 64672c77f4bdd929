"""Lines as Python counts them."""

from __future__ import annotations

import re

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines_of(text: str, keepends: bool = False) -> list[str]:
    """``str.splitlines``, which also breaks at form feeds and U+2028, as code may hold; Python's parser does not."""
    lines = _LINE.findall(text)
    return lines if keepends else [line.rstrip("\r\n") for line in lines]
