"""Warnings keep their own line while our function mode stands between the person's code and torch.

A warning belongs to the frame that is so many levels up from where it is raised; a frame of ours there would give it our
file and line, and our module's registry of what was shown "once" or for the first time at a place. Such a warning is
raised anew at the frame that it would have had.
"""

from __future__ import annotations

import os
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_DISPATCH = torch.overrides.__file__


class OwnWarnings:
    """Enter it around what is watched. Private in ``warnings``, seen in Python 3.10 to 3.14: ``_showwarnmsg``, which C
    code asks for as well. Gone: such warnings have our line."""

    def __init__(self) -> None:
        self._plain: Any = getattr(warnings, "_showwarnmsg", None)

    def __enter__(self) -> None:
        self._plain = getattr(warnings, "_showwarnmsg", None)
        if self._plain is not None:
            warnings._showwarnmsg = self._show  # type: ignore[attr-defined]

    def __exit__(self, *exception: object) -> None:
        if self._plain is not None:
            warnings._showwarnmsg = self._plain  # type: ignore[attr-defined]

    def _show(self, shown: warnings.WarningMessage) -> None:
        frame = _raised_at(sys._getframe(1)) if _between(shown.filename) else None
        if frame is None:
            self._plain(shown)
            return
        text, category = str(shown.message), shown.category
        for ours in _frames(sys._getframe(1)):
            if _between(ours.f_code.co_filename):
                ours.f_globals.pop("__warningregistry__", None)
        getattr(warnings, "onceregistry", {}).pop((text, category), None)
        warnings.warn_explicit(
            message=shown.message,
            category=category,
            filename=frame.f_code.co_filename,
            lineno=frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
            source=shown.source,
        )


def _between(filename: str) -> bool:
    return filename.startswith(_OURS) or filename == _DISPATCH


def _frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _raised_at(frame: types.FrameType | None) -> types.FrameType | None:
    """The first frame beyond ours. A function of torch's that the mode has called again stands on both sides of us."""
    inner: types.FrameType | None = None
    for one in _frames(frame):
        if one.f_globals.get("__name__") == __name__ or one.f_code.co_filename == warnings.__file__:
            continue
        if not _between(one.f_code.co_filename):
            inner = one
            continue
        break
    else:
        return None
    beyond = (f for f in _frames(one) if not _between(f.f_code.co_filename))
    first = next(beyond, None)
    if first is not None and inner is not None and first.f_code is inner.f_code:
        return first.f_back
    return first
