"""Prints to streams that may not know every character, as a pipe on Windows or a terminal in the C locale."""

from __future__ import annotations

import codecs
import sys
from typing import TextIO

_LIKE = {
    "│": "|",
    "─": "-",
    "·": "-",
    "—": "-",
    "…": "~",
}  # as wide as what they stand for: carets stay in their column
_HANDLER = "inplace_magic.alike"


def say(text: str, stream: TextIO | None = None, *, end: str = "\n") -> None:
    """Prints to stdout, or to another stream, what its encoding can show of a text. Raises what the stream raises."""
    stream = sys.stdout if stream is None else stream
    print(showable(text, stream), file=stream, end=end, flush=hasattr(stream, "flush"))


def showable(text: str, stream: TextIO) -> str:
    """A text without the characters that a stream would refuse: each becomes one that looks alike, or a question mark."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        return text.encode(encoding, _HANDLER).decode(encoding)
    except LookupError:
        return text


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_LIKE.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error(_HANDLER, _alike)
