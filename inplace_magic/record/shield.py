"""Our code in the midst of a person's: what fails in it ends the watch, never their cell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)


class Once:
    """A call of the person's own, as our code around it makes it: what came of it is known even if our code fails then."""

    __slots__ = ("_call", "done", "error", "result")

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            self.result = self._call(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        self.done = True
        return self.result

    def outcome(self, *args: Any, **kwargs: Any) -> Any:
        """Its result, or its error; the call is made now if our code did not come to it."""
        __tracebackhide__ = True
        if self.error is not None:
            raise self.error
        return self.result if self.done else self._call(*args, **kwargs)


class Shield:
    """``failure`` tells what of ours failed first. From then on only the person's own code runs where ours would."""

    def __init__(self) -> None:
        self.failure: str | None = None

    def down(self, error: Exception) -> None:
        """Something of ours has failed."""
        _log.debug("the watch failed", exc_info=error)
        self.failure = self.failure or f"{type(error).__name__}: {error}"

    def around(
        self, theirs: Callable[..., Any], ours: Callable[[Callable[..., Any]], Any], *args: Any, **kwargs: Any
    ) -> Any:
        """What ``ours`` makes of ``theirs``, which it calls once with these arguments. What theirs raises is let through."""
        __tracebackhide__ = True
        if self.failure is not None:
            return theirs(*args, **kwargs)
        once = Once(theirs)
        try:
            return ours(once)
        except Exception as error:
            if error is once.error:
                raise
            self.down(error)
        return once.outcome(*args, **kwargs)

    def __enter__(self) -> None:
        """Around a stretch of our own code that calls nothing of theirs."""

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self.down(error)
        return True

    def hook(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        """A hook of ours, which answers None, and so changes nothing, once something has failed."""

        def shielded(*args: Any) -> Any:
            if self.failure is None:
                with self:
                    return ours(*args)
            return None

        return shielded
