"""Programs with a gradient that is silently wrong, each with its healthy twin.

One text holds both. A line that ends in ``#!`` is in the wrong program alone, and is the line to blame; one that ends
in ``#-`` is in the wrong program alone, one that ends in ``#+`` in the twin alone; ``#<`` marks a line to blame that
both have. ``x`` (6 elements), ``w`` (3 by 3) and ``v`` (3) are leaves; ``loss`` is what goes backward.

That a program is wrong is proved without the package (test_programs.py): the derivatives of ``loss`` by differences in
float64, from reruns with a leaf moved a little, differ from what the program's backward gives. ``by="twin"``: its
loss cannot be differentiated so (a hook changes gradients on purpose), and the twin's gradients are the reference.
"""

from __future__ import annotations

from .checkpointed import CHECKPOINTED
from .functions import FUNCTIONS
from .gradients import GRADIENTS
from .hooks import HOOKS
from .memory import MEMORY
from .names import NAMES
from .program import START, Program
from .threads import THREADS
from .untrained import UNTRAINED
from .values import VALUES

__all__ = ["PROGRAMS", "START", "Program", "kind"]

_KINDS = [CHECKPOINTED, FUNCTIONS, MEMORY, HOOKS, THREADS, GRADIENTS, UNTRAINED, VALUES, NAMES]
PROGRAMS = [program for programs in _KINDS for program in programs]


def kind(program: Program) -> int:
    """Which of the files it stands in."""
    return next(at for at, programs in enumerate(_KINDS) if program in programs)
