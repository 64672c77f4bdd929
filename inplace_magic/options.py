"""What a person has configured, as the pipeline reads it."""

from __future__ import annotations

from dataclasses import dataclass

from .sandbox import Kind, Policy


@dataclass(frozen=True)
class Options:
    """What a person has configured. ``time_limit`` is in seconds, for one replay; ``fixes`` is how many are shown.

    ``allow_side_effects``: a replay may write files, start processes and use the network, as the cell does.
    """

    rerun: bool = True
    time_limit: float = 20.0
    fixes: int = 3
    replay: str = "auto"
    sandbox: Kind = "auto"
    allow_side_effects: bool = False
    command_line: bool = False

    @property
    def policy(self) -> Policy:
        """What a sandbox has to know of it."""
        return Policy(self.sandbox, self.allow_side_effects)

    def to_set(self, name: str, value: object) -> str:
        """What a person writes to set an option, where they are."""
        if self.command_line:
            return {"time_limit": f"--limit {value}", "allow_side_effects": "--allow-side-effects"}[name]
        return f"%config InplaceMagic.{name} = {value}"

    def more_time(self, seconds: float) -> str:
        """What a person writes to give a rerun that would take so long its time."""
        return self.to_set("time_limit", f"{3 * seconds:.2g}")
