"""The magics, with what can be configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from traitlets import Bool, Enum, Float, Int, TraitError, observe, validate

from .argparse_words import argparse_says
from .message import Language, language_of, message, said, sentence_of
from .report.printing import say
from .session.shell import IPythonShell

if TYPE_CHECKING:
    from .options import Options
    from .session.host import Host


@magics_class
class InplaceMagic(Magics):
    """Explains PyTorch's in-place errors and offers verified fixes. Configure with ``%config InplaceMagic``."""

    enabled = Bool(True, help="Explain a cell that fails with an in-place autograd error.").tag(config=True)
    rerun = Bool(True, help="Run a failed cell once more, in a sandbox, to find the line and to verify a fix.").tag(
        config=True
    )
    time_limit = Float(20.0, help="Seconds that one rerun may take. A longer cell is explained without one.").tag(
        config=True
    )
    fixes = Int(3, help="How many fixes are shown, at most.").tag(config=True)
    sandbox = Enum(
        ["auto", "fork", "replica"],
        "auto",
        help="Where a cell is run again: in a copy of the process, or in an interpreter that is made like it, where a copy "
        "cannot be made or cannot run a backward (an accelerator, macOS).",
    ).tag(config=True)
    room = Enum(["auto", "copy", "process"], "auto", help="The old name of sandbox.").tag(config=True)
    allow_side_effects = Bool(
        False,
        help="Let reruns do once more, each time, what a cell does outside the process: files, processes, the network.",
    ).tag(config=True)
    effects = Bool(False, help="The old name of allow_side_effects.").tag(config=True)
    prefill = Bool(True, help="In a terminal, put the fixed cell into the next prompt; Enter runs it.").tag(config=True)
    language = Enum(
        ["auto", "en", "zh"], "auto", help="The language of reports: English, Chinese, or as the locale has it."
    ).tag(config=True)

    def __init__(self, shell: IPythonShell, extension: Host) -> None:
        super().__init__(cast(Any, shell))
        self._extension = extension

    @validate("time_limit")
    def _positive(self, proposal: Any) -> float:
        if proposal["value"] <= 0:
            raise TraitError("time_limit is in seconds and has to be above 0; to switch reruns off: rerun = False")
        return float(proposal["value"])

    @validate("fixes")
    def _at_least_one(self, proposal: Any) -> int:
        if proposal["value"] < 1:
            raise TraitError("fixes has to be 1 or more")
        return int(proposal["value"])

    @observe("room")
    def _renamed(self, change: Any) -> None:
        """An old name works for one release more."""
        self.sandbox = {"copy": "fork", "process": "replica"}.get(change["new"], "auto")
        say(self._said(message("option_renamed", old="room", new="sandbox")))

    @observe("effects")
    def _renamed_too(self, change: Any) -> None:
        self.allow_side_effects = change["new"]
        say(self._said(message("option_renamed", old="effects", new="allow_side_effects")))

    def options(self) -> Options:
        from .options import Options

        return Options(
            rerun=self.rerun,
            time_limit=self.time_limit,
            fixes=self.fixes,
            sandbox=self.sandbox,  # type: ignore[arg-type]
            allow_side_effects=self.allow_side_effects,
        )

    def in_language(self) -> Language:
        return language_of(self.language)

    @no_var_expand
    @magic_arguments()
    @argument("number", nargs="?", type=int, default=None, help="which fix of the last report (default: 1)")
    @argument("--run", action="store_true", help="run it too, and what has to run with it")
    @argument("--show", action="store_true", help="show the diff of this fix, or of all, and accept nothing")
    @argument("--undo", action="store_true", help="take back the fix that was accepted last")
    @argument("--live", action="store_true", help="only fix what lives in the kernel (the panel's button does this)")
    @argument("--known", action="store_true", help="fail if the report is not known here (the panel asks)")
    @argument("--diagnosis", default=None, help="the id of the report, if it is not the last one")
    @line_magic
    def autograd_fix(self, line: str) -> None:
        """Accept a fix of the last report: the rewritten cell takes the place of the old one."""
        from . import accept
        from .show import answer
        from .source.atomic_write import NotWrittenError

        options = self._options(self.autograd_fix, line)
        try:
            if options.undo and options.diagnosis is None:
                done: str | None = accept.take_back(self._extension)
            else:
                done = self._with_fix(options)
        except NotWrittenError as reason:
            raise UsageError(self._said(reason.args[0])) from None
        if done is not None:
            answer(self._extension.shell, self._said(done))

    def _with_fix(self, options: Any) -> str | None:
        """What is done to one fix of a report. The answer is one line; the panel's own requests have none."""
        from . import accept

        extension = self._extension
        found = extension.last if options.diagnosis is None else extension.known.get(options.diagnosis)
        if found is None:
            raise self._refusal("no_report" if options.diagnosis is None else "no_report_id")
        if options.known:
            return None
        if options.show and options.number is None:
            extension.show(found, whole=True)
            return None
        if not found.fixes:
            raise self._refusal("no_fix_offered")
        number = 1 if options.number is None else options.number
        if not 1 <= number <= len(found.fixes):
            raise self._refusal("no_such_fix", count=len(found.fixes), number=number)
        fix = found.fixes[number - 1]
        if options.show:
            extension.show(found, number=number)
        elif options.undo:
            accept.take_back(extension, found, number)
        elif options.live:
            accept.make_live(extension, found, number, fix)
        elif options.run:
            return accept.run(extension, found, number, fix)
        else:
            return accept.put_in_place(extension, found, number, fix)
        return None

    def _options(self, magic: Any, line: str) -> Any:
        with argparse_says(self.in_language()):
            try:
                return parse_argstring(magic, line)
            except ValueError:  # a quote without its other half
                problem = sentence_of("argparse_unrecognized", self.in_language()) % line
            except UsageError as error:
                problem = str(error)
        name = magic.__name__
        raise self._refusal(
            "options_shown", problem=problem, magic=("%%" if name in self.magics["cell"] else "%") + name
        )

    def _said(self, text: str) -> str:
        return said(text, self.in_language())

    def _refusal(self, kind: str, **arguments: Any) -> UsageError:
        return UsageError(self._said(message(kind, **arguments)))

    @no_var_expand
    @magic_arguments()
    @argument("--backwards", type=int, default=None, help="watch this many backwards, then go on at full speed")
    @argument("--memory", type=float, default=1024.0, metavar="MB", help="keep this much of what is overwritten (1024)")
    @argument("--strict", action="store_true", help="raise if a gradient is silently wrong")
    @argument("--quiet", action="store_true", help="say nothing where nothing is found")
    @cell_magic
    def autograd_check(self, line: str, cell: str) -> None:
        """Run the cell once, for real, watched: is what backward reads still what was saved?

        Says in one line that nothing was found, or explains each gradient that is silently wrong. A cell that raises
        is explained from this very run.
        """
        __tracebackhide__ = True
        from .watch import check_cell

        options = self._options(self.autograd_check, line)
        if options.backwards is not None and options.backwards < 1:
            raise self._refusal("check_backwards")
        if options.memory <= 0:
            raise self._refusal("check_memory")
        number = self._extension.running_cell()
        if number is None:
            raise self._refusal("check_on_top")
        check_cell(self._extension, number, options.backwards, options.strict, options.memory, options.quiet)
