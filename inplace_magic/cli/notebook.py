"""Runs notebooks in real kernels, cell by cell, with the extension loaded."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from ..diagnosis import Diagnosis, shown_path
from ..message import language_of, message
from ..report.bundle import MIME
from ..report.printing import say
from ..source.atomic_write import NotWrittenError, outside, write_bytes
from . import ipynb
from .output import Output
from .settings import FAILED, FINDING, HEALTHY, BadUseError, Settings
from .without_watch import without_first_line
from .write_fix import write_fix

_WATCH = "%%autograd_check --quiet\n"  # that nothing is found is said once, at the end
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def run_all(targets: list[str], settings: Settings) -> int:
    """Runs notebooks, and those of folders. Returns the exit status of the worst of them."""
    paths = list(_notebooks(targets))
    _needs_nbclient()
    output = Output(settings.json, language_of(settings.language))
    statuses = []
    with output.reserved():
        for path in paths:
            try:
                statuses.append(_run(path, settings, output))
            except BadUseError as problem:
                output.say(problem.args[0])
                statuses.append(FAILED)
    return FINDING if FINDING in statuses else max(statuses, default=HEALTHY)


def _notebooks(targets: list[str]) -> Iterator[str]:
    for target in targets:
        if not os.path.isdir(target):
            if not target.endswith(".ipynb"):
                raise BadUseError(message("cli_arguments_of_notebook", target=target))
            yield target
            continue
        found = sorted(_within(target))
        if not found:
            raise BadUseError(message("cli_empty_folder", target=target))
        yield from found


def _within(folder: str) -> Iterator[str]:
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]  # .ipynb_checkpoints among them
        yield from (os.path.join(base, name) for name in files if name.endswith(".ipynb"))


def _needs_nbclient() -> None:
    try:
        import ipykernel  # noqa: F401
        import nbclient  # noqa: F401
    except ImportError as problem:
        raise BadUseError(message("cli_needs_nbclient", name=problem.name)) from None


def _run(path: str, settings: Settings, output: Output) -> int:
    notebook = ipynb.read(path)
    if notebook.language.lower() not in ("python", "ipython", "python3"):
        raise BadUseError(message("cli_other_language", target=path, language=notebook.language))
    output.say(message("cli_running", target=shown_path(path), count=len(notebook.code)))
    run = Run(notebook, settings, output)
    found = run.through()
    for one in found:
        output.finding(one, path)
    wrong = [one for one in found if not one.may_be_meant]
    if wrong and settings.fix:
        _fix(notebook, wrong[0], run.cells, output)
        if len(wrong) > 1:
            output.say(message("cli_first_of_several"))
    if wrong:
        return FINDING
    if run.failure is not None:
        say(run.failure, sys.stderr)
        return FAILED
    if not found:
        output.say(message("cli_nothing_found", target=shown_path(path)))
    return HEALTHY


class Run:
    """One notebook in one kernel. ``cells`` gives the index of the cell that had an execution count."""

    def __init__(self, notebook: ipynb.Notebook, settings: Settings, output: Output) -> None:
        self.notebook, self.settings, self.output = notebook, settings, output
        self.cells: dict[int, int] = {}
        self.failure: str | None = None
        self._watched: set[int] = set()
        self._found: list[Diagnosis] = []

    def through(self) -> list[Diagnosis]:
        """Runs the cells up to the first that fails. Returns the findings; ``failure`` is any other error's text."""
        from nbclient.exceptions import DeadKernelError

        client = _client(self.notebook)
        tell = self.output.progress()
        try:
            with client.setup_kernel(cwd=os.path.dirname(os.path.abspath(self.notebook.path))):
                if not self._load(client):
                    return []
                for done, index in enumerate(self.notebook.code):
                    tell(f"{shown_path(self.notebook.path)}: {done} of {len(self.notebook.code)} cells have run")
                    if not self._cell(client, index):
                        break
        except DeadKernelError:
            self.failure = f"inplace_magic: the kernel of {shown_path(self.notebook.path)} died"
        return self._found

    def _load(self, client: Any) -> bool:
        limit = f"%config InplaceMagic.time_limit = {self.settings.limit!r}"
        effects = f"%config InplaceMagic.allow_side_effects = {self.settings.effects}"
        for line in ("%load_ext inplace_magic", limit, effects):
            outputs = client.ran(line, quietly=True)
            error = next((o for o in outputs if o["output_type"] == "error"), None)
            if error is not None:
                self.failure = "\n".join(["inplace_magic could not be loaded in the kernel:", *_traceback(error)])
                return False
        return True

    def _cell(self, client: Any, index: int) -> bool:
        """Runs one cell. Returns whether to go on."""
        source = self.notebook.source(index)
        if not source.strip():
            return True
        count = len(self.cells) + 1
        self.cells[count] = index
        cells = self.settings.cells
        if self.settings.check and (cells is None or count in cells) and _can_be_watched(source):
            self._watched.add(count)
            source = _WATCH + source
        outputs = client.ran(source)
        tags = self.notebook.data["cells"][index].get("metadata", {}).get("tags", [])
        if "raises-exception" in tags:
            return True  # as it is meant to
        found = [self._diagnosis(o["data"][MIME]) for o in outputs if MIME in o.get("data", {})]
        self._found += found
        error = next((o for o in outputs if o["output_type"] == "error"), None)
        if error is None:
            return True
        if any(not one.may_be_meant for one in found):
            say("\n".join(_traceback(error)), sys.stderr)
        else:
            self.failure = "\n".join(_traceback(error))
        return False

    def _diagnosis(self, payload: dict[str, Any]) -> Diagnosis:
        found = Diagnosis.from_dict(payload)
        for count in self._watched:
            found = without_first_line(found, count)
        return found


def _can_be_watched(source: str) -> bool:
    """A cell of another language cannot, and one that is only magics has nothing to watch."""
    lines = [line for line in source.splitlines() if line.strip()]
    if lines[0].startswith("%%"):
        return bool(re.match(r"%%(time|capture)\b", lines[0]))
    return not all(line.startswith(("%", "!", "#")) for line in lines)


def _client(notebook: ipynb.Notebook) -> Any:
    """A client whose kernel is this very Python, and which keeps nothing of what cells print."""
    import nbformat
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    class Client(NotebookClient):
        quiet = False

        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] == "stream":
                if not self.quiet:
                    say(msg["content"]["text"], getattr(sys, msg["content"]["name"]), end="")
                return None
            content = msg["content"]
            # What may be updated is kept: our report begins as a sign of life, without the record.
            final = not content.get("transient", {}).get("display_id")
            if msg["msg_type"] in ("display_data", "execute_result") and final and MIME not in content.get("data", {}):
                return None
            return super().process_message(msg, cell, cell_index)

        def ran(self, source: str, quietly: bool = False) -> list[Any]:
            """What came of some code, as outputs."""
            cell = nbformat.v4.new_code_cell(source)
            self.nb.cells[0] = cell
            self.quiet = quietly
            self.execute_cell(cell, 0, store_history=not quietly)
            return list(cell.outputs)

    manager = AsyncKernelManager(kernel_name="python3")
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=50"]
    manager._kernel_spec = KernelSpec(argv=argv, display_name="Python", language="python")
    scratch = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("")])
    client = Client(scratch, km=manager, timeout=None, allow_errors=True)
    client.owns_km = True  # it ends what it starts, although we have made it
    return client


def _traceback(error: Any) -> list[str]:
    lines = error.get("traceback") or [f"{error.get('ename')}: {error.get('evalue')}"]
    return list(lines) if sys.stderr.isatty() else [_ESCAPES.sub("", line) for line in lines]


def _fix(notebook: ipynb.Notebook, found: Diagnosis, cells: dict[int, int], output: Output) -> None:
    def write_notebook() -> str:
        sources = {}
        for count, text in found.fixes[0].cells.items():
            ends = notebook.source(cells[count]).endswith("\n")
            sources[cells[count]] = text if ends else text.removesuffix("\n")
        with contextlib.suppress(OSError), open(notebook.path, encoding="utf-8", newline="") as file:
            if file.read() != notebook.text:
                raise NotWrittenError(message("cli_changed_since_run", file=shown_path(notebook.path)))
        write_bytes(os.path.realpath(notebook.path), ipynb.rewritten(notebook, sources).encode())
        return notebook.path

    reason = outside(notebook.path)
    if found.fixes and found.fixes[0].cells and reason is not None:
        output.say(
            message("cli_nothing_written", reason=message("not_written", file=shown_path(notebook.path), reason=reason))
        )
        return
    write_fix(found, output, write_notebook if found.fixes and found.fixes[0].cells else None)
