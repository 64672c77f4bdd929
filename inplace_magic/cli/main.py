"""The command line: options, the target, who runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ..message import language_of, message
from . import parser
from .output import say
from .settings import FAILED, BadUseError, Settings


def main(arguments: Sequence[str]) -> int:
    """Does what the command line says. Returns the exit status: 0 healthy, 1 a finding, 2 failed otherwise."""
    own, target, rest = parser.split(arguments)
    options = parser.parse(own, target)
    if options.target is None:
        if options != parser.parse(["--language", options.language], None):
            say(message("cli_no_target"), language_of(options.language))
            return FAILED
        from ..tour import run

        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        return run(color, language_of(options.language))
    settings = Settings(
        options.check,
        options.fix,
        options.json,
        options.limit,
        options.effects,
        options.cells,
        options.language,
        options.module,
    )
    try:
        return _run(options.target, rest, settings)
    except BadUseError as problem:
        say(problem.args[0], language_of(settings.language))
        return FAILED


def _run(target: str, rest: list[str], settings: Settings) -> int:
    if settings.module:
        return _run_script(target, rest, settings)
    if os.path.isdir(target) or target.endswith(".ipynb"):
        from . import notebook

        return notebook.run_all([target, *rest], settings)
    if not os.path.exists(target):
        raise BadUseError(message("cli_no_such_target", target=target))
    if not target.endswith(".py"):
        raise BadUseError(message("cli_other_target", target=target))
    return _run_script(target, rest, settings)


def _run_script(target: str, rest: list[str], settings: Settings) -> int:
    if settings.cells is not None:
        raise BadUseError(message("cli_cells_of_script"))
    from . import script

    return script.run(target, rest, settings)
