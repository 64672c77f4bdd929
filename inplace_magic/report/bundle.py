"""The report as a display bundle: every front end takes the richest form that it knows."""

from __future__ import annotations

from typing import Any

from ..diagnosis import Diagnosis
from ..message import Language
from . import html, text
from .contents import report_of

MIME = "application/vnd.inplace-magic.v1+json"


def bundle(diagnosis: Diagnosis, *, width: int, language: Language = "en", whole: bool = False) -> dict[str, Any]:
    """Plain text, html, and the record itself for the panel and for programs, with its ``report`` in the language."""
    return {
        "text/plain": text.render(diagnosis, width=width, color=False, language=language, whole=whole),
        "text/html": html.render(diagnosis, language=language),
        MIME: diagnosis.to_dict() | {"report": report_of(diagnosis, language).to_dict()},
    }
