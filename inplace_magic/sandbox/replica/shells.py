"""The shell of a replica, with what has to be there before its cells run."""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...session.shell import Shell
from ...source.location import kind_of
from ...source.own import file_of, is_a
from ..lifetime import scratch_folder


def maker(shell: Shell) -> Callable[[], Any]:
    """What makes a shell like this one in another process; it can be pickled. A shell that is none of IPython's tells."""
    elsewhere = getattr(shell, "elsewhere", None)
    return elsewhere() if callable(elsewhere) and not hasattr(shell, "history_manager") else interactive_shell


def interactive_shell() -> Any:
    """An IPython shell without a history, a profile or a terminal."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.profiledir import ProfileDir
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    place = scratch_folder()  # IPython 7 makes a folder in the profile at once
    try:
        return InteractiveShell.instance(profile_dir=ProfileDir(location=place), config=config)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def libraries(namespace: Mapping[str, Any], accelerator: str | None) -> tuple[str, ...]:
    """The modules that the session's names come from, less the user's own, which its cells import again."""
    found = dict.fromkeys(_backends(accelerator))
    # What torch imports when it is first asked for something takes seconds, and each copy would do so anew.
    found.update(dict.fromkeys(name for name in list(sys.modules) if name.startswith("torch.")))
    for value in list(namespace.values()):
        for name in _modules_of(value):
            module = sys.modules.get(name)
            filename = file_of(module)
            if filename is not None and kind_of(filename) != "user":
                found[name] = None
    return tuple(found)


def _modules_of(value: Any) -> Iterator[str]:
    if is_a(value, types.ModuleType):
        yield str(vars(value).get("__name__"))
        return
    for owner in (value, type(value)) if is_a(value, (type, types.FunctionType)) else (type(value),):
        name = getattr(owner, "__module__", None)
        if isinstance(name, str) and name not in ("builtins", "__main__"):
            yield name


def _backends(accelerator: str | None) -> Iterator[str]:
    """The modules that made torch know its accelerator, where that is none of its own."""
    device_module = sys.modules.get(f"torch.{accelerator}")
    if accelerator is None or (device_module is not None and getattr(device_module, "__spec__", None) is not None):
        return
    for name in (f"torch_{accelerator}", accelerator):
        if name in sys.modules:
            yield name
