"""By the kernel's own account no rerun of a session writes, sends or starts anything that is not its own."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from tests.sandboxes import SANDBOXES

from .system_calls import Traced, available, traced

pytestmark = pytest.mark.skipif(not available(), reason="needs strace, and to be allowed to trace")
SESSION = """
    import os, sys
    sys.path[:0] = {path!r}
    os.chdir({folder!r})
    import torch
    from tests.cells import new_shell, run_in
    shell = new_shell()
    cells = [
        "%config InplaceMagic.{option}", "%config InplaceMagic.fixes = 1", '''
    import csv, torch, torch.nn as nn, torch.nn.functional as F
    G, D = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1))
    optG, optD = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
    ''', '''
    for step in range(3):
        fake = G(torch.randn(4, 2))
        out = D(fake)
        lossD = F.softplus(out).mean() + F.softplus(-D(torch.randn(4, 2))).mean()
        lossG = F.softplus(-out).mean()
        with open("log.csv", "a") as file: csv.writer(file).writerow([step, lossD.item()])
        torch.save(D.state_dict(), "D.pt")
        optD.zero_grad(); lossD.backward(retain_graph=True); optD.step()
        optG.zero_grad(); lossG.backward(); optG.step()
    ''']
    import textwrap
    done = run_in(shell, [textwrap.dedent(cell).strip() for cell in cells])
    assert done.diagnosis is not None and done.diagnosis.fixes, done.output
"""


def reruns(tmp_path: Path, option: str) -> Traced:
    """The calls of a session in which a GAN fails that writes a log and a checkpoint."""
    folder = tmp_path / "session"
    folder.mkdir()
    text = textwrap.dedent(SESSION).format(path=sys.path, folder=str(folder), option=option)
    seen = traced([sys.executable, "-c", text], tmp_path)
    assert any("D.pt" in line for number in seen.reruns for line in seen.lines.get(number, ())), "they do write"
    return seen


@pytest.mark.parametrize("room", SANDBOXES)
def test_nothing_is_written_past_a_rerun(tmp_path: Path, room: str) -> None:
    seen = reruns(tmp_path, f"sandbox = '{room}'")
    assert list(seen.writes()) == []
    assert (tmp_path / "session" / "log.csv").read_text().count("\n") == 1


@pytest.mark.broad
def test_what_is_allowed_to_be_written_is_seen(tmp_path: Path) -> None:
    assert any("D.pt" in line for line in reruns(tmp_path, "allow_side_effects = True").writes())
