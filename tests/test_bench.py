"""The benchmark runs and prints its table; what it measures is asserted nowhere, since it depends on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = {
    "loading": "%load_ext",
    "cells": "a cell that",
    "recording": "recorded rerun",
    "growth": "ten times",
}


def figures(tmp_path: Path, *options: str) -> list[dict[str, object]]:
    """What a quick run writes; the table that it prints has a line for each figure."""
    out = tmp_path / "bench.json"
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "tests.bench", "--quick", "--json", str(out), *options]
    run = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stderr[-2000:]
    written = json.loads(out.read_text())
    assert len(run.stdout.splitlines()) == len(written) + 1
    assert {"name", "value", "target", "bound"} <= written[0].keys()
    return written


def names(written: list[dict[str, object]], kind: str) -> bool:
    return any(str(figure["name"]).startswith(kind) for figure in written)


def test_the_table_is_printed_and_written(tmp_path: Path) -> None:
    """Of what is measured in the benchmark's own process."""
    written = figures(tmp_path, *(f"--only={part}" for part in PARTS))
    assert all(names(written, kind) for kind in PARTS.values())


@pytest.mark.broad
def test_all_of_it_is_measured(tmp_path: Path) -> None:
    written = figures(tmp_path)
    assert all(names(written, kind) for kind in (*PARTS.values(), "from the error", "by a replica"))
