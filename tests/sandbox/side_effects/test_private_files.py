"""What training cells write, written and read back by a process that has files of its own; the disk stays as it was."""

from __future__ import annotations

import csv
import json
import logging
import os
import pickle
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inplace_magic.sandbox import fork
from inplace_magic.sandbox.side_effects import Refused, calls, containment, make_private

from .means import means, privately
from .test_file_programs import fingerprint

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder with something in it, to be found as it was; and no temporary file is left beside it."""
    monkeypatch.chdir(tmp_path)
    Path("old").mkdir()
    Path("old/log.txt").write_text("old\n")
    torch.save(torch.ones(2), "old/weights.pt")
    np.save("old/array.npy", np.arange(4))
    with sqlite3.connect("old/runs.db") as database:
        database.execute("create table t (n)")
    database.close()
    os.mkfifo("pipe")
    temporary = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = fingerprint(tmp_path)
    yield
    assert fingerprint(tmp_path) == before
    assert os.listdir(temporary) == []


def _torch(path: str) -> float:
    torch.save({"w": torch.ones(3)}, path)
    return float(torch.load(path)["w"].sum())


def _torch_old() -> float:
    torch.save(torch.ones(3), "m.pt", _use_new_zipfile_serialization=False)
    return float(torch.load("m.pt").sum())


def _torchscript() -> float:
    torch.jit.script(torch.nn.Linear(1, 1)).save("m.ts")  # type: ignore[no-untyped-call]
    return len(list(torch.jit.load("m.ts").parameters()))  # type: ignore[no-untyped-call]


def _mapped(shared: bool) -> float:
    np.full(4, 2.0, dtype="float32").tofile("old/raw.bin")
    mapped = torch.from_file("old/raw.bin", shared=shared, size=4)
    mapped.add_(1)
    return float(torch.from_file("old/raw.bin", size=4).sum())


def _numpy() -> float:
    np.save("a.npy", np.ones(3))
    np.savez("b.npz", x=np.ones(2))
    np.savetxt("c.txt", np.ones(2))
    np.ones(2).tofile("d.bin")
    mapped = np.memmap("e.bin", mode="w+", shape=(3,), dtype="float64")
    mapped[:] = 1
    mapped.flush()
    np.load("old/array.npy", mmap_mode="r+")[0] = 7
    return float(
        np.load("a.npy").sum()
        + np.load("b.npz")["x"].sum()
        + np.loadtxt("c.txt").sum()
        + np.fromfile("d.bin").sum()
        + np.fromfile("e.bin").sum()
        + np.load("old/array.npy")[0]
    )


def _database() -> list[Any]:
    with sqlite3.connect("old/runs.db") as database:
        database.execute("pragma journal_mode = wal")
        database.execute("insert into t values (1)")
    database.close()
    return sqlite3.connect("old/runs.db").execute("select n from t").fetchall()


def _logs() -> list[str]:
    handler = logging.FileHandler("old/log.txt")
    logger = logging.getLogger("training")
    logger.addHandler(handler)
    logger.warning("epoch 1")
    handler.close()
    return Path("old/log.txt").read_text().splitlines()


def _texts() -> list[Any]:
    os.makedirs("runs/1", exist_ok=True)
    with open("runs/1/a.csv", "w", newline="") as file:
        csv.writer(file).writerows([[1, 2], [3, 4]])
    Path("runs/1/b.json").write_text(json.dumps({"a": 1}))
    with open("runs/1/c.pkl", "wb") as out:
        pickle.dump([1], out)
    shutil.make_archive("runs/all", "zip", "runs/1")
    os.replace("runs/1/b.json", "runs/best.json")
    shutil.rmtree("old", ignore_errors=True)
    return [sorted(p.as_posix() for p in Path("runs").rglob("*")), os.path.exists("old/log.txt")]


def _temporary() -> list[Any]:
    with tempfile.NamedTemporaryFile("w+") as file, tempfile.TemporaryDirectory() as folder:
        file.write("x")
        file.flush()
        Path(folder, "y").write_text("y")
        return [Path(file.name).read_text(), os.listdir(folder), tempfile.TemporaryFile().write(b"1")]


class _Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        Path(f"cache-{index}").write_text("cached")
        return torch.tensor(float(index))


def _workers() -> list[Any]:
    loader = torch.utils.data.DataLoader(_Numbers(), batch_size=2, num_workers=2)
    total = sum(float(batch.sum()) for batch in loader)
    return [total, len([n for n in os.listdir() if n.startswith("cache-")])]


def _moved_folders() -> list[Any]:
    os.rename("old", "new")
    os.mkdir("old")
    os.replace("new", "old")
    return [sorted(os.listdir()), sorted(os.listdir("old")), Path("old/log.txt").read_text()]


JOBS: dict[str, tuple[Callable[[], Any], Any]] = {
    "torch.save": (lambda: _torch("m.pt"), 3.0),
    "torch.save over what is there": (lambda: _torch("old/weights.pt"), 3.0),
    "torch.save as before 1.6": (_torch_old, 3.0),
    "a path that is no ascii": (lambda: _torch("modèle.pt"), 3.0),
    "TorchScript": (_torchscript, 2),
    "torch.from_file, shared": (lambda: _mapped(True), 12.0),
    "torch.from_file, private": (lambda: _mapped(False), 8.0),
    "numpy": (_numpy, 3 + 2 + 2 + 2 + 3 + 7),
    "a database": (_database, [(1,)]),
    "a log that is continued": (_logs, ["old", "epoch 1"]),
    "folders, csv, json, pickle": (
        _texts,
        [["runs/1", "runs/1/a.csv", "runs/1/c.pkl", "runs/all.zip", "runs/best.json"], False],
    ),
    "a folder that is moved": (
        _moved_folders,
        [["old", "pipe"], ["array.npy", "log.txt", "runs.db", "weights.pt"], "old\n"],
    ),
    "temporary files": (_temporary, ["x", ["y"], 1]),
    "workers of a DataLoader that write": (_workers, [28.0, 8]),
}


@pytest.mark.parametrize("kind", means())
@pytest.mark.parametrize("name", JOBS)
def test_what_is_written_is_read_back(name: str, kind: str) -> None:
    job, expected = JOBS[name]
    assert privately(job, kind) == (expected, None)


@pytest.mark.parametrize("kind", means())
def test_a_pipe_is_not_opened(kind: str) -> None:
    def attempt() -> str:
        with pytest.raises(Refused) as caught:
            open("pipe")  # noqa: SIM115
        return str(caught.value.what)

    assert privately(attempt, kind) == ("opens the pipe 'pipe'",) * 2


@pytest.mark.parametrize("kind", means())
def test_more_than_may_be_written_is_a_full_disk(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "MOST_BYTES", 2**22)

    def attempt() -> int:
        for number in range(64):
            try:
                Path(f"{number}").write_bytes(bytes(2**20))
            except OSError as error:
                return error.errno or 0
        return 0

    assert privately(attempt, kind) == (28, "writes more than 4 MB to files")


@pytest.mark.parametrize("kind", means())
def test_an_error_names_the_file_that_was_asked_for(kind: str) -> None:
    def attempt() -> list[Any]:
        Path("here").write_text("x")
        with pytest.raises(FileNotFoundError) as caught:
            open("old/absent.txt")  # noqa: SIM115
        with pytest.raises(FileNotFoundError) as second:
            os.rename("absent", "new")
        return [caught.value.filename, second.value.filename, second.value.filename2]

    assert privately(attempt, kind) == (["old/absent.txt", "absent", "new"], None)


def test_a_file_that_the_session_holds_open_has_a_position_and_contents_of_its_own() -> None:
    with open("old/log.txt", "a") as log, open("old/log.txt") as reading:

        def work() -> list[str]:
            log.write("from the rerun\n")
            log.flush()
            return [reading.read(), Path("old/log.txt").read_text()]

        found = fork.run(work, 60, None, make_private)
        assert found.value is not None and found.value[1] == "old\nfrom the rerun\n"
        assert reading.read() == "old\n"


def test_nothing_stands_in_for_a_function_outside_of_a_rerun() -> None:
    assert calls.real.open is os.open and open.__module__ in ("io", "_io")
