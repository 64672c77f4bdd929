"""Random programs of file operations: contained, they see what they would see on the disk, and the disk stays as it was."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ...seeds import examples
from .means import in_a_child, means, privately

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

Operation = tuple[Any, ...]
NAMES = [
    "a",
    "b",
    "d",
    "d/x",
    "d/e",
    "d/e/y",
    "d/e/z",
    "n",
    "n/x",
    "l",
    "l/x",
    "m",
    "k",
    "o",
    "d/../a",
    "./d/.",
    "d/",
    "b/",
    "a/",
    "m/",
    "k/",
    "o/",
    "n/",
    "n/.",
    "a/.",
    "l/.",
    "l/../a",
    "m/../b",
    "d/e/../x",
    "l/e/y",
    ".",
    "d/..",
]
PATHS = st.sampled_from(NAMES)
DATA = st.sampled_from(["", "1", "twenty-two"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.sampled_from(["w", "a", "x", "r+", "w+", "a+"]), DATA),
    st.tuples(st.just("read"), PATHS),
    st.tuples(st.just("descriptor"), PATHS, st.sampled_from([os.O_CREAT, os.O_EXCL | os.O_CREAT, os.O_TRUNC, 0]), DATA),
    st.tuples(
        st.sampled_from(["mkdir", "rmdir", "remove", "list", "walk", "stat", "lstat", "rmtree", "makedirs"]), PATHS
    ),
    st.tuples(st.sampled_from(["rename", "replace", "copy", "move", "symlink", "link", "copytree"]), PATHS, PATHS),
    st.tuples(st.sampled_from(["chmod", "truncate", "readlink", "exists", "glob", "touch"]), PATHS),
)
PROGRAMS = st.lists(OPERATIONS, min_size=1, max_size=14)
SLASHES: list[Operation] = [
    (name, *args)
    for path in ("a/", "m/", "k/", "o/", "l/", "n/", "n/.", "a/.", "d/.", "l/.")
    for name, *args in (("symlink", "a", path), ("link", "a", path), ("mkdir", path), ("makedirs", path))
]

LINKS: list[Operation] = [
    operation
    for target in ("m/", "a/", "n/", "n/.", "a/.", "d/", "d/.", "l/")
    for name, path in (("b", target), ("n", "b"), ("n", "b/"))
    for operation in (
        *(("symlink", path, name), ("read", name), ("truncate", name), ("stat", name), ("list", name), ("touch", name)),
        *(("write", name, mode, "1") for mode in ("w", "a", "x", "r+")),
        *(("descriptor", name, flags, "1") for flags in (0, os.O_CREAT)),
        *(("chmod", name), ("mkdir", name), ("copy", "a", name), ("remove", name)),
    )
]


def plant(root: Path) -> None:
    """The tree that a program starts from."""
    (root / "d/e").mkdir(parents=True)
    (root / "a").write_text("file a")
    (root / "d/x").write_text("file x")
    (root / "d/e/y").write_text("file y")
    (root / "l").symlink_to("d")
    (root / "m").symlink_to("a")
    (root / "k").symlink_to("nowhere")
    (root / "o").symlink_to("o")
    os.chmod(root / "a", 0o640)


def fingerprint(root: Path) -> str:
    """Of everything below a folder: names, kinds, modes, times, contents."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in [".", *sorted(folders + files)]:
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(seen.st_mode) else b""
            if stat.S_ISREG(seen.st_mode):
                content = Path(path).read_bytes()
            found.update(repr((path, seen.st_mode, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns, content)).encode())
    return found.hexdigest()


def run(program: list[Operation], root: Path) -> list[object]:
    os.chdir(root)
    os.umask(0o022)
    return [outcome(operation) for operation in program] + [outcome(("walk", "."))]


def outcome(operation: Operation) -> object:
    name, *args = operation
    try:
        return DOES[name](*args)
    except (OSError, shutil.Error) as error:
        return type(error).__name__, getattr(error, "errno", None)


def _write(path: str, mode: str, data: str) -> object:
    with open(path, mode) as file:
        file.write(data)
        file.seek(0)
        return file.read() if "+" in mode else file.name


def _read(path: str) -> object:
    with open(path) as file:
        return file.read()


def _descriptor(path: str, flags: int, data: str) -> object:
    descriptor = os.open(path, os.O_RDWR | flags, 0o600)
    try:
        return os.write(descriptor, data.encode()), os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _walk(path: str) -> object:
    found: list[object] = []
    for folder, folders, files in os.walk(path):
        folders.sort()
        found.append((folder, list(folders), [(f, _seen(os.lstat(os.path.join(folder, f)))) for f in sorted(files)]))
    return found


def _seen(found: os.stat_result) -> object:
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return oct(found.st_mode), size, found.st_nlink if stat.S_ISREG(found.st_mode) else 0


def _list(path: str) -> object:
    with os.scandir(path) as entries:
        found = sorted(entries, key=lambda e: e.name)  # they come in no order, and one that raises ends it
        scanned = [(e.name, e.path, e.is_dir(), e.is_file(), e.is_symlink()) for e in found]
    return sorted(os.listdir(path)), scanned


def _rmtree(path: str) -> object:
    """Not by a path that leads through what is removed: descriptors get there, names do not. And not the root itself."""
    place = os.path.realpath(path)
    return True if os.path.islink(path.rstrip("/")) or place == os.getcwd() else shutil.rmtree(place)


def _copytree(source: str, target: str) -> object:
    below = os.path.relpath(os.path.realpath(target), os.path.realpath(source))
    return below if not below.startswith("..") else str(shutil.copytree(source, target, symlinks=True))  # else for ever


def _move(source: str, target: str) -> object:
    """Not a folder into itself by way of a link, which shutil does not see: it copies for ever."""
    by_link = (
        os.path.isdir(source) and not os.path.islink(source) and os.path.realpath(source) != os.path.abspath(source)
    )
    below = os.path.relpath(os.path.realpath(target), os.path.realpath(source))
    return below if by_link and not below.startswith("..") else str(shutil.move(source, target))


DOES: dict[str, Any] = {
    "write": _write,
    "read": _read,
    "descriptor": _descriptor,
    "mkdir": lambda path: os.mkdir(path),
    "makedirs": lambda path: os.makedirs(path, exist_ok=True),
    "rmdir": lambda path: os.rmdir(path),
    "remove": lambda path: os.remove(path),
    "rmtree": _rmtree,
    "list": _list,
    "walk": _walk,
    "stat": lambda path: _seen(os.stat(path)),
    "lstat": lambda path: _seen(os.lstat(path)),
    "rename": lambda a, b: os.rename(a, b),
    "replace": lambda a, b: Path(a).replace(b) and None,
    "copy": lambda a, b: str(shutil.copy(a, b)),
    "copytree": _copytree,
    "move": _move,
    "symlink": lambda a, b: os.symlink(a, b),
    "link": lambda a, b: os.link(a, b),
    "chmod": lambda path: os.chmod(path, 0o604),
    "truncate": lambda path: os.truncate(path, 3),
    "readlink": lambda path: os.readlink(path),
    "exists": lambda path: (os.path.exists(path), Path(path).is_dir(), os.path.islink(path), os.access(path, os.W_OK)),
    "glob": lambda path: sorted(str(p) for p in Path(path).glob("*")),
    "touch": lambda path: Path(path).touch(),
}


def compare(program: list[Operation], kind: str, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    plant(root)
    really = in_a_child(lambda: run(program, root))
    shutil.rmtree(root)
    plant(root)
    before, beside = fingerprint(root), sorted(os.listdir(root.parent))
    contained, refused = privately(lambda: run(program, root), kind)
    assert fingerprint(root) == before
    assert sorted(os.listdir(root.parent)) == beside
    assert contained == really
    assert refused is None


def quickly(examples: int) -> Any:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.mark.parametrize("kind", means())
@quickly(40)
@given(program=PROGRAMS)
@example(program=SLASHES)
@example(program=LINKS)
@example(program=[("move", "l/.", "d/e/z"), ("move", "l", "d/z"), ("move", "d/.", "d/e/z")])
@example(program=[("write", "a", "w", ""), ("list", "."), ("symlink", "a/x", "n"), ("list", ".")])
def test_a_few_programs(program: list[Operation], kind: str, tmp_path: Path) -> None:
    compare(program, kind, tmp_path / "root")


@pytest.mark.random
@pytest.mark.parametrize("kind", means())
@quickly(examples(100))
@given(program=PROGRAMS)
def test_many_programs(program: list[Operation], kind: str, tmp_path: Path) -> None:
    compare(program, kind, tmp_path / "root")
