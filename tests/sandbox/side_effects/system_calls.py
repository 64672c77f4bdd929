"""What the reruns of a session asked the kernel to write, by ``strace``: every successful call that reaches past a rerun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_OPENS = "open openat openat2 creat"
_PATHS = (
    "unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir truncate link linkat symlink symlinkat mknod mknodat "
    "chmod fchmodat fchmodat2 chown lchown fchownat utimensat setxattr lsetxattr removexattr lremovexattr"
)
_DESCRIPTORS = (
    "write pwrite64 writev pwritev pwritev2 sendfile copy_file_range splice ftruncate fallocate fchmod fchown fsetxattr "
    "sendto sendmsg sendmmsg"
)
_REACHES_OUT = "connect bind execve shmget semget msgget mq_open"
_KILLS = "kill tkill tgkill"
_OTHERS = "clone clone3 fork vfork chroot mount"
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_OWN = "/inplace_magic-"  # in the path of a folder that a rerun has made for itself
_STARTS = ["clone", "clone3", "fork", "vfork"]
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")
_OPENED_TO_WRITE = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")


@dataclass
class Traced:
    """The lines of each thread of a traced program. ``reruns`` are the processes that the first one has started."""

    lines: dict[int, list[str]]
    first: int
    reruns: dict[int, int] = field(default_factory=dict)  # each thread of a rerun with the one that started it

    def __post_init__(self) -> None:
        todo = [(self.first, False)]
        while todo:
            thread, inside = todo.pop()
            for name, arguments, result in calls(self.lines.get(thread, ())):
                if name in _STARTS and result > 0:
                    within = inside or "CLONE_THREAD" not in arguments
                    todo.append((result, within))
                    if within:
                        self.reruns[result] = thread

    def writes(self) -> Iterator[str]:
        """The write-like calls of reruns that reached what is not their own."""
        for thread, starter in self.reruns.items():
            private = starter in self.reruns and any("chroot(" in line for line in self.lines.get(starter, ()))
            workshop: str | None = None
            for name, arguments, result in calls(self.lines.get(thread, ())):
                paths = [os.path.join(folder, path) for folder, path in _PATH.findall(arguments)]
                if result < 0:
                    continue
                if name == "chroot":
                    private = True
                elif name == "mount" and 'tmpfs"' in arguments and workshop is None:
                    workshop = paths[1]
                elif not private and workshop is not None and all(path.startswith(workshop) for path in paths):
                    continue  # the view is being made
                elif self._reaches_past(name, arguments, paths, private) and not (
                    starter == self.first and _is_replicas(name, arguments)
                ):
                    yield f"{thread}: {name}({arguments})"

    def _reaches_past(self, name: str, arguments: str, paths: list[str], private: bool) -> bool:
        if name in _KILLS.split() and not arguments.endswith(", 0"):  # signal 0 only asks whether somebody is there
            return not set(map(int, re.findall(r"^\d+", arguments))) <= set(self.reruns)
        if name in _REACHES_OUT.split():
            return True
        if name in _DESCRIPTORS.split():
            return re.match(rf"\d+<(pipe:|anon_inode:|/dev/null|/memfd:|.*{_OWN})", arguments) is None and not private
        if name in _OPENS.split() and not _OPENED_TO_WRITE.search(arguments):
            return False
        if name in (*_OPENS.split(), *_PATHS.split()):
            own = private or all(_OWN in path for path in paths)
            return not own and paths != ["/dev/null"]
        return False


def _is_replicas(name: str, arguments: str) -> bool:
    """Whether a replica does this, which runs no code of the user's itself: it is started, then answers the session."""
    started = name == "execve" and arguments.startswith(f'"{sys.executable}"')
    return started or (name == "write" and re.match(r"\d+<socket:", arguments) is not None)


def calls(lines: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """(name, arguments, result) of each call."""
    for line in lines:
        found = _CALL.match(line)
        if found is not None:
            yield found["name"], found["arguments"], int(found["result"])


def traced(command: Sequence[str], folder: Path) -> Traced:
    """Runs a program to its end. Raises AssertionError where it fails."""
    names = f"{_OPENS} {_PATHS} {_DESCRIPTORS} {_REACHES_OUT} {_KILLS} {_OTHERS}".split()
    asked = ",".join(f"?{name}" for name in names)  # an older strace does not know all of them
    options = ["-ff", "-y", "-s", "256", "--seccomp-bpf", "-e", f"trace={asked}", "-o", str(folder / "log")]
    with subprocess.Popen(["strace", *options, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    files = {int(path.suffix[1:]): path for path in folder.glob("log.*")}
    lines = {number: path.read_text(errors="replace").splitlines() for number, path in files.items()}
    started = {result for thread in lines.values() for name, _, result in calls(thread) if name in _STARTS}
    (first,) = [number for number in lines if number not in started]
    return Traced(lines, first)


def available() -> bool:
    """Whether a program can be traced here."""
    try:
        return subprocess.run(["strace", "-f", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
