"""The next prompt of a terminal, filled in as a suggestion: Enter runs it, Ctrl-C clears it, typing replaces it."""

from __future__ import annotations

from typing import Any

from .shell import IPythonShell, asks_again


class NextPrompt:
    """Fills in the next prompt of a shell. Where there is no such prompt, ``offer`` only hands the text over.

    A dumb terminal's prompt holds what it is given, but shows none of it: there nothing is filled in.
    """

    def __init__(self, shell: IPythonShell) -> None:
        self._shell = shell
        self._text: str | None = None
        self._handlers: list[Any] = []

    @property
    def there(self) -> bool:
        """Whether the shell asks at a prompt that can be filled in, and that shows what it holds."""
        return self._prompts and asks_again(self._shell) and not _dumb()

    @property
    def _prompts(self) -> bool:
        return getattr(self._shell, "pt_app", None) is not None

    def offer(self, text: str) -> None:
        """Puts a text into the next prompt, to be replaced as a whole by what is typed first."""
        if self._prompts and not self.there:
            return
        self._shell.set_next_input(text, replace=True)
        self._text = text
        if self.there and not self._handlers:
            self._bind()

    def forget(self) -> None:
        """A cell runs: what is typed from now on replaces nothing."""
        self._text = None

    def close(self) -> None:
        """Takes the key bindings away."""
        for handler in self._handlers:
            self._shell.pt_app.key_bindings.remove(handler)
        self._handlers = []

    def _bind(self) -> None:
        bindings = self._shell.pt_app.key_bindings
        if not hasattr(bindings, "add") or not hasattr(bindings, "remove"):
            return  # then what is typed goes behind the text
        from prompt_toolkit.application import get_app
        from prompt_toolkit.document import Document
        from prompt_toolkit.enums import DEFAULT_BUFFER
        from prompt_toolkit.filters import Condition, emacs_insert_mode, has_focus, vi_insert_mode
        from prompt_toolkit.keys import Keys

        @Condition
        def untouched() -> bool:
            document = get_app().current_buffer.document
            return document.text == self._text and document.is_cursor_at_the_end

        def replace(event: Any) -> None:
            buffer = event.current_buffer
            buffer.save_to_undo_stack()
            buffer.document = Document("")
            buffer.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n"))
            self._text = None

        typing = has_focus(DEFAULT_BUFFER) & (emacs_insert_mode | vi_insert_mode) & untouched
        self._handlers = [
            bindings.add(key, filter=typing)(lambda event: replace(event)) for key in (Keys.Any, Keys.BracketedPaste)
        ]  # a function each, by which it is taken away again


def _dumb() -> bool:
    from prompt_toolkit.utils import is_dumb_terminal

    return is_dumb_terminal()
