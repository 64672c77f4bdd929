"""argparse's own sentences in the language of the reports, while it reads options of ours."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from .message import Language, sentence_of

#: What argparse can say about our options, as it says it in English: each is a kind of the catalogue.
_KINDS = (
    "argparse_usage",
    "argparse_targets",
    "argparse_options",
    "argparse_help",
    "argparse_error",
    "argparse_argument",
    "argparse_unrecognized",
    "argparse_one_argument",
    "argparse_choice",
    "argparse_explicit",
    "argparse_type",
)


@contextlib.contextmanager
def argparse_says(language: Language) -> Iterator[None]:
    """argparse hands each of its sentences to ``gettext``, by the name ``_`` of its module: for a while to our catalogue.

    A domain of gettext's own would also reach the user's program, which runs in this process.
    """
    sentences = {sentence_of(kind, "en"): sentence_of(kind, language) for kind in _KINDS}
    before: Any = vars(argparse)["_"]
    vars(argparse)["_"] = lambda sentence: sentences.get(sentence) or before(sentence)
    try:
        yield
    finally:
        vars(argparse)["_"] = before
