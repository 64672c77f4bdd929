"""Whether a copy of this process can do what a session does, that is, run a backward.

NOTE [Backward in a copy]. At the first backward, of whatever tensors, torch starts a thread for each device that it sees,
used or not, and from then on refuses every backward in a forked child. That it has, nothing tells; so a child tries.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import warnings

# What torch, and the runtime of a device, say to a copy of a process that has used them.
_REFUSALS = ("Unable to handle autograd's threading", "forked subprocess", "forked process")
_PROBE_S = 5.0  # for a backward of one element, on a machine where others are at work


def why_not() -> str | None:
    """None if the process can be forked and a copy can run backward, else the reason why not.

    Asked again for each report, in milliseconds: the session may have run its first backward since.
    """
    if not hasattr(os, "fork") or sys.platform != "linux":
        return "this system cannot fork a process"  # macOS can, but its own libraries do not survive it
    kind = accelerator()
    if kind is None:
        return None
    if not backward_runs_in_a_copy(devices_in_use()):
        return f"a copy of the process cannot run backward beside a device ({kind})"
    return None


def accelerator() -> str | None:
    """The kind of accelerator that torch sees, in use or not; None without torch or without one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return found.type if found is not None else None


def is_refusal(said: str) -> bool:
    """Whether it is said to a copy of the process, for being one."""
    return any(refusal in said for refusal in _REFUSALS)


def backward_runs_in_a_copy(devices: tuple[str, ...] = ()) -> bool:
    """Tried in a child that lives for it, on the CPU and on these devices."""
    answer, child_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            pid = os.fork()
        except OSError:
            os.close(answer)
            os.close(child_end)
            return False
    if pid == 0:
        _tried(child_end, devices)
    os.close(child_end)
    try:
        until = time.monotonic() + _PROBE_S
        ready, _, _ = select.select([answer], [], [], max(0.0, until - time.monotonic()))
        return bool(ready) and os.read(answer, 1) == b"1"
    finally:
        os.close(answer)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def devices_in_use() -> tuple[str, ...]:
    """Kinds of devices that this process may have used. Asking is enough for CUDA to refuse a later copy its devices."""
    torch = sys.modules.get("torch")
    kind = accelerator()
    module = getattr(torch, kind, None) if kind is not None else None
    return (kind,) if kind is not None and getattr(module, "is_initialized", lambda: True)() else ()


def _tried(answer: int, devices: tuple[str, ...]) -> None:
    """In the child. Never returns."""
    try:
        import torch

        from .. import torch_private

        torch.set_num_threads(1)
        with torch_private.unobserved(), torch.enable_grad():
            for device in ("cpu", *devices):
                torch.ones(1, device=device, requires_grad=True).sum().backward()
        os.write(answer, b"1")
    finally:
        os._exit(0)
