"""What a rerun may do outside of its process: its files are private, all else is refused as the system refuses it.

``make_private`` prepares a process for that and ``contained`` is the door. Nothing here knows of forks: it serves a copy
of the session and a fresh interpreter alike.
"""

from .containment import contained, make_private
from .namespace import look_around
from .refused import Attempts, EndOfRun, Refused, ended_by
from .run import refuse_wait

__all__ = ["Attempts", "EndOfRun", "Refused", "contained", "ended_by", "look_around", "make_private", "refuse_wait"]
