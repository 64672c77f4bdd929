"""Renaming a folder that is really there: an overlay of the kernel's refuses it (EXDEV), so it is copied."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from typing import Any

from . import run as runs
from .replacements import Function, Replacement

__all__ = ["moving_replacements"]


def moving_replacements() -> Iterator[Replacement]:
    """What stands in for the functions that rename."""
    for name in ("rename", "replace"):
        yield os, name, _moved_by_copy(getattr(os, name))


def _moved_by_copy(original: Function) -> Function:
    def rename(src: Any, dst: Any, **folders: Any) -> Any:
        try:
            return original(src, dst, **folders)
        except OSError as error:
            if error.errno != errno.EXDEV or folders or runs.mine() is None or not _is_folder(src):
                raise
        copy = f"{os.fsdecode(dst).rstrip('/')}.moved-{os.getpid()}"
        try:
            shutil.copytree(src, copy, symlinks=True)
            original(copy, dst)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        shutil.rmtree(src)
        return None

    return rename


def _is_folder(path: Any) -> bool:
    return os.path.isdir(path) and not os.path.islink(os.fsdecode(path).rstrip("/"))
