"""The benchmark runs and prints its table; what it measures is asserted nowhere, since it depends on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_table_is_printed_and_written(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "tests.bench", "--quick", "--json", str(out)]
    run = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stderr[-2000:]
    figures = json.loads(out.read_text())
    assert len(run.stdout.splitlines()) == len(figures) + 1
    assert {"name", "value", "target", "bound"} <= figures[0].keys()
    kinds = ("%load_ext", "a cell that", "recorded rerun", "from the error", "ten times")
    assert all(any(figure["name"].startswith(kind) for figure in figures) for kind in kinds)
