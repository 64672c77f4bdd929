"""The report as a display bundle: every front end takes the richest form that it knows."""

from __future__ import annotations

from typing import Any

from ..diagnosis import Diagnosis
from ..message import Language, message, said
from . import html, text
from .contents import report_of

MIME = "application/vnd.inplace-magic.v1+json"


def bundle(
    diagnosis: Diagnosis, *, width: int, language: Language = "en", whole: bool = False, pending: bool = False
) -> dict[str, Any]:
    """Plain text, html, and the record itself for the panel and for programs, with its ``report`` in the language.

    ``pending``: fixes are still looked for, and those that are there may be joined by others.
    """
    looking = said(message("looking"), language) if pending else ""
    drawn = text.render(diagnosis, width=width, color=False, language=language, whole=whole, pending=looking)
    report = report_of(diagnosis, language).to_dict() | {"pending": looking}
    return {
        "text/plain": drawn,
        "text/html": html.render(diagnosis, language=language, pending=looking),
        MIME: diagnosis.to_dict() | {"report": report},
    }
