"""Opens files only: a FIFO without a writer would block forever, and a device may never end."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# What a shell passes for <(command), and standard input: another program writes there already.
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")


def open_regular(path: str | os.PathLike[str], pipes: bool = False) -> BinaryIO:
    """Open a file to read its bytes; with ``pipes``, also an open pipe that a shell passes."""
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(errno.EINVAL, "its name has a NUL character", name)
    kind = stat.S_IFMT(os.stat(name).st_mode)
    if kind in _KINDS and not (pipes and name.startswith(_DESCRIPTORS)):
        raise OSError(errno.EINVAL, f"this is {_KINDS[kind]}; valid: a file", name)
    return open(name, "rb")


def read_regular(path: str | os.PathLike[str], most_bytes: int, pipes: bool = False) -> bytes:
    """Return the content of a file. Raises OSError if it is longer than ``most_bytes``."""
    with open_regular(path, pipes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is too long; valid: at most {most_bytes:,} bytes", os.fspath(path))
    return content
