"""A process group in a copy of the process: nothing waits for threads or peers that a copy does not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inplace_magic.sandbox import process_group
from tests.breadth import broad

NET = """
import os, torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.norm, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
    def forward(self, x):
        h = torch.sigmoid(self.norm(self.a(x)))
        if rank == WRONG:
            h += 1
        return self.b(h)
"""
TRAIN = """
model = DDP(Net())
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, {"rank": rank})
print("rank", rank, "done")
"""


def python(text: str, tmp_path: Path, *before: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    command = [sys.executable, "-W", "ignore", *before, str(script)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, cwd=tmp_path)


def test_without_a_group_there_is_nothing_to_answer() -> None:
    assert not process_group.in_use() and process_group.cannot_serve() is None
    with process_group.alone():
        pass


def test_a_failure_under_ddp_is_run_again_and_the_group_is_as_it_was(tmp_path: Path) -> None:
    start = "dist.init_process_group('gloo', init_method=f'file://{os.getcwd()}/store', rank=0, world_size=1); rank = 0"
    session = f"""
from tests.cells import run_cells
done = run_cells({NET.replace("WRONG", "0")!r}, {start!r}, {TRAIN!r})
assert done.diagnosis is not None and done.diagnosis.fixes, done.output
assert done.diagnosis.changed.text == "h += 1"
model = done.shell.user_ns["model"]
assert model.require_backward_grad_sync and "Idle" not in type(model.reducer).__name__
assert done.cell("%autograd_fix --run").error is None
done.shell.user_ns["dist"].destroy_process_group()  # its threads must not want Python when that has ended
"""
    environment = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    done = python(f"import sys; sys.path[:0] = {environment.split(os.pathsep)!r}\n{session}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("wrong", broad(["1", "rank"], 2))
def test_a_rank_that_fails_explains_itself_and_the_run_ends(tmp_path: Path, wrong: str) -> None:
    text = NET.replace("WRONG", wrong) + "dist.init_process_group('gloo'); rank = dist.get_rank()\n" + TRAIN
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "inplace_magic"]
    done = python(text, tmp_path, *run)
    assert done.returncode != 0
    assert "h += 1" in done.stdout and "h = h + 1" in done.stdout, done.stdout + done.stderr
    assert "collectives were answered by this rank alone" in " ".join(done.stdout.split())


def test_a_backend_that_a_copy_cannot_use_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda *args: "nccl")
    assert "process group over nccl" in (process_group.cannot_serve() or "")
