"""Accepting a fix: definitions are fixed where they stand, live objects with them, and what has to run is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .diagnosis import Diagnosis, Fix, shown_path
from .session.patch_live import Undo, apply_change, patch_functions, renew_module
from .session.run_cell import compile_cell, run_cell_shown
from .source.atomic_write import NotWrittenError, check, write_source
from .source.document import File, Sources

if TYPE_CHECKING:
    from .extension import Extension


def make_live(extension: Extension, found: Diagnosis, number: int, fix: Fix) -> None:
    """Fixes what lives in the kernel: functions of the rewritten cells, and the live objects that the fix names.

    Accepting twice changes nothing the second time. If one change fails, those before it are taken back and its error
    is raised.
    """
    key = f"{found.id}:{number}"
    if key in extension.undo:
        return
    session, shell = extension.session, extension.shell
    sources = session.sources(found.cell or shell.execution_count)
    for path in fix.files:
        check(path, found.files[path])
    undo: list[Undo] = []
    before = {cell: session.texts.get(cell) for cell in fix.cells}
    try:
        for cell, text in fix.cells.items():
            undo += patch_functions(sources, cell, text, lambda c: compile_cell(shell, c), shell.user_ns)
        for path, text in fix.files.items():
            undo += _patch_file(extension, sources, path, text)
            undo.append(write_source(path, found.files[path], text))
        for change in fix.live:
            undo.append(apply_change(change, shell.user_ns))
        undo.append(lambda: _restore_texts(extension, before))
        session.texts.update(fix.cells)
    except BaseException:
        for step in reversed(undo):
            step()
        raise
    extension.undo[key] = undo


def _patch_file(extension: Extension, sources: Sources, path: str, text: str) -> list[Undo]:
    """Fixes what was loaded from a file: its functions where they stand, changed statements of its top level anew."""
    number = extension.session.files.numbers.get(path)
    document = sources.cells.get(number) if number is not None else None
    if number is None or not isinstance(document, File):
        return []  # nothing of it lives
    shell = extension.shell
    undo = patch_functions(sources, number, text, lambda c: compile_cell(shell, c), shell.user_ns)
    return undo + renew_module(document, text)


def _restore_texts(extension: Extension, before: dict[int, str | None]) -> None:
    for cell, text in before.items():
        if text is None:
            extension.session.texts.pop(cell, None)
        else:
            extension.session.texts[cell] = text


def take_back(extension: Extension, found: Diagnosis, number: int) -> None:
    """Undoes ``make_live``. A file that has changed since is left alone; that is said when all else is undone."""
    left: NotWrittenError | None = None
    for step in reversed(extension.undo.pop(f"{found.id}:{number}", [])):
        try:
            step()
        except NotWrittenError as reason:
            left = reason
    if left is not None:
        raise left


def put_in_place(extension: Extension, found: Diagnosis, number: int, fix: Fix) -> None:
    """Makes the fix live and hands the rewritten cell to the person: the next prompt, or this cell's place."""
    make_live(extension, found, number, fix)
    _say(found, fix, extension)
    text = _cell_text(found, fix)
    extension.shell.set_next_input(text, replace=True)


def run(extension: Extension, found: Diagnosis, number: int, fix: Fix) -> None:
    """Makes the fix live and runs every cell that has to run, the failing one last. Their errors are let through."""
    make_live(extension, found, number, fix)
    _say(found, fix, extension)
    extension.shell.set_next_input(_cell_text(found, fix), replace=True)
    sources = extension.session.sources(found.cell or 0)
    for cell in fix.run:
        run_cell_shown(extension.shell, sources.cells[cell])
        extension.session.failed.discard(cell)


def _cell_text(found: Diagnosis, fix: Fix) -> str:
    return fix.cells.get(found.cell or 0) or found.sources.get(found.cell or 0, "")


def _say(found: Diagnosis, fix: Fix, extension: Extension) -> None:
    """What was changed elsewhere, since the prompt shows the failing cell only."""
    elsewhere = [cell for cell in fix.cells if cell != found.cell]
    for cell in elsewhere:
        print(f"Fixed In[{cell}] in this session; change its text too, so that it stays fixed:")
        print(_diff_of(found, fix, cell))
    for path in fix.files:
        name = shown_path(path)
        print(
            f"Changed {name}, and what this session has loaded from it; its text before the first fix is in {name}.orig"
        )
    for change in fix.live:
        print(f"Done in this session: {change.text}")


def _diff_of(found: Diagnosis, fix: Fix, cell: int) -> str:
    import difflib

    old = found.sources.get(cell, "").splitlines()
    lines = list(difflib.unified_diff(old, fix.cells[cell].splitlines(), lineterm="", n=1))[2:]
    return "\n".join(f"    {line}" for line in lines)
