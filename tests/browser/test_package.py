"""The front end comes with the package: in the wheel, where Jupyter looks for it, under the package's version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "inplace_magic" / "labextension"
SHARED = "share/jupyter/labextensions/inplace-magic"


@pytest.fixture(scope="module")
def version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(where), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "hatchling" in done.stderr and not os.environ.get("CI"):
        pytest.skip("the build backend cannot be had here")
    assert done.returncode == 0, done.stderr
    (found,) = where.glob("*.whl")
    return found


def test_the_address_holds_the_version_because_browsers_keep_it_for_a_year(version):
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["version"] == version
    assert package["jupyterlab"]["_build"]["load"] == f"static/remoteEntry.js?v={version}"


def test_the_wheel_has_every_file_where_jupyter_looks(wheel, version):
    names = zipfile.ZipFile(wheel).namelist()
    for file in ("package.json", "install.json", "static/remoteEntry.js"):
        assert f"inplace_magic-{version}.data/data/{SHARED}/{file}" in names


def test_jupyter_says_ok_after_an_install(wheel, version, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed"]
    subprocess.run([*pip, "--prefix", str(tmp_path), str(wheel)], check=True)
    environment = {**os.environ, "JUPYTER_PATH": str(tmp_path / "share" / "jupyter"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "jupyter", "labextension", "list"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    (line,) = [line for line in (said.stdout + said.stderr).splitlines() if line.strip().startswith("inplace-magic ")]
    assert f"v{version}" in line and "enabled" in line and "OK" in line
    assert str(tmp_path) in said.stdout + said.stderr
