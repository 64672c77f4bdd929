"""The command line: options, the target, who runs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..message import language_of, message
from .output import say
from .settings import FAILED, BadUseError, Settings

_WITH_VALUE = ("--limit", "--cells", "--language")


def main(arguments: Sequence[str]) -> int:
    """Does what the command line says. Returns the exit status: 0 healthy, 1 a finding, 2 failed otherwise."""
    own, target, rest = _split(list(arguments))
    options = _parser().parse_args([*own, *([] if target is None else [target])])
    if options.target is None:
        if own:
            say(message("cli_no_target"), language_of(options.language))
            return FAILED
        from ..tour import run

        return run(color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    settings = Settings(
        options.check, options.fix, options.json, options.limit, options.effects, options.cells, options.language
    )
    try:
        return _run(options.target, rest, settings)
    except BadUseError as problem:
        say(problem.args[0], language_of(settings.language))
        return FAILED


def _run(target: str, rest: list[str], settings: Settings) -> int:
    if os.path.isdir(target) or target.endswith(".ipynb"):
        from . import notebook

        return notebook.run_all([target, *rest], settings)
    if not os.path.exists(target):
        raise BadUseError(message("cli_no_such_target", target=target))
    if not target.endswith(".py"):
        raise BadUseError(message("cli_other_target", target=target))
    if settings.cells is not None:
        raise BadUseError(message("cli_cells_of_script"))
    from . import script

    return script.run(target, rest, settings)


def _split(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Our own options, the target, and what follows it, which is the target's own."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in _WITH_VALUE else 1
    own, others = arguments[:at], arguments[at:]
    return own, (others[0] if others else None), others[1:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m inplace_magic",
        usage="%(prog)s [--check] [--fix] [--json] [--limit SECONDS] [--allow-side-effects] [--cells N,..] [--language en|zh] TARGET [TARGET'S ARGUMENTS]",
        description="Runs a script or a notebook. If it dies of an in-place autograd error, says which line is to blame "
        "and shows a fix that has been verified. Without a target: a tour of ten real failures. In your own session: "
        "%load_ext inplace_magic, and %autograd_fix accepts a fix.",
        epilog="Exit status: 0 healthy (a script's own status is passed through), 1 a finding, 2 failed otherwise.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"inplace_magic {__version__}")
    parser.add_argument("--check", action="store_true", help="watch the run for gradients that are silently wrong")
    parser.add_argument("--fix", action="store_true", help="write the first fix; the old text is kept in NAME.orig")
    parser.add_argument("--json", action="store_true", help="print findings as json, one to a line, and nothing else")
    parser.add_argument("--limit", type=_seconds, default=60.0, metavar="SECONDS",
                        help="what one rerun may take, and how long --check watches a script (60)")  # fmt: skip
    parser.add_argument("--allow-side-effects", "--effects", action="store_true", dest="effects",
                        help="let reruns write files, start processes and use the network once more, each time")  # fmt: skip
    parser.add_argument(
        "--cells", type=_cells, metavar="N,..", help="the cells In[N] that --check watches, as 3,5-8 (all)"
    )
    parser.add_argument(
        "--language",
        choices=["auto", "en", "zh"],
        default="auto",
        help="the language of reports (as the locale has it)",
    )
    parser.add_argument("target", nargs="?", metavar="TARGET", help="a script, notebooks, or a folder of notebooks")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _cells(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 3,5-8")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
