"""Opens files that a person names. What is not a regular file is refused before anything waits for it: a FIFO that
no process writes to would block forever, and a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, BinaryIO

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# What a shell passes for <(command), and standard input: another program writes there already.
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")


def open_regular(path: str | os.PathLike[str], pipes: bool = False) -> BinaryIO:
    """Open a file to read its bytes. Raises OSError with a message in ``strerror`` if it is not a regular file. With
    ``pipes``, it may also be an open pipe that a shell passes.
    """
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(errno.EINVAL, "its name has a NUL character", name)
    if pipes and name.startswith(_DESCRIPTORS):
        return open(name, "rb")  # noqa: PTH123
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.EINVAL, _describe_refusal(os.stat(name)), name) from None  # noqa: PTH116
        raise
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, _describe_refusal(status), name)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | os.PathLike[str], most_bytes: int, pipes: bool = False) -> bytes:
    """Return the content of a file that ``open_regular`` opens. Raises OSError if it is longer than ``most_bytes``."""
    with open_regular(path, pipes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is too long; valid: at most {most_bytes:,} bytes", os.fspath(path))
    return content


def _describe_refusal(status: Any) -> str:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
    return f"this is {kind}; valid: a file"
