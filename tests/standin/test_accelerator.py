"""Sessions on an accelerator, in use or merely visible: CUDA where there is one, else one made for tests (``standin.cpp``).

The cells name the latter. The sessions share one process, since torch cannot forget a device and takes seconds to load.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.sandboxes import needs_replica

DEVICE = "cuda" if torch.cuda.is_available() else "standin"
made_for_tests = pytest.mark.skipif(DEVICE != "standin", reason="needs the device that counts and has a limit")
pytestmark = [
    needs_replica,
    pytest.mark.skipif(
        DEVICE == "standin" and shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a compiler"
    ),
]
HERE = Path(__file__).parent
# One session a line, as json; the answer to it is a line as well.
SESSIONS = """
    import json, os, sys
    import torch
    from inplace_magic.sandbox import replica
    from tests import replicas
    from tests.cells import new_shell, run_in
    made_for_tests = not torch.cuda.is_available()
    if made_for_tests:
        import standin
        replica._started = replicas.copied
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        os.chdir(asked["folder"])
        if made_for_tests:
            torch.standin.set_capacity(0)
        shell = new_shell()
        shell.run_line_magic("config", "InplaceMagic.fixes = 1")
        done = None
        for cell in asked["cells"]:
            done = run_in(shell, [cell])
        found = done.diagnosis
        print(json.dumps({
            "fixes": [(f.title, f.gradients) for f in found.fixes] if found else [],
            "notes": [str(note) for note in found.notes] if found else [],
            "line": found.changed.line if found and found.changed else None,
            "changed": found.changed.text.strip() if found and found.changed else None,
            "error": None if done.error is None else str(done.error)[:200],
            "answer": shell.user_ns.get("answer"),
            "output": done.output[-3000:],
        }), file=answers, flush=True)
        shell.run_line_magic("reset", "-f")
        done = found = sys.last_exc = sys.last_value = sys.last_traceback = None
"""


def for_device(cell: str) -> str:
    return textwrap.dedent(cell).strip("\n").replace("standin", DEVICE)


@pytest.fixture(scope="module")
def machine() -> Iterator[subprocess.Popen[str]]:
    """A process that sees the device."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SESSIONS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def session(machine: subprocess.Popen[str], tmp_path: Path) -> Any:
    """Runs dedented cells in a new session: what came of the last one that failed, what ``answer`` is in the end."""

    def run(*cells: str) -> dict[str, Any]:
        assert machine.stdin is not None and machine.stdout is not None
        texts = [for_device(cell) for cell in cells]
        print(json.dumps({"cells": texts, "folder": str(tmp_path)}), file=machine.stdin, flush=True)
        answer: dict[str, Any] = json.loads(machine.stdout.readline())
        return answer

    return run


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
def test_nothing_of_the_session_changes(session: Any, device: str) -> None:
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
def test_a_verified_fix_where_the_device_is(session: Any, device: str) -> None:
    seen = session(NET.format(device=device), FAILS)
    assert seen["line"] == 2 and seen["notes"] == []
    assert seen["fixes"][0][1] == "same"


@made_for_tests
def test_a_kernel_that_writes_by_address_writes_no_more_than_the_cell(session: Any) -> None:
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


def test_a_graph_from_before_is_not_used_up(session: Any) -> None:
    setup = "import torch\nw = torch.tensor([1., 2.], device='standin', requires_grad=True)\n"
    setup += "g, = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)"
    seen = session(
        setup, "h = torch.exp(w * 1)\nh += 1\nh.sum().backward()", "g.sum().backward(); answer = w.grad.tolist()"
    )
    assert seen["answer"] == [6.0, 12.0] and seen["error"] is None and seen["fixes"]


def test_a_limit_is_kept_in_the_thread_of_the_device(session: Any) -> None:
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


def test_a_hook_in_the_thread_of_the_device_writes_no_file(session: Any, tmp_path: Path) -> None:
    setup = """
        import torch
        w = torch.ones(3, device="standin", requires_grad=True)
        def hook(g):
            with open("grads.csv", "a") as file: file.write("x")
    """
    cell = "u = w * 2\nu.register_hook(hook)\nu.exp().sum().backward(retain_graph=True)\nh = torch.exp(u)\nh += 1\nh.sum().backward()"
    session(setup, cell)
    assert (tmp_path / "grads.csv").read_text() == "x"


def test_a_gradient_penalty_is_watched_in_the_thread_of_the_device(session: Any) -> None:
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


@made_for_tests
def test_a_healthy_cell_waits_for_the_device_no_oftener(session: Any) -> None:
    count = "counts = torch.standin.synchronized(), torch.standin.kernels()"
    cell = "for _ in range(3):\n    opt.zero_grad(); net(x).sum().backward(); opt.step()"
    since = f"before = counts\n{count}\nanswer = counts[0] - before[0], counts[1] - before[1]"
    bare, loaded = (
        session(off, NET.format(device="standin"), count, cell, since)["answer"]
        for off in ("%unload_ext inplace_magic", "1")
    )
    assert bare == loaded and loaded[1] > 0


@made_for_tests
def test_a_device_without_room_is_told(session: Any) -> None:
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
    assert seen["fixes"][0][1] == "same" and "Verified on the CPU" in " ".join(seen["notes"]), seen


@pytest.mark.skipif(DEVICE != "cuda", reason="CUDA tells where a program waits for it")
def test_a_healthy_cell_never_waits_for_cuda(session: Any) -> None:
    setup = NET.format(device="cuda") + "    torch.cuda.set_sync_debug_mode('error')"
    cell = "for _ in range(3):\n    opt.zero_grad(); net(x).sum().backward(); opt.step()"
    seen = session(setup, cell, "torch.cuda.set_sync_debug_mode(0); answer = 1")
    assert seen["error"] is None and seen["answer"] == 1


@pytest.mark.skipif(DEVICE != "cuda", reason="fills it")
def test_a_full_cuda_device_is_told(session: Any) -> None:
    fill = "    full = torch.empty(torch.cuda.mem_get_info()[0] - 200 * 2**20, dtype=torch.uint8, device='cuda')"
    try:
        seen = session(NET.format(device="cuda") + fill, FAILS)
    finally:
        session("full = None; torch.cuda.empty_cache()")
    assert seen["fixes"][0][1] == "same" and "Verified on the CPU" in " ".join(seen["notes"]), seen


def test_autocast_and_a_gradient_scaler_are_as_they_would_be_without_a_report(session: Any) -> None:
    setup = """
        import torch, torch.nn as nn
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 2)).to("standin")
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("standin", init_scale=8.0, growth_interval=2)
        def step(bad=False):
            opt.zero_grad()
            with torch.autocast("standin", dtype=torch.bfloat16):
                out = torch.sigmoid(net(torch.randn(4, 8, device="standin")))
                if bad: out += 1
                loss = out.float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            scaler.step(opt); scaler.update()
        for _ in range(3): step()
    """
    cell = "for i in range(4): step(bad=i == 2)"
    look = """
        kept = [*net.parameters(), *net.buffers(), *(v for s in opt.state.values() for v in s.values())]
        answer = repr([
            [(t._version, t.tolist(), None if t.grad is None else t.grad.tolist()) for t in kept],
            scaler.state_dict(), [str(state) for state in scaler._per_optimizer_states.values()],
            torch.is_autocast_enabled("standin"), torch.rand(2).tolist(), torch.rand(2, device="standin").tolist(),
        ])
    """
    bare, loaded = (session(off, setup, cell, look) for off in ("%unload_ext inplace_magic", "1"))
    assert bare["answer"] == loaded["answer"]
    assert loaded["fixes"] == [["out = out + 1", "same"]] and loaded["notes"] == []


def test_a_checkpoint_with_reentry_is_no_graph_from_before(session: Any) -> None:
    setup = """
        import torch, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        block = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to("standin")
        x = torch.randn(3, 4, device="standin", requires_grad=True)
        for _ in range(50): block(x)
    """
    cell = "h = checkpoint(block, x, use_reentrant=True)\ny = torch.exp(h * 1)\ny += 1\ny.sum().backward()"
    seen = session(setup, cell)
    assert seen["fixes"][0] == ["y = y + 1", "same"] and seen["notes"] == []


def test_the_device_holds_no_more_after_a_report(session: Any) -> None:
    setup = """
        import torch, torch.nn as nn, gc
        net = nn.Sequential(*[nn.Linear(300, 300) for _ in range(3)]).to("standin")
        opt = torch.optim.Adam(net.parameters())
        x = torch.randn(500, 300, device="standin")
        def step(bad):
            h = x
            for layer in net:
                h = torch.tanh(layer(h))
                if bad: h += 1
            h.sum().backward()
            opt.step(); opt.zero_grad()
        step(False); gc.collect()
        before = torch.standin.memory_allocated()
        torch.standin.reset_peak_memory_stats()
    """
    look = """
        gc.collect()
        answer = [count() - before for count in (torch.standin.memory_allocated, torch.standin.max_memory_allocated)]
    """
    bare, loaded = (session(off, setup, "step(True)", look) for off in ("%unload_ext inplace_magic", "1"))
    assert loaded["fixes"] and bare["answer"] == loaded["answer"]


def test_the_line_of_a_write_in_the_thread_of_the_device_is_known(session: Any) -> None:
    setup = """
        import torch
        w = torch.ones(3, device="standin", requires_grad=True)
        def hook(g):
            with torch.no_grad():
                h.mul_(2)
    """
    cell = "h = torch.exp(w * 1)\nu = h * 3\nu.register_hook(hook)\nu.sum().backward()"
    seen = session(setup, cell)
    assert seen["changed"] == "h.mul_(2)" and seen["fixes"]


@pytest.mark.own_interpreter
def test_a_hook_may_print_in_a_kernel(tmp_path: Path) -> None:
    manager_module = pytest.importorskip("jupyter_client.manager")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    manager, client = manager_module.start_new_kernel(kernel_name="python3", env=environment, cwd=str(tmp_path))
    shown: list[str] = []

    def output(message: dict[str, Any]) -> None:
        shown.append(message["content"].get("text", ""))

    try:
        for cell in (
            """
            %load_ext inplace_magic
            %config InplaceMagic.fixes = 1
            import torch
            if not torch.cuda.is_available(): import standin
            w = torch.ones(3, device="standin", requires_grad=True)
            def hook(g):
                print("norm", g.norm().item())
                with open("norms.csv", "a") as file: file.write("x")
            """,
            """
            u = w * 2
            u.register_hook(hook)
            u.exp().sum().backward(retain_graph=True)
            h = torch.exp(u)
            h += 1
            h.sum().backward()
            """,
            "import inplace_magic; print(inplace_magic.last_diagnosis().fixes[0].title)",
        ):
            client.execute_interactive(for_device(cell), timeout=120, output_hook=output)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert (tmp_path / "norms.csv").read_text() == "x"
    text = "".join(shown)
    assert text.count("norm ") == 1 and "h = h + 1" in text
