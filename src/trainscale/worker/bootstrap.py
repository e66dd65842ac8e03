"""The first thing that runs on another host: fetches the worker if its content is not there yet, and becomes a role of
it. Sent as text over the wire, so it stands alone; it must at least parse under any Python 3.

It speaks on the file descriptors 0 and 1, whatever those are by then: pipes of an ssh, or a socket to the controller.
"""

import os
import sys

OLDEST = (3, 9)
_KEEP_SECONDS = 7 * 24 * 3600  # copies that nobody used for this long make room


def bootstrap(folder: str, digest: str, size: int, role: str) -> None:
    """Have the worker with that digest below ``folder``, then run ``role`` of it in this very process."""
    try:
        if sys.version_info < OLDEST:
            words = "%s is Python %s, too old; valid: %s or newer"
            raise OSError(words % (sys.executable, sys.version.split()[0], ".".join(map(str, OLDEST))))
        base = _base(folder)
        place = os.path.join(base, digest)
        start = os.path.join(place, "trainscale", "worker", "start.py")
        here = os.path.exists(start)
        _say(kind="bootstrap", has=here)
        if not here:
            _unpack(_read(size), base, place)
        os.utime(place)
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
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            archive.extractall(fresh)
        os.rename(fresh, place)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not os.path.isdir(place):
            raise


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(0, min(65536, size - len(data)))
        if not piece:
            raise OSError("the connection ended while the worker was being copied")
        data += piece
    return data


def _say(**event: object) -> None:
    import json

    os.write(1, ("@trainscale " + json.dumps(event) + "\n").encode())
