"""What the package asks of a shell: the part of IPython's InteractiveShell, 7.34 to 9, that it uses."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from typing import Any, Protocol


class Compiler(Protocol):
    """``shell.compile``: compiles cells, and names them so that tracebacks find their text."""

    flags: int

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str: ...
    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str: ...


class Events(Protocol):
    """``shell.events``: callbacks around each cell."""

    callbacks: dict[str, list[Callable[..., Any]]]

    def register(self, event: str, function: Callable[..., Any]) -> None: ...
    def unregister(self, event: str, function: Callable[..., Any]) -> None: ...


class Publisher(Protocol):
    """``shell.display_pub``: sends display bundles to the front end."""

    def publish(self, data: dict[str, Any], metadata: dict[str, Any] | None = None, **kwargs: Any) -> None: ...


class Shell(Protocol):
    """A session: its names, its history, and how a cell of it is compiled, shown and run.

    ``custom_exceptions`` and ``CustomTB`` are the one slot for a handler of errors, which ``set_custom_exc`` fills.
    """

    user_ns: dict[str, Any]
    execution_count: int
    compile: Compiler
    events: Events
    display_pub: Publisher
    history_manager: Any
    magics_manager: Any
    configurables: list[Any]
    custom_exceptions: tuple[type[BaseException], ...]
    CustomTB: Callable[..., Any]
    loop_runner: Callable[[Any], Any]

    def transform_cell(self, raw_cell: str) -> str: ...
    def transform_ast(self, node: ast.Module) -> ast.Module: ...
    def run_cell(self, raw_cell: str, store_history: bool = False, silent: bool = False) -> Any: ...
    def run_line_magic(self, magic_name: str, line: str) -> Any: ...
    def register_magics(self, *magics: Any) -> None: ...
    def set_next_input(self, text: str, replace: bool = False) -> None: ...
    def set_custom_exc(self, types: tuple[type[BaseException], ...], handler: Callable[..., Any]) -> None: ...
    def showtraceback(
        self,
        exc_tuple: tuple[type[BaseException], BaseException, types.TracebackType | None] | None = None,
        filename: str | None = None,
        tb_offset: int | None = None,
        exception_only: bool = False,
        running_compiled_code: bool = False,
    ) -> None: ...
