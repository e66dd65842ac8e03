"""A disk that loses its power: what a file system may have kept of the changes that a process made.

``record_writes.c`` records the changes of a process. ``Disk`` replays them. POSIX promises that the content of a file
outlives a power failure from its fsync on, and an entry of a folder (a new name, a rename, a removal) from an fsync of
that folder on. Before that, either may be there or not, independently of the other. ``survivors`` gives the states of
the disk that a reader may meet if the power fails now.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

SOURCE = Path(__file__).with_name("record_writes.c")
FOLDER = "folder"


def build_recorder(folder: Path) -> Path | None:
    """Compile the library that records writes. Return None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "record_writes.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
    return library


@dataclass(frozen=True)
class Operation:
    kind: str
    inode: int
    offset: int
    path: str
    rest: str  # the new name, or data in hexadecimal

    @property
    def data(self) -> bytes:
        return bytes.fromhex(self.rest)


def read_operations(log: Path) -> list[Operation]:
    operations = []
    for line in log.read_text().splitlines():
        kind, inode, offset, path, rest = line.split("\t")
        operations.append(Operation(kind, int(inode), int(offset), path, rest))
    return operations


@dataclass
class Content:
    """A file: its bytes as processes see them, and as they are on the disk for certain."""

    seen: bytes = b""
    synced: bytes = b""


@dataclass
class Disk:
    """``seen`` are the entries that processes see, ``synced`` those that are on the disk for certain."""

    seen: dict[str, Content | str] = field(default_factory=dict)  # by path; FOLDER is a folder
    synced: dict[str, Content | str] = field(default_factory=dict)
    printed: bytes = b""
    _inodes: dict[int, Content] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        path = operation.path
        match operation.kind:
            case "print":
                self.printed += operation.data
            case "folder":
                self.seen[path] = FOLDER
            case "create":
                self.seen[path] = self._inodes[operation.inode] = Content()
            case "write":
                content, end = self._inodes[operation.inode], operation.offset + len(operation.data)
                before = content.seen.ljust(operation.offset, b"\0")
                content.seen = before[: operation.offset] + operation.data + before[end:]
            case "truncate":
                content = self._inodes[operation.inode]
                content.seen = content.seen[: operation.offset].ljust(operation.offset, b"\0")
            case "sync":
                content = self._inodes[operation.inode]
                content.synced = content.seen
            case "sync-folder":
                self._sync_folder(path)
            case "rename":
                self.seen[operation.rest] = self.seen.pop(path)
            case "remove":
                self.seen.pop(path, None)
            case _:
                raise ValueError(f"unknown operation {operation.kind!r}")

    def _sync_folder(self, folder: str) -> None:
        for path in [path for path in self.synced if _parent(path) == folder]:
            del self.synced[path]
        self.synced.update({path: entry for path, entry in self.seen.items() if _parent(path) == folder})

    def survivors(self) -> Iterator[tuple[str, dict[str, bytes | str]]]:
        """Yield a name and the entries, with the content of files, of each state that may be left."""
        for entries_name, entries in (("no entry", self.synced), ("every entry", self.seen)):
            for data_name, keep in KEPT.items():
                state = {
                    path: entry if isinstance(entry, str) else keep(entry)
                    for path, entry in entries.items()
                    if self._is_reachable(path, entries)
                }
                yield f"{entries_name} and {data_name} of what was not synced", state

    def _is_reachable(self, path: str, entries: dict[str, Content | str]) -> bool:
        """Whether all folders above it are there. Folders that were there before the recording always are."""
        parents = [str(parent) for parent in PurePosixPath(path).parents]
        return all(parent in entries or parent not in self.seen for parent in parents)


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _half(content: Content) -> bytes:
    kept = len(content.synced) + (len(content.seen) - len(content.synced)) // 2
    return content.seen[:kept] if content.seen.startswith(content.synced) else content.synced


def _zeros(content: Content) -> bytes:
    """The file has its new length already, but its new blocks were never written."""
    return content.synced.ljust(len(content.seen), b"\0")


def _last_block(content: Content) -> bytes:
    """Of the new blocks, only the last was written: a disk may choose the order."""
    kept = max(len(content.synced), len(content.seen) - 8)
    return content.synced.ljust(kept, b"\0") + content.seen[kept:]


KEPT = {
    "no content": lambda content: content.synced,
    "all content": lambda content: content.seen,
    "half of the content": _half,
    "only the length": _zeros,
    "only the last bytes": _last_block,
}


def write_state(state: dict[str, bytes | str], root: str, target: Path) -> Path:
    """Make the files of a state, below ``target`` instead of below ``root``."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in sorted(state):
        place = target / PurePosixPath(path).relative_to(root)
        content = state[path]
        if isinstance(content, str):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    return target
