"""The families of errors that are ours, each known by a stable beginning of torch's text.

torch's wording drifts between releases, so every pattern stands here and nowhere else.
"""

from __future__ import annotations

import re

# The first pattern that matches wins. Raised at backward: modified, second_backward. Raised by the operation: the rest.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("modified", r"has been modified by an inplace operation|saved tensor that has been detached in-place"),
    ("view_of_leaf", r"a view of a leaf Variable that requires grad is being used in an in-place operation"),
    ("leaf", r"a leaf Variable that requires grad (is being|has been) used in an in-place operation"),
    (
        "no_grad_view",
        r"[Aa] view (which )?was created in (no_grad|inference) mode and (is being|its base or another view of its base has been) modified inplace",
    ),
    (
        "multi_output_view",
        r"is a view and (is being|its base or another view of its base has been) modified inplace",
    ),
    ("second_backward", r"Trying to backward through the graph a second time|after they have already been freed"),
    ("inference", r"[Ii]nference tensor"),
    ("overlap", r"refers? to a single memory location"),
    ("out_grad", r"out=\.\.\. arguments don't support automatic differentiation"),
)
_COMPILED = tuple((family, re.compile(pattern)) for family, pattern in _PATTERNS)

FAMILIES = (*(family for family, _ in _PATTERNS), "silent")

# Families whose error is raised by the very operation that writes.
RAISED_AT_WRITE = frozenset({"leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "out_grad"})


def family_of(error: BaseException | None) -> str | None:
    """The family of an exception, or None if it is not ours. Takes microseconds and never raises."""
    # torch also raises NotImplementedError and friends of RuntimeError; a subclass of the user's own is not torch's.
    if not isinstance(error, RuntimeError):
        return None
    try:
        text = str(error)
    except Exception:
        return None
    return family_of_text(text)


def failure_of(error: BaseException | None) -> BaseException | None:
    """The exception of our families in what ended a program: itself, one of its group, or what it was raised from.

    What it was raised while handling counts as well, unless the traceback that a person sees leaves that out.
    """
    todo, seen = [error], set()
    while todo:
        one = todo.pop(0)
        if one is None or id(one) in seen:
            continue
        if family_of(one) is not None:
            return one
        seen.add(id(one))
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
        todo.append(one.__cause__ if one.__suppress_context__ else one.__context__)
    return None


def family_of_text(text: str) -> str | None:
    """The family of an error's text, or None."""
    return next((family for family, pattern in _COMPILED if pattern.search(text)), None)


def is_of_base(text: str) -> bool:
    """Whether an operation was refused for an earlier write, into the base of the view that it reads."""
    return "its base or another view of its base has been modified" in text


def updates_inference(text: str) -> bool:
    """Whether an inference tensor was to be written, where others were to be saved."""
    return "Inplace update to inference tensor" in text


def overlaps_input(text: str) -> bool:
    """Whether a write was refused since it reads from the memory that it writes, which itself is as it should be."""
    return "some elements of the input tensor and the written-to tensor" in text
