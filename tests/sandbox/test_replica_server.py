"""What a replica imports for a session is contained, as the session's cells are."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from inplace_magic.sandbox.replica.server import import_contained

WRITES = "import pathlib\npathlib.Path({path!r}).write_text('x')\n"
MAKES_A_FOLDER = "import tempfile\nFOLDER = {}\nopen(FOLDER + '/made', 'w').close()\n"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The session's folder for temporary files; modules are found beside it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_a_module_that_writes_a_file_when_it_is_imported_writes_none(temporary: Path) -> None:
    elsewhere = temporary.parent / "elsewhere.txt"
    (temporary.parent / "writes_elsewhere.py").write_text(WRITES.format(path=str(elsewhere)))
    import_contained(["writes_elsewhere"])
    assert "writes_elsewhere" not in sys.modules and not elsewhere.exists()


@pytest.mark.parametrize(
    "make", ["tempfile.mkdtemp()", "tempfile.TemporaryDirectory().name; import os; os.makedirs(FOLDER, exist_ok=True)"]
)
def test_a_module_that_makes_a_temporary_folder_when_it_is_imported_is_there(make: str, temporary: Path) -> None:
    (temporary.parent / "keeps_a_temporary_folder.py").write_text(MAKES_A_FOLDER.format(make))
    import_contained(["no_such_module", "keeps_a_temporary_folder"])
    del sys.modules["keeps_a_temporary_folder"]
    assert list(temporary.iterdir()) == [] and tempfile.tempdir == str(temporary)


def test_a_module_finds_what_it_keeps_in_the_folder_for_temporary_files(temporary: Path) -> None:
    (temporary / "cache").write_text("built before")
    (temporary.parent / "reads_its_cache.py").write_text(
        "import os, tempfile\nTEXT = open(os.path.join(tempfile.gettempdir(), 'cache')).read()\n"
    )
    import_contained(["reads_its_cache"])
    assert sys.modules.pop("reads_its_cache").TEXT == "built before"
