"""What we ask of a shell, in one place."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Protocol


class Compiler(Protocol):
    """A shell's compiler. ``flags`` are those of the ``__future__`` imports that its cells have made."""

    @property
    def flags(self) -> int: ...


class CachingCompiler(Compiler, Protocol):
    """IPython's, which gives each cell a file name of its own."""

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str: ...


class Shell(Protocol):
    """What runs cells: names, a compiler, what becomes of a tree before it is compiled."""

    user_ns: dict[str, Any]

    @property
    def compile(self) -> Compiler: ...

    def transform_ast(self, node: ast.Module) -> ast.Module: ...


class History(Protocol):
    """``input_hist_raw`` holds the cells as typed, by execution count."""

    input_hist_raw: list[str]


class Events(Protocol):
    """``pre_run_cell`` and its like."""

    def register(self, event: str, function: Callable[..., Any]) -> None: ...
    def unregister(self, event: str, function: Callable[..., Any]) -> None: ...


class DisplayPublisher(Protocol):
    """The way to a front end."""

    def publish(self, data: dict[str, Any], metadata: dict[str, Any] | None = None, **more: Any) -> None: ...


class IPythonShell(Shell, Protocol):
    """What the extension asks of the shell it is loaded into (IPython 7.34 to 9)."""

    history_manager: History
    events: Events
    display_pub: DisplayPublisher
    execution_count: int
    last_execution_result: Any  # None before the first cell
    configurables: list[Any]
    magics_manager: Any  # its registries are dictionaries of dictionaries
    custom_exceptions: tuple[type[BaseException], ...]
    CustomTB: Any
    pt_app: Any  # a terminal's prompt; None or missing elsewhere

    @property
    def compile(self) -> CachingCompiler: ...

    def transform_cell(self, raw_cell: str) -> str: ...
    def loop_runner(self, coro: Any) -> Any: ...
    def register_magics(self, *magics: Any) -> None: ...
    def set_custom_exc(self, exc_tuple: tuple[type[BaseException], ...], handler: Callable[..., Any]) -> None: ...
    def showtraceback(self, *about: Any, **options: Any) -> None: ...
    def set_next_input(self, text: str, replace: bool = False) -> None: ...


def asks_again(shell: object) -> bool:
    """Whether the shell asks for another cell: not where it was started for a file or ``-c`` alone."""
    return bool(getattr(getattr(shell, "parent", None), "interact", True))


def names_its_cell(shell: object) -> bool:
    """Whether the request that runs now says of which cell it is, as those of notebooks do, which show updates.

    Jupyter Console and Qt Console, which show none and ask at a prompt, say nothing; nor does what runs whole notebooks.
    """
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    return bool(parent.get("metadata"))
