"""Accepting a fix: definitions are fixed where they stand, live objects with them; what has to run is run.

Every act answers in one line, which the caller prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from .diagnosis import Diagnosis, Fix, shown_path
from .message import message
from .session.host import Accepted, Host
from .session.patch_live import Undo, apply_change, patch_functions, renew_module
from .session.run_cell import can_run, compile_cell, run_cell_shown
from .session.shell import names_its_cell
from .source.atomic_write import NotWrittenError, backup_of, check, write_source
from .source.document import FileSource
from .source.sources import Sources


@dataclass(frozen=True)
class Made:
    """What accepting came to: whether it was accepted just now, and the fix of the same report that it replaced."""

    new: bool
    instead_of: int | None = None

    def told(self, answer: str) -> str:
        return answer if self.instead_of is None else message("instead", answer=answer, number=self.instead_of)


def make_live(extension: Host, found: Diagnosis, number: int, fix: Fix) -> Made:
    """Fixes what lives in the kernel: functions of the rewritten cells, and the live objects that the fix names.

    Accepting twice changes nothing the second time. The fixes of a report are alternatives: if the one that was accepted
    last is another of them, it is taken back first. If one change fails, those before it are taken back and its error
    is raised.
    """
    if _accepted(extension, found, number) is not None:
        return Made(new=False)
    last = extension.accepted[-1] if extension.accepted else None
    instead_of = last.number if last is not None and last.diagnosis == found.id else None
    if instead_of is not None:
        take_back(extension)
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
    extension.accepted.append(Accepted(found.id, number, _changed(fix), bool(fix.cells), undo))
    return Made(new=True, instead_of=instead_of)


def _accepted(extension: Host, found: Diagnosis, number: int) -> Accepted | None:
    return next((one for one in extension.accepted if (one.diagnosis, one.number) == (found.id, number)), None)


def _changed(fix: Fix) -> tuple[str, ...]:
    """What a fix changes, as a person calls it."""
    return (*(f"In[{cell}]" for cell in fix.cells), *(shown_path(path) for path in fix.files)) or tuple(
        f"`{change.path}`" for change in fix.live
    )


def _told(fix: Fix) -> tuple[str, ...]:
    """The same, with where a file's old text is kept."""
    backups = {
        name: message("with_backup", file=name, backup=shown_path(backup_of(path)))
        for path in fix.files
        for name in (shown_path(path),)
    }
    return tuple(backups.get(name, name) for name in _changed(fix))


def _patch_file(extension: Host, sources: Sources, path: str, text: str) -> list[Undo]:
    """Fixes what was loaded from a file: its functions where they stand, changed statements of its top level anew."""
    number = extension.session.files.numbers.get(path)
    document = sources.cells.get(number) if number is not None else None
    if number is None or not isinstance(document, FileSource):
        return []  # nothing of it lives
    shell = extension.shell
    undo = patch_functions(sources, number, text, lambda c: compile_cell(shell, c), shell.user_ns)
    return undo + renew_module(document, text)


def _restore_texts(extension: Host, before: dict[int, str | None]) -> None:
    for cell, text in before.items():
        if text is None:
            extension.session.texts.pop(cell, None)
        else:
            extension.session.texts[cell] = text


def take_back(extension: Host, found: Diagnosis | None = None, number: int = 1) -> str:
    """Undoes the last fix that was accepted, or a certain one, and says so.

    A file that has changed since is left alone: NotWrittenError is raised when all else is undone.
    """
    last = extension.accepted[-1] if extension.accepted else None
    taken = last if found is None else _accepted(extension, found, number)
    if taken is None:
        return message("nothing_to_undo")
    extension.accepted.remove(taken)
    left: NotWrittenError | None = None
    for step in reversed(taken.undo):
        try:
            step()
        except NotWrittenError as reason:
            left = reason
    if left is not None:
        raise left
    kind = "undone_kernel" if taken.cells and hasattr(extension.shell, "kernel") else "undone"
    return message(kind, what=taken.what, count=len(taken.what))


def put_in_place(extension: Host, found: Diagnosis, number: int, fix: Fix) -> str:
    """Makes the fix live and hands the rewritten cell to the person: in the next prompt, or in a cell below this one."""
    made = make_live(extension, found, number, fix)
    cell = _cell_to_show(found, fix)
    what = _told(fix)
    if hasattr(extension.shell, "kernel"):
        again = tuple(f"In[{n}]" for n in fix.run or (found.cell or 0,))
        if cell not in fix.cells:
            return made.told(message("fixed_run_again", what=what, cells=again))
        extension.shell.set_next_input(fix.cells[cell], replace=False)
        runs = message("ran_it") if again == (f"In[{cell}]",) else again
        kind = _more("fixed_below", fix, cell) if names_its_cell(extension.shell) else "fixed_handed"
        return made.told(message(kind, what=what, cell=cell, cells=runs))
    extension.prompt.offer(_runnable(found, fix))
    if extension.prompt.there:
        return made.told(message("fixed_next_prompt" if made.new else "accepted_next_prompt", what=what, number=number))
    command = "%autograd_fix --run" if number == 1 else f"%autograd_fix {number} --run"
    kind = "fixed_command" if made.new else "accepted_command"
    return made.told(message(kind, what=what, number=number, command=command))


def run(extension: Host, found: Diagnosis, number: int, fix: Fix) -> str:
    """Makes the fix live and runs every cell that has to run, the failing one last. Their errors are let through.

    What cannot be run from here is handed to the person, as without ``--run``.
    """
    shell, cell = extension.shell, _cell_to_show(found, fix)
    cells = extension.session.sources(found.cell or 0).with_texts(fix.cells).cells
    if not all(can_run(shell, cells[count]) for count in fix.run):
        return message("not_run_await", answer=put_in_place(extension, found, number, fix))
    if fix.once:
        return message("not_run_once", answer=put_in_place(extension, found, number, fix), error=fix.once)
    made = make_live(extension, found, number, fix)
    accepted = _accepted(extension, found, number)
    if accepted is not None and accepted.ran:  # it may train: nobody asks for that twice by accident
        return message("ran_already", number=number, cells=tuple(f"In[{count}]" for count in fix.run))
    in_notebook = hasattr(shell, "kernel") and cell in fix.cells
    below = in_notebook and names_its_cell(shell)  # else it may be a prompt that holds it, and Enter would run it again
    if below:
        shell.set_next_input(fix.cells[cell], replace=False)
    session = extension.session
    sources = session.sources(found.cell or 0)
    for count in fix.run:
        run_cell_shown(shell, sources.cells[count])
        if count in session.failed:
            session.failed.discard(count)
            if accepted is not None:  # once its old text is back, it fails again in a replay
                accepted.undo.append(partial(session.failed.add, count))
    if accepted is not None:
        accepted.ran = True
    what, ran = _told(fix), tuple(f"In[{count}]" for count in fix.run)
    it = (message("ran_it"),) if ran == what else ran
    if below:
        kind = _more("fixed_and_ran_below", fix, cell)
    else:
        kind = "fixed_and_ran_handed" if in_notebook else "fixed_and_ran"
    return made.told(message(kind, what=what, ran=it, cell=cell))


def _cell_to_show(found: Diagnosis, fix: Fix) -> int:
    """The failing cell where the fix rewrites it, else the first cell that it rewrites, else the failing cell."""
    failing = found.cell or 0
    return failing if failing in fix.cells or not fix.cells else min(fix.cells)


def _more(kind: str, fix: Fix, cell: int) -> str:
    """Where a fix rewrites more cells than the one that is shown, the others are named, too."""
    return f"{kind}_others" if len(fix.cells) > 1 else kind


def _runnable(found: Diagnosis, fix: Fix) -> str:
    """What the next prompt holds: the failing cell, as it is to run."""
    return fix.cells.get(found.cell or 0) or found.sources.get(found.cell or 0, "")
