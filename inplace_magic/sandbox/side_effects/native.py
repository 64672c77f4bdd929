"""Libraries that open files without telling Python: which argument of which function is a path.

Needed only where the kernel does not keep a rerun's files apart. Each stands for one argument: its place among the
arguments, its name, and what becomes of it: read, written (afresh), updated (kept and changed), or as another argument,
the mode, says.
"""

from __future__ import annotations

import os
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import run as runs
from .refused import RefusedFile
from .replacements import Function, Replacement, find

__all__ = ["native_replacements"]

READ, WRITE, UPDATE = os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class _Path:
    """Argument ``index``, or ``name`` as a keyword, is a path to be opened with ``flags``; or as the ``mode`` says."""

    index: int
    name: str
    flags: int = READ
    mode: int | None = None

    def flags_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        if self.mode is None:
            return self.flags
        mode = str(args[self.mode] if len(args) > self.mode else kwargs.get("mode") or "r")
        if mode.startswith(("w", "x")):
            return WRITE
        return UPDATE if "a" in mode or "+" in mode else READ


def _redirected(path: _Path) -> Callable[[Function], Function]:
    def wrap(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            run = runs.mine()
            given = args[path.index] if len(args) > path.index else kwargs.get(path.name)
            if run is None or not isinstance(given, str | bytes | os.PathLike):
                return original(*args, **kwargs)
            placed = run.files.place(os.fsdecode(given), path.flags_of(args, kwargs))
            if placed == os.fsdecode(given):
                return original(*args, **kwargs)
            if len(args) > path.index:
                return original(*args[: path.index], placed, *args[path.index + 1 :], **kwargs)
            return original(*args, **{**kwargs, path.name: placed})

        return call

    return wrap


def _mapped(index: int) -> Callable[[Function], Function]:
    """``from_file``: what is mapped to be shared is written to the file."""

    def wrap(original: Function) -> Function:
        updated, read = (_redirected(_Path(index, "filename", flags))(original) for flags in (UPDATE, READ))

        def call(*args: Any, **kwargs: Any) -> Any:
            shared = args[index + 1] if len(args) > index + 1 else kwargs.get("shared", False)
            return (updated if shared else read)(*args, **kwargs)

        return call

    return wrap


def _database(original: Function) -> Function:
    """SQLite keeps files beside the database (-wal, -journal), and understands addresses."""

    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        run = runs.mine()
        name = os.fsdecode(database) if isinstance(database, str | bytes | os.PathLike) else ""
        address, mark, query = name.partition("?") if kwargs.get("uri") and name.startswith("file:") else (name, "", "")
        path = urllib.parse.unquote(address.removeprefix("file:")) if address is not name else name
        if run is None or path in ("", ":memory:") or "mode=memory" in query:
            return original(database, *args, **kwargs)
        flags = READ if "mode=ro" in query or "immutable=1" in query else UPDATE
        for beside in ("-wal", "-journal", "-shm"):
            if flags == UPDATE and run.files.exists(path + beside):
                run.files.place(path + beside, os.O_RDWR)
        placed = run.files.place(path, flags)
        if address is not name:
            placed = "file:" + urllib.parse.quote(placed) + mark + query
        return original(placed, *args, **kwargs)

    return connect


def _named_memory(original: Function) -> Function:
    def named(path: str, *args: Any, **kwargs: Any) -> Any:
        if run := runs.mine():
            run.refuse(RefusedFile, f"opens shared memory {path!r}", path)
        return original(path, *args, **kwargs)

    return named


def _to(index: int, name: str, flags: int = WRITE) -> Callable[[Function], Function]:
    return _redirected(_Path(index, name, flags))


def _by_mode(index: int, name: str, mode: int) -> Callable[[Function], Function]:
    return _redirected(_Path(index, name, mode=mode))


_TABLE: tuple[tuple[str, str, Callable[[Function], Function]], ...] = (
    ("torch._C", "PyTorchFileWriter", _to(0, "file_name")),
    ("torch._C", "PyTorchFileReader", _to(0, "name", READ)),
    ("torch._C", "ScriptFunction.save", _to(1, "filename")),
    ("torch", "from_file", _mapped(0)),
    ("torch", "UntypedStorage.from_file", _mapped(0)),
    ("torch.jit", "RecursiveScriptModule.save", _to(1, "f")),
    ("torch.jit", "load", _to(0, "f", READ)),
    ("torch.distributed", "FileStore", _to(0, "file_name", UPDATE)),
    ("torchvision.io", "read_image", _to(0, "path", READ)),
    ("torchvision.io", "read_file", _to(0, "path", READ)),
    ("torchvision.io", "write_file", _to(0, "filename")),
    ("torchvision.io", "write_jpeg", _to(1, "filename")),
    ("torchvision.io", "write_png", _to(1, "filename")),
    ("torchaudio", "load", _to(0, "uri", READ)),
    ("torchaudio", "save", _to(0, "uri")),
    ("soundfile", "SoundFile.__init__", _by_mode(1, "file", 2)),
    ("safetensors", "safe_open", _to(0, "filename", READ)),
    ("safetensors.torch", "safe_open", _to(0, "filename", READ)),
    ("safetensors.torch", "serialize_file", _to(1, "filename")),
    ("safetensors.numpy", "safe_open", _to(0, "filename", READ)),
    ("safetensors.numpy", "serialize_file", _to(1, "filename")),
    ("transformers.modeling_utils", "safe_open", _to(0, "filename", READ)),
    (
        "transformers.tokenization_utils_fast",
        "PreTrainedTokenizerFast._save_pretrained",
        _to(1, "save_directory", os.O_DIRECTORY if hasattr(os, "O_DIRECTORY") else READ),
    ),
    ("h5py", "File.__init__", _by_mode(1, "name", 2)),
    ("tables", "open_file", _by_mode(0, "filename", 1)),
    ("pyarrow", "OSFile", _by_mode(0, "path", 1)),
    ("pyarrow", "memory_map", _by_mode(0, "path", 1)),
    ("pyarrow", "create_memory_map", _to(0, "path")),
    ("pyarrow.csv", "read_csv", _to(0, "input_file", READ)),
    ("pyarrow.csv", "write_csv", _to(1, "output_file")),
    ("pyarrow.feather", "read_feather", _to(0, "source", READ)),
    ("pyarrow.feather", "read_table", _to(0, "source", READ)),
    ("pyarrow.feather", "write_feather", _to(1, "dest")),
    ("pyarrow.parquet", "read_table", _to(0, "source", READ)),
    ("pyarrow.parquet", "ParquetWriter.__init__", _to(1, "where")),
    ("pyarrow.orc", "ORCWriter.__init__", _to(1, "where")),
    ("cv2", "imread", _to(0, "filename", READ)),
    ("cv2", "imwrite", _to(0, "filename")),
    ("cv2", "VideoCapture", _to(0, "filename", READ)),
    ("cv2", "VideoWriter", _to(0, "filename")),
    ("xgboost", "Booster.save_model", _to(1, "fname")),
    ("lightgbm", "Booster.save_model", _to(1, "filename")),
    ("sqlite3", "connect", _database),
    ("sqlite3.dbapi2", "connect", _database),
    ("_posixshmem", "shm_open", _named_memory),
    ("_posixshmem", "shm_unlink", _named_memory),
)


def native_replacements() -> Iterator[Replacement]:
    """Those of the libraries that are imported."""
    for module, dotted, wrap in _TABLE:
        found = find(module, dotted) if module in sys.modules else None
        if found is not None:
            owner, name, original = found
            yield owner, name, staticmethod(wrap(original)) if dotted.endswith(".from_file") else wrap(original)
