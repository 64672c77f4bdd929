"""The command line's options, in the language of the reports."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

from .. import __version__
from ..argparse_words import argparse_says
from ..message import Language, language_of, message, said
from ..report.canvas import Canvas
from ..report.printing import say

_WITH_VALUE = ("--limit", "--cells", "--language")


def split(arguments: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """Our own options, the target, and what follows it, which is the target's own. A module's name follows -m."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        option = arguments[at]
        at += 2 if option in _WITH_VALUE else 1
        if option == "-m":
            break
    own, others = arguments[:at], arguments[at:]
    return list(own), (others[0] if others else None), list(others[1:])


def parse(own: Sequence[str], target: str | None) -> argparse.Namespace:
    """The options as argparse reads them. Raises SystemExit for bad use, ``--help`` and ``--version``."""
    language = _language_asked(own)
    with argparse_says(language):
        return _parser(language).parse_args([*own, *([] if target is None else [target])])


def _language_asked(own: Sequence[str]) -> Language:
    """The language in which to speak of the options, before they are read."""
    asked = "auto"
    for at, option in enumerate(own):
        name, _, value = option.partition("=")
        if name == "--language":
            asked = value or next(iter(own[at + 1 :]), asked)
    return language_of(asked if asked in ("en", "zh") else "auto")


class _Formatter(argparse.HelpFormatter):
    """Wraps by the width that text has in a terminal: a Chinese character takes two columns, and has no space after it."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        page = Canvas(width)
        return [line.plain for line in page.wrap(page.text(" ".join(text.split())), width)]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))


class _Parser(argparse.ArgumentParser):
    """Prints also where the stream lacks characters."""

    def print_usage(self, file: Any = None) -> None:
        say(self.format_usage(), file, end="")

    def print_help(self, file: Any = None) -> None:
        say(self.format_help(), file, end="")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            err: TextIO = sys.stderr
            say(message, err, end="")
        sys.exit(status)


def _parser(language: Language) -> argparse.ArgumentParser:
    def text(kind: str) -> str:
        return said(message(kind), language)

    def formatter(prog: str) -> _Formatter:
        return _Formatter(prog, width=min(shutil.get_terminal_size((100, 24)).columns, 100) - 2)

    options, target, arguments = text("cli_options"), text("cli_target"), text("cli_arguments")
    seconds = text("cli_seconds")
    parser = _Parser(
        prog="python -m inplace_magic",
        usage=f"%(prog)s [{options}] {target} [{arguments}]",
        description=text("cli_description"),
        epilog=text("cli_epilog"),
        allow_abbrev=False,
        formatter_class=formatter,
    )
    parser.add_argument("-m", action="store_true", dest="module", help=text("cli_help_module"))
    parser.add_argument(
        "--version", action="version", version=f"inplace_magic {__version__}", help=text("cli_help_version")
    )
    parser.add_argument("--check", action="store_true", help=text("cli_help_check"))
    parser.add_argument("--fix", action="store_true", help=text("cli_help_fix"))
    parser.add_argument("--json", action="store_true", help=text("cli_help_json"))
    parser.add_argument(
        "--limit",
        type=lambda given: _seconds(given, language),
        default=60.0,
        metavar=seconds,
        help=text("cli_help_limit"),
    )
    parser.add_argument(
        "--allow-side-effects", "--effects", action="store_true", dest="effects", help=text("cli_help_effects")
    )
    parser.add_argument(
        "--cells", type=lambda given: _cells(given, language), metavar="N,..", help=text("cli_help_cells")
    )
    parser.add_argument("--language", choices=["auto", "en", "zh"], default="auto", help=text("cli_help_language"))
    parser.add_argument("target", nargs="?", metavar=target, help=text("cli_help_target"))
    return parser


def _seconds(given: str, language: Language) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(said(message("cli_no_seconds", given=repr(given)), language))
    return value


def _cells(given: str, language: Language) -> frozenset[int]:
    found: set[int] = set()
    for part in given.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise argparse.ArgumentTypeError(said(message("cli_no_cells", given=repr(given)), language))
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
