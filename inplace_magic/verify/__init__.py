"""The verification of a fix: it is run as accepting it would run it, and all that a person reads later is compared.

``attempt`` runs a candidate; ``composing`` extends it where it fails again elsewhere; ``effect`` says what it changes,
measured against the reference; ``ranking`` puts what was verified in order. ``bench`` is where runs are made, and counted.
"""

from .attempt import try_out, unified_texts
from .bench import Bench
from .composing import verified
from .ranking import best

__all__ = ["Bench", "best", "try_out", "unified_texts", "verified"]
