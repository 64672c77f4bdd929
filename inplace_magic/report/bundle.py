"""The report as a display bundle: every front end takes the richest form that it knows."""

from __future__ import annotations

from typing import Any

from ..diagnosis import Diagnosis
from . import html, text

MIME = "application/vnd.inplace-magic.v1+json"


def bundle(diagnosis: Diagnosis, *, width: int) -> dict[str, Any]:
    """Plain text, html, and the record itself for the button in the notebook and for programs."""
    return {
        "text/plain": text.render(diagnosis, width=width, color=False),
        "text/html": html.render(diagnosis),
        MIME: diagnosis.to_dict(),
    }
