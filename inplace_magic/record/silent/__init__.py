"""Ways in which a gradient goes wrong without an error: one detector a file, each with its own proof."""

from __future__ import annotations

from .events import Detector
from .foreign_memory import ForeignMemory
from .handed_gradients import HandedGradients
from .past_the_graph import PastTheGraph
from .python_nodes import PythonNodes
from .second_run import SecondRun

# SecondRun is asked by the others, so that it comes after whoever notes what has changed.
DETECTORS: tuple[type[Detector], ...] = (ForeignMemory, PastTheGraph, PythonNodes, HandedGradients, SecondRun)
