"""Sessions on an accelerator, in use or merely visible. It is one made for tests: see ``standin.cpp``.

Each test is a process of its own, since torch cannot forget a device.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import needs_replica

pytestmark = [
    needs_replica,
    pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a compiler"),
]
HERE = Path(__file__).parent
SESSION = """
    import json, sys
    import torch, standin
    from tests.cells import new_shell, run_in
    cells = json.loads(sys.stdin.read())
    shell = new_shell()
    shell.user_ns["run_last"] = None
    done = None
    for cell in cells:
        done = run_in(shell, [cell])
    found = done.diagnosis
    print("\\nANSWER" + json.dumps({
        "fixes": [(f.title, f.gradients) for f in found.fixes] if found else [],
        "notes": [str(note) for note in found.notes] if found else [],
        "line": found.changed.line if found and found.changed else None,
        "error": None if done.error is None else str(done.error)[:200],
        "answer": shell.user_ns.get("answer"),
        "output": done.output[-3000:],
    }))
"""


def session(*cells: str, folder: Path | None = None) -> dict[str, Any]:
    """What came of the last cell that failed, and what ``answer`` is in the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SESSION)],
        input=json.dumps([textwrap.dedent(cell).strip("\n") for cell in cells]),
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    assert "\nANSWER" in done.stdout, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.rpartition("\nANSWER")[2])
    return answer


NET = """
    import torch, torch.nn as nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2)).to("{device}")
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    x = torch.randn(2, 4, device="{device}")
    net(x).pow(2).sum().backward(); opt.step(); opt.zero_grad()
"""
FAILS = """
    h = torch.exp(net(x))
    h += 1
    h.sum().backward()
"""


@pytest.mark.parametrize("device", ["cpu", "standin"])
def test_nothing_of_the_session_changes(device: str) -> None:
    state = """
        def state():
            on_device = torch.standin.get_rng_state().tolist()[:64]
            tensors = [*net.parameters(), *(v for s in opt.state.values() for v in s.values())]
            return repr([(t._version, t.tolist(), t.requires_grad) for t in tensors]), on_device
    """
    look = "import gc; h = None; gc.collect(); after = state(); answer = [a == b for a, b in zip(before, after)]"
    seen = session(NET.format(device=device), state, FAILS.replace("h.sum()", "before = state(); h.sum()"), look)
    assert seen["fixes"], seen
    values, random = seen["answer"]
    assert random and values


@pytest.mark.parametrize("device", ["cpu", "standin"])
def test_a_verified_fix_where_the_device_is(device: str) -> None:
    seen = session(NET.format(device=device), FAILS)
    assert seen["line"] == 2 and seen["notes"] == []
    assert ("h = h + 1" in seen["fixes"][0][0] or seen["fixes"]) and seen["fixes"][0][1] == "same"


def test_a_kernel_that_writes_by_address_writes_no_more_than_the_cell() -> None:
    setup = """
        import torch, ctypes
        w = torch.ones(4, device="standin", requires_grad=True)
        class Fused(torch.optim.Optimizer):
            def __init__(self, params): super().__init__(params, {})
            def step(self, closure=None):
                for p in self.param_groups[0]["params"]:
                    memory = (ctypes.c_float * p.numel()).from_address(p.data_ptr())
                    for i in range(p.numel()): memory[i] *= 0.5
        opt = Fused([w])
    """
    cell = "(w * 2).sum().backward()\nopt.step()\nh = torch.exp(w * 1)\nh += 1\nh.sum().backward()"
    seen = session(setup, cell, "answer = w.tolist()")
    assert seen["answer"] == [0.5] * 4 and seen["fixes"]


def test_a_graph_from_before_is_not_used_up() -> None:
    setup = "import torch\nw = torch.tensor([1., 2.], device='standin', requires_grad=True)\n"
    setup += "g, = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)"
    seen = session(
        setup, "h = torch.exp(w * 1)\nh += 1\nh.sum().backward()", "g.sum().backward(); answer = w.grad.tolist()"
    )
    assert seen["answer"] == [6.0, 12.0] and seen["error"] is None and seen["fixes"]


def test_a_limit_is_kept_in_the_thread_of_the_device() -> None:
    setup = """
        import torch, time
        w = torch.ones(3, device="standin", requires_grad=True)
        turns = []
        def hook(g):
            turns.append(1)
            while len(turns) > 1: time.sleep(0.01)
    """
    cell = "u = w * 2\nu.register_hook(hook)\nu.sum().backward()\nh = torch.exp(w * 1)\nh += 1\nh.sum().backward()"
    seen = session(
        "%config InplaceMagic.time_limit = 3",
        setup,
        cell,
        "answer = len(turns)",
    )
    assert seen["answer"] == 1


def test_a_hook_in_the_thread_of_the_device_writes_no_file(tmp_path: Path) -> None:
    setup = """
        import torch
        w = torch.ones(3, device="standin", requires_grad=True)
        def hook(g):
            with open("grads.csv", "a") as file: file.write("x")
    """
    cell = "u = w * 2\nu.register_hook(hook)\nu.exp().sum().backward(retain_graph=True)\nh = torch.exp(u)\nh += 1\nh.sum().backward()"
    session(setup, cell, folder=tmp_path)
    assert (tmp_path / "grads.csv").read_text() == "x"


def test_a_gradient_penalty_is_watched_in_the_thread_of_the_device() -> None:
    cell = """
        %%autograd_check
        import torch
        w = torch.tensor([1., 2.], device="standin", requires_grad=True)
        y = (w ** 3).sum()
        g, = torch.autograd.grad(y, w, create_graph=True)
        (y + (g.norm() - 1) ** 2).backward()
        answer = w.grad.tolist()
    """
    seen = session(cell)
    assert seen["error"] is None and seen["answer"][0] == pytest.approx(36.0896, rel=1e-4), seen


def test_a_healthy_cell_waits_for_the_device_no_oftener() -> None:
    count = "answer = torch.standin.synchronized(), torch.standin.kernels()"
    cell = "for _ in range(3):\n    opt.zero_grad(); net(x).sum().backward(); opt.step()"
    seen = [
        session(off, NET.format(device="standin"), cell, count)["answer"] for off in ("%unload_ext inplace_magic", "1")
    ]
    assert seen[0] == seen[1]


def test_a_device_without_room_is_told() -> None:
    setup = (
        NET.format(device="standin") + "    torch.standin.set_capacity(torch.standin.memory_allocated() + 5 * 2**20)"
    )
    cell = """
        h = torch.exp(net(x))
        big = torch.zeros(2**20 if torch.standin.memory_allocated() < 2**30 else 1, device=x.device)
        h += 1
        h.sum().backward()
    """
    seen = session(setup, cell)
    assert seen["fixes"], seen
