"""Where code objects stand: a range of source, whose file it is, the user's part of a stack."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

TIMED = re.compile(r"<timed (exec|eval)>")


@dataclass(frozen=True)
class SourceRange:
    """A stretch of source: where a code object's instruction stands. Lines are 1-based and as the user sees them.

    Columns are utf-8 byte offsets, as in ``ast``; None where Python does not know. ``cell`` is None for a file.
    """

    cell: int | None
    filename: str
    function: str
    line: int
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


def _library_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    roots = {
        paths["stdlib"],
        paths["platstdlib"],
        paths["purelib"],
        paths["platlib"],
        os.path.dirname(os.path.dirname(__file__)),
    }
    roots.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    roots.add(site.getusersitepackages())
    return tuple(os.path.join(os.path.realpath(root), "") for root in roots if root)


_ROOTS = _library_roots()
_KINDS: dict[str, str] = {}


def kind_of(filename: str) -> str:
    """What a code object's file is: ``user``, ``optim`` (torch.optim), ``nn`` (torch's modules) or ``library``."""
    kind = _KINDS.get(filename)
    if kind is None:
        kind = _KINDS[filename] = _classify(filename)
    return kind


def _classify(filename: str) -> str:
    if filename.startswith(("<ipython-input-", "<replayed In[")) or TIMED.match(filename):
        return "user"
    if re.search(r"[/\\]ipykernel_\d+[/\\]\d+\.py$", filename):
        return "user"
    if filename.startswith("<"):
        return "library"  # exec'd text and frozen modules: the line that called it is the user's
    real = os.path.realpath(filename)
    slashed = real.replace("\\", "/")
    if "/torch/optim/" in slashed:
        return "optim"
    if "/torch/nn/modules/" in slashed or "/torch/nn/functional" in slashed:
        return "nn"
    if real.startswith(_ROOTS) or "/site-packages/" in slashed or "/dist-packages/" in slashed:
        return "library"
    for folder in {os.path.realpath(entry) for entry in sys.path if isinstance(entry, str) and entry}:
        inside = os.path.relpath(real, folder) if real.startswith(os.path.join(folder, "")) else ""
        if inside.split(os.sep)[0] in _installed_into(folder):
            return "library"
    return "user"


@lru_cache(maxsize=256)
def _installed_into(folder: str) -> frozenset[str]:
    """What an installer has put into a folder (``pip install --target``): it leaves a record of each distribution."""
    found: set[str] = set()
    for record in glob.iglob(os.path.join(glob.escape(folder), "*.dist-info", "RECORD")):
        with contextlib.suppress(OSError, UnicodeDecodeError), open(record, encoding="utf-8") as lines:
            found.update(re.split(r"[/,]", line, maxsplit=1)[0] for line in lines)
    return frozenset(found)


def caller() -> types.FrameType | None:
    """The frame that called the function that asks; None in a device's thread, where torch itself calls."""
    try:
        return sys._getframe(2)
    except ValueError:
        return None


def user_stack(frame: types.FrameType | None) -> tuple[tuple[types.CodeType, int], ...]:
    """(code, last instruction) of the user's frames from ``frame`` outwards, up to the cell's own level."""
    stack: list[tuple[types.CodeType, int]] = []
    kinds = _KINDS  # this runs for every tensor that is saved
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        if (kinds.get(filename) or kind_of(filename)) == "user":
            stack.append((code, frame.f_lasti))
            if code.co_name == "<module>":
                break
        frame = frame.f_back
    return tuple(stack)


def line_of(code: types.CodeType, instruction: int) -> int | None:
    """The line of an instruction."""
    return next((line for start, end, line in code.co_lines() if start <= instruction < end), None)


def user_frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """The same frames themselves."""
    while frame is not None:
        if kind_of(frame.f_code.co_filename) == "user":
            yield frame
            if frame.f_code.co_name == "<module>":
                return
        frame = frame.f_back


def error_stack(error: BaseException) -> tuple[tuple[types.CodeType, int], ...]:
    """The user's part of an exception's traceback, innermost first."""
    stack = []
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if kind_of(code.co_filename) == "user":
            stack.append((code, tb.tb_lasti))
        tb = tb.tb_next
    return tuple(reversed(stack))
