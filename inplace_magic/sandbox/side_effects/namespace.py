"""A private view of the file system by the kernel: every write, by whatever code, goes to memory that dies with the process.

NOTE [A private view]
The process leaves the mount namespace of its parent for one of its own. A tmpfs of bounded size holds what is written; an
overlay file system shows it above what is really there; the process changes its root to that. Whoever may mount (root of
the machine) gets an overlay over "/". Anybody else is first made root of a user namespace, where a folder with a mount of
the parent's below it cannot be laid under an overlay: there everything is bound read-only, and the folders where people
write get overlays of their own. The network of the namespace is empty: a connection finds nobody.

The process must have one thread, and cannot go back. Renaming a folder that is really there fails with EXDEV, which
moved.py makes good for calls from Python.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import tempfile
from dataclasses import dataclass

from . import kernel

__all__ = ["View", "enter", "look_around"]

_PSEUDO = frozenset(
    [
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    ]
)
_SYSTEM = frozenset(["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"])
_OVERLAYS_AT_MOST = 64
_RESTRICTED = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_CAP_SYS_ADMIN = 21
_CAPS_ABOUT_FILES = 0b11111  # chown, dac_override, dac_read_search, fowner, fsetid


@dataclass(frozen=True)
class View:
    """A view entered. ``memory`` is a descriptor of the tmpfs that holds what is written."""

    memory: int

    def full(self) -> bool:
        """Whether as much has been written as may be."""
        numbers = os.fstatvfs(self.memory)
        return numbers.f_bavail * numbers.f_bsize < 2**20


def enter(most_bytes: int) -> View:
    """Gives this process a private view of files and an empty network, for good.

    ``most_bytes``: what may be written at most; after that the device is full.
    Raises OSError where that is not possible; the files seen are then the real ones, as before.
    """
    folder = os.getcwd()
    mounts = _mounts()
    workshop = _workshop([place for place, _ in mounts])
    root = _become_root()
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    below = os.open(workshop, os.O_PATH | os.O_DIRECTORY)
    try:
        kernel.mount("tmpfs", workshop, "tmpfs", 0, f"size={most_bytes},mode=755")
        try:
            view = _View(workshop, below, "" if root else ",userxattr")
            (view.over_root if root else view.over_folders)(mounts)
            memory = os.open(workshop, os.O_PATH | os.O_DIRECTORY)
            os.chroot(view.root)
            os.chdir(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                kernel.unmount(workshop)
            raise
    finally:
        os.close(below)
    if not root:
        kernel.limit_capabilities(_CAPS_ABOUT_FILES if os.getuid() == 0 else 0)
    return View(memory)


def _become_root() -> bool:
    """Enter the namespaces; whether as the root that the person was anyway."""
    _, _, effective = _text_of("/proc/self/status").partition("CapEff:")
    if int(effective[: effective.index("\n")], 16) >> _CAP_SYS_ADMIN & 1:
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET)
        return True
    with contextlib.suppress(FileNotFoundError), open(_RESTRICTED) as setting:
        if setting.read().strip() != "0":  # Ubuntu: there the namespace can be entered, and nothing be done in it
            raise OSError(1, "user namespaces are restricted")
    user, group = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return False


def look_around() -> None:
    """To be called ahead in a process that is about to be copied: a copy would pay for each page that it writes."""
    with contextlib.suppress(OSError):
        _mounts()


def _mounts() -> list[tuple[str, str]]:
    """(place, kind) of each mount, those above before those below; of several at one place the last is seen."""
    return _parsed(_text_of("/proc/self/mountinfo"))


def _text_of(path: str) -> str:
    """A file of the kernel's. By its descriptor: the layers of Python's own files cost a copied process pages."""
    parts, descriptor = [], os.open(path, os.O_RDONLY)
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    finally:
        os.close(descriptor)
    return os.fsdecode(b"".join(parts))


@functools.lru_cache(maxsize=1)
def _parsed(mounts: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for line in filter(None, mounts.split("\n")):
        fields, _, rest = line.partition(" - ")
        place = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields.split()[4])  # a blank is written \040
        found.pop(place, None)
        found[place] = rest.split()[0]
    return sorted(found.items())


def _is_below(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _workshop(mounts: list[str]) -> str:
    """A folder to build the view in: what it hides is not needed meanwhile, and is seen in the view again."""
    others = (f"/{name}" for name in sorted(os.listdir("/")) if f"/{name}" not in _SYSTEM)
    for folder in itertools.chain(["/mnt", "/media", "/srv", "/opt", "/tmp"], others):
        if not any(_is_below(m, folder) for m in mounts) and os.path.isdir(folder) and not os.path.islink(folder):
            return folder
    raise OSError(16, "there is no folder to build a view in")


class _View:
    """The view under construction in ``workshop``; ``below`` is a descriptor of what stood there."""

    def __init__(self, workshop: str, below: int, option: str) -> None:
        self.workshop, self.below, self.option = workshop, f"/proc/self/fd/{below}", option
        self.root = workshop + "/view"
        self.count = 0
        os.mkdir(self.root)

    def over_root(self, mounts: list[tuple[str, str]]) -> None:
        """One overlay over "/", one over each other file system; what is none is shown as it is."""
        self.overlay("/", "/")
        shown: list[str] = []
        for place, kind in mounts:
            if place == "/dev/shm":
                self.cover(place)
            elif place == "/" or any(_is_below(place, other) for other in shown):
                continue
            elif kind in _PSEUDO:
                self.bind(place, kernel.MS_REC)
                shown.append(place)
            else:
                self.cover(place)

    def over_folders(self, mounts: list[tuple[str, str]]) -> None:
        """Everything read-only, with an overlay over each folder that has no mount below it."""
        places = [place for place, _ in mounts]
        self.bind("/", kernel.MS_REC)
        for place, kind in mounts:
            if kind not in _PSEUDO:
                kernel.make_read_only(self.root + place)
        kernel.mount(self.below, self.root + self.workshop, None, kernel.MS_BIND)
        homes = [os.path.realpath(path) for path in (os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir())]
        for entry in sorted(os.scandir("/"), key=lambda e: e.name):
            used = os.access(entry.path, os.W_OK) or any(_is_below(home, entry.path) for home in homes)
            if used and entry.path not in _SYSTEM:
                self.descend(entry.path, places)
        if "/dev/shm" in places:
            self.cover("/dev/shm")

    def descend(self, folder: str, places: list[str]) -> None:
        if os.path.islink(folder) or not os.path.isdir(folder):
            return
        if not any(place != folder and _is_below(place, folder) for place in places):
            self.cover(folder)
            return
        with contextlib.suppress(PermissionError):
            for name in sorted(os.listdir(folder)):
                self.descend(os.path.join(folder, name), places)

    def cover(self, place: str) -> None:
        """An overlay, or where it cannot be had (a file of its own, a file system that has none) the real thing, read-only."""
        if os.path.isdir(place):
            with contextlib.suppress(OSError):
                self.overlay(self.below if place == self.workshop else place, place)
                return
        if self.option == "":
            self.bind(place)
            kernel.make_read_only(self.root + place)

    def bind(self, place: str, flags: int = 0) -> None:
        kernel.mount(place, self.root + place, None, kernel.MS_BIND | flags)

    def overlay(self, lower: str, place: str) -> None:
        if self.count == _OVERLAYS_AT_MOST:
            raise OSError(28, "there are too many mounts")
        written = f"{self.workshop}/{self.count}"
        self.count += 1
        for name in (written, f"{written}/upper", f"{written}/work"):
            os.mkdir(name)
        seen = os.stat(lower)
        os.chmod(f"{written}/upper", seen.st_mode & 0o7777)  # the top of the view has the mode of its upper folder
        with contextlib.suppress(OSError):
            os.chown(f"{written}/upper", seen.st_uid, seen.st_gid)
        lower = lower.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        options = f"lowerdir={lower},upperdir={written}/upper,workdir={written}/work{self.option}"
        kernel.mount("overlay", self.root + place, "overlay", 0, options)
