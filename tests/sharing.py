"""Which worker of pytest-xdist runs which test: what shares something that takes long to start stays together.

The marks that xdist has for this do nothing with pytest 9.2 (xdist 3.8 appends the group to a name that is made anew).
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Files by the beginning of their path; the largest group is begun first. A browser and a terminal are mostly waited for,
# so that one worker has both, and the others compute beside it.
_TOGETHER = {
    "tests/browser/": "waits",
    "tests/shell/test_terminal.py": "waits",
    "tests/standin/": "accelerator",  # one process that has the device
    "tests/test_demo.py": "demo",  # the notebook is run once
}


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Each test on its own, but for those of a group."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for place, group in _TOGETHER.items() if nodeid.startswith(place)), nodeid)
