"""Code under ``torch.compile``, while it is watched: it runs uncompiled, else not every save or write is seen.

Dynamo would trace into the function mode that listens, and fail there. What it has compiled is kept, and used again
afterwards.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """While active, compiled functions run as they were written. The compiler is not imported before it is asked for."""
    with contextlib.ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        else:
            plain = torch.compile

            def compile(*args: Any, **kwargs: Any) -> Any:
                torch.compile = plain
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                return plain(*args, **kwargs)

            torch.compile = compile
            stack.callback(setattr, torch, "compile", plain)
        yield


def in_use() -> bool:
    """Whether anything has been compiled in this process; torch's optimizers import the compiler without using it."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters: Mapping[str, Mapping[str, int]] = getattr(utils, "counters", {})
    return any(counters.get(group) for group in ("frames", "stats"))
