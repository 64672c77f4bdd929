"""Finds, explains and fixes PyTorch's in-place autograd errors in IPython and Jupyter.

    %load_ext inplace_magic        from then on, a cell that fails is explained, and a proved fix is offered
    %autograd_fix                  accepts the first fix; `%autograd_fix 2` the second; `--run` runs it too
    %%autograd_check               watches a cell while it runs, and finds gradients that are silently wrong
    %config InplaceMagic           shows and sets what can be configured

Importing this imports neither torch nor rich.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .diagnosis import Conflict, Diagnosis, Fix, Place
    from .watch import SilentGradientError, check

__version__ = "0.1.0"
__all__ = [
    "Conflict",
    "Diagnosis",
    "Fix",
    "Place",
    "SilentGradientError",
    "check",
    "last_diagnosis",
    "load_ipython_extension",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    if name in ("SilentGradientError", "check"):
        # Not `from . import check`: that would bind the module of this name here.
        import importlib

        return getattr(importlib.import_module(".watch", __name__), name)
    if name in ("Conflict", "Diagnosis", "Fix", "Place"):
        from . import diagnosis

        return getattr(diagnosis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def last_diagnosis() -> Diagnosis | None:
    """The latest diagnosis of this session, kept while other cells run; None while there has been none."""
    from .extension import of_current_shell

    extension = of_current_shell()
    return extension.last if extension is not None else None


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext inplace_magic``. Loading twice is loading once."""
    from .extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext inplace_magic``: leaves the shell as it was."""
    from .extension import unload

    unload(shell)
