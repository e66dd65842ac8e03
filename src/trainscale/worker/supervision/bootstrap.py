"""The first thing that runs on another host: fetches the worker if its content is not there yet, and becomes a role of
it. Sent as text over the wire, so it stands alone; it must at least parse under any Python 3.

It speaks on the file descriptors 0 and 1, whatever those are by then: pipes of an ssh, or a socket to the controller.
"""

import os
import sys

OLDEST = (3, 9)
_KEEP_SECONDS = 7 * 24 * 3600  # copies that nobody used for this long make room
_COPY_SECONDS = 300  # without a byte of a copy under way, its sender is gone


def bootstrap(folder: str, digest: str, size: int, role: str) -> None:
    """Have the worker with that digest below ``folder``, then run ``role`` of it in this very process."""
    try:
        if sys.version_info < OLDEST:
            words = "%s is Python %s, too old; valid: %s or newer"
            raise OSError(words % (sys.executable, sys.version.split()[0], ".".join(map(str, OLDEST))))
        base = _base(folder)
        place = os.path.join(base, digest)
        here = _digest(place) == digest
        _say(kind="bootstrap", has=here)
        if not here:
            _unpack(_read(size), base, place)
            if _digest(place) != digest:
                raise OSError("the worker arrived in %s, but not as it was sent" % place)
        os.utime(place)
        start = os.path.join(place, "trainscale", "worker", "start.py")
        _say(kind="bootstrap", start=start, python=sys.executable, version=sys.version.split()[0])
    except OSError as error:
        _say(kind="bootstrap", error=str(error))
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, start, role])


def _base(folder: str) -> str:
    """A folder of this user alone: what lies in a common one could be anybody's code."""
    path = os.path.join(os.path.expanduser(folder), "trainscale-%d" % os.getuid())
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if found.st_uid != os.getuid() or found.st_mode & 0o022 or os.path.islink(path):
        raise OSError("%s is not this user's alone; remove it, or name another remote directory" % path)
    return path


def _digest(place: str) -> str:
    """Of the names and contents of a copy, as its sender computes it: from a common folder, part of it may have been
    tidied away. What Python itself adds does not count.
    """
    import hashlib

    whole = hashlib.sha256()
    names = []
    for where, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name != "__pycache__"]
        names += [os.path.relpath(os.path.join(where, name), place) for name in files if not name.startswith(".")]
    for name in sorted(names, key=lambda name: name.split(os.sep)):
        with open(os.path.join(place, name), "rb") as file:
            content = file.read()
        whole.update(("%s\0%d\0" % (name, len(content))).encode() + content)
    return whole.hexdigest()[:16]


def _unpack(data: bytes, base: str, place: str) -> None:
    """Whole or not at all: two keepers may do this at once."""
    import io
    import shutil
    import tarfile
    import tempfile
    import time

    for name in os.listdir(base):
        path = os.path.join(base, name)
        if time.time() - os.lstat(path).st_mtime > _KEEP_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
    fresh = tempfile.mkdtemp(prefix=".", dir=base)
    new, old = os.path.join(fresh, "new"), os.path.join(fresh, "old")
    if hasattr(tarfile, "data_filter"):  # Pythons that know it complain without
        tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            archive.extractall(new)
        if os.path.isdir(place) and _digest(place) != os.path.basename(place):
            os.rename(place, old)
        os.rename(new, place)
    except OSError:
        if not os.path.isdir(place):  # else another keeper was faster
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _read(size: int) -> bytes:
    import select

    pieces = []
    while size > 0:
        if not select.select([0], [], [], _COPY_SECONDS)[0]:
            raise OSError("nothing more of the worker came for %d s" % _COPY_SECONDS)
        pieces.append(os.read(0, min(65536, size)))
        size -= len(pieces[-1])
        if not pieces[-1]:
            raise OSError("the connection ended while the worker was being copied")
    return b"".join(pieces)


def _say(**event: object) -> None:
    import json

    os.write(1, ("@trainscale " + json.dumps(event) + "\n").encode())
