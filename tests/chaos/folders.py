"""What the campaign does to the folder of a run, and sees of it."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path


def fill_disk(path: Path) -> None:
    """Take all space of a disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def file_sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            sizes[str(path)] = path.stat().st_size
    return sizes
