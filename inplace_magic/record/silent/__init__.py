"""Ways in which a gradient goes wrong without an error: one detector a file, each with its own proof."""

from __future__ import annotations

from .added_up import AddedUp
from .complex_parts import ComplexParts
from .constant_terms import ConstantTerms
from .discarded import Discarded
from .earlier_iterations import EarlierIterations
from .events import Detector
from .foreign_memory import ForeignMemory
from .grad_modes import GradModes
from .handed_gradients import HandedGradients
from .kept_gradients import KeptGradients
from .lost_leaves import LostLeaves
from .own_parts import OwnParts
from .past_the_graph import PastTheGraph
from .python_nodes import PythonNodes
from .read_as_data import ReadAsData
from .recomputed import Recomputed
from .repacked import Repacked
from .second_names import SecondNames
from .second_run import SecondRun
from .shared_gradients import SharedGradients
from .threads import Threads
from .unchecked import Unchecked
from .unreached import Unreached
from .unstepped import Unstepped
from .untrained import Untrained

# SecondRun is asked by the others, so that it comes after whoever notes what has changed.
DETECTORS: tuple[type[Detector], ...] = (
    ForeignMemory,
    PastTheGraph,
    PythonNodes,
    Repacked,
    Recomputed,
    HandedGradients,
    SharedGradients,
    KeptGradients,
    Threads,
    ComplexParts,
    GradModes,
    Untrained,
    AddedUp,
    Discarded,
    ReadAsData,
    ConstantTerms,
    LostLeaves,
    Unreached,
    Unstepped,
    OwnParts,
    EarlierIterations,
    SecondNames,
    Unchecked,
    SecondRun,
)
