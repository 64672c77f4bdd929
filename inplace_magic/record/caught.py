"""Errors that the program itself catches: it goes on without what was refused, and so does the run that is recorded.

try:
    c.add_(1)           # refused, and never made
except RuntimeError:
    print("a leaf")     # or within `with contextlib.suppress(RuntimeError):`
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Sequence

from ..source.dataflow import called_name
from ..source.editor import Function
from ..source.location import SourceRange, user_stack
from ..source.sources import Sources
from ..torch_private import version_of
from .observed import Saved

_HINT = (
    "enable anomaly detection to find the operation that failed to compute its gradient, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
_DETACHED = (
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please use "
    "out-of-place `.detach()` instead"
)

Lines = list[tuple[int | None, int]]


class Caught:
    """``raised``: where the failure was raised that a person asks about, innermost first. That one was not caught, or
    what caught it has failed itself."""

    def __init__(self, sources: Sources, raised: Sequence[SourceRange]) -> None:
        self._sources, self._raised = sources, _lines(raised)
        self._known: dict[tuple[type, tuple[SourceRange, ...]], bool] = {}

    def here(self, error: BaseException) -> bool:
        """Whether the code that is running goes on from an error that is raised now."""
        stack = user_stack(sys._getframe(1))
        return self.at(error, tuple(self._sources.spot(code, lasti) for code, lasti in stack))

    def at(self, error: BaseException, stack: tuple[SourceRange, ...]) -> bool:
        """Whether a statement on the stack, innermost first, goes on from an error that comes out of it."""
        key = type(error), stack
        if key not in self._known:
            asked = bool(self._raised) and _lines(stack)[: len(self._raised)] == self._raised
            self._known[key] = not asked and any(self._handled(error, spot) for spot in stack)
        return self._known[key]

    def _handled(self, error: BaseException, spot: SourceRange) -> bool:
        code = self._sources.code(spot.cell)
        if code is None:
            return False
        inner = code.at(spot)
        for above in code.parents(inner) if inner is not None else ():
            if isinstance(above, (*Function, ast.Lambda)):
                break
            if isinstance(above, (ast.Try, ast.TryStar)) and inner in above.body:
                handler = next((one for one in above.handlers if _takes(one.type, error)), None)
                if handler is not None and not any(isinstance(node, ast.Raise) for node in ast.walk(handler)):
                    return True
            if isinstance(above, (ast.With, ast.AsyncWith)) and inner in above.body and _suppresses(above, error):
                return True
            inner = above
        return False


def refusal(family: str, saved: Saved, hint: str = _HINT) -> RuntimeError:
    """What torch says of a saved value that a backward can no longer use."""
    if family == "second_backward":
        return RuntimeError(_FREED)
    if saved.detached is not None:
        return RuntimeError(_DETACHED)
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{saved.alias.type()} {list(saved.alias.shape)}] is at version {version_of(saved.alias)}; "
        f"expected version {saved.version} instead. Hint: {hint}"
    )


def _suppresses(block: ast.With | ast.AsyncWith, error: BaseException) -> bool:
    """Whether ``with contextlib.suppress(kind):`` is for the error."""
    given = [one.context_expr for one in block.items]
    return any(_takes(kind, error) for call in given if called_name(call) == "suppress" for kind in call.args)  # type: ignore[attr-defined]


def _takes(kind: ast.expr | None, error: BaseException) -> bool:
    """Whether ``except kind:`` is for the error, as far as the names of Python's own exceptions tell."""
    if isinstance(kind, ast.Tuple):
        return any(_takes(one, error) for one in kind.elts)
    named = getattr(builtins, kind.id, None) if isinstance(kind, ast.Name) else None
    return kind is None or (isinstance(named, type) and isinstance(error, named))


def _lines(stack: Sequence[SourceRange]) -> Lines:
    return [(spot.cell, spot.line) for spot in stack]
