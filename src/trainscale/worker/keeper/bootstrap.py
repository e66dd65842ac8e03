"""Runs first on another host: receives the worker if it is not there yet, and becomes a role
of it. It is sent as text, so it imports nothing of this project; it must at least parse under
any Python 3.

It uses the file descriptors 0 and 1, which are pipes of an ssh or a socket to the controller.
"""

import os
import sys

OLDEST = (3, 9)
_KEEP_SECONDS = 7 * 24 * 3600  # copies that were not used for this long are removed
_COPY_SECONDS = 300  # if no byte of a copy arrives for this long, the sender is gone


def bootstrap(folder: str, digest: str, size: int, role: str) -> None:
    """Get the worker with that digest into ``folder``, then become ``role`` of it."""
    try:
        if sys.version_info < OLDEST:
            message = "%s is Python %s, too old; valid: %s or newer"
            raise OSError(message % (sys.executable, sys.version.split()[0], ".".join(map(str, OLDEST))))
        base = os.path.join(os.path.expanduser(folder), "trainscale-%d" % os.getuid())
        os.makedirs(base, mode=0o700, exist_ok=True)
        status = os.lstat(base)
        # In a folder that others can write to could be anybody's code.
        if status.st_uid != os.getuid() or status.st_mode & 0o022 or os.path.islink(base):
            message = "%s is not this user's alone; remove it, or name another remote directory"
            raise OSError(message % base)
        copy = os.path.join(base, digest)
        has_copy = _compute_digest(copy) == digest
        _print_event(kind="bootstrap", has=has_copy)
        if not has_copy:
            _unpack(size, base, copy)
            if _compute_digest(copy) != digest:
                raise OSError("the worker arrived in %s, but not as it was sent" % copy)
        os.utime(copy)
        start = os.path.join(copy, "trainscale", "worker", "start.py")
        _print_event(kind="bootstrap", start=start, python=sys.executable, version=sys.version.split()[0])
    except OSError as error:
        _print_event(kind="bootstrap", error=str(error))
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, start, role])


def _compute_digest(copy: str) -> str:
    """Return the digest of a copy's names and contents, without files that Python adds."""
    import hashlib

    digest = hashlib.sha256()
    names = []
    for folder, folders, files in os.walk(copy):
        folders[:] = [name for name in folders if name != "__pycache__"]
        files = [name for name in files if not name.startswith(".")]
        names += [os.path.relpath(os.path.join(folder, name), copy) for name in files]
    for name in sorted(names, key=lambda name: name.split(os.sep)):
        try:
            with open(os.path.join(copy, name), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return ""  # another keeper is replacing this copy
        digest.update(("%s\0%d\0" % (name, len(content))).encode() + content)
    return digest.hexdigest()[:16]


def _unpack(size: int, base: str, copy: str) -> None:
    """Read an archive and make the copy in one step, because two keepers may do this at once."""
    import io
    import select
    import shutil
    import tarfile
    import tempfile
    import time

    pieces = []
    while size > 0:
        if not select.select([0], [], [], _COPY_SECONDS)[0]:
            raise OSError("nothing more of the worker came for %d s" % _COPY_SECONDS)
        pieces.append(os.read(0, min(65536, size)))
        size -= len(pieces[-1])
        if not pieces[-1]:
            raise OSError("the connection ended while the worker was being copied")
    for name in os.listdir(base):
        path = os.path.join(base, name)
        try:
            age = time.time() - os.lstat(path).st_mtime
        except OSError:
            continue  # another keeper's temporary folder, which it has removed since
        if age > _KEEP_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
    temporary = tempfile.mkdtemp(prefix=".", dir=base)
    new, old = os.path.join(temporary, "new"), os.path.join(temporary, "old")
    if hasattr(tarfile, "data_filter"):  # Pythons that have it warn without it
        tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:gz") as archive:
            archive.extractall(new)
        if os.path.isdir(copy) and _compute_digest(copy) != os.path.basename(copy):
            os.rename(copy, old)
        os.rename(new, copy)
    except OSError:
        if not os.path.isdir(copy):  # else another keeper was faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _print_event(**event: object) -> None:
    import json

    os.write(1, ("@trainscale " + json.dumps(event) + "\n").encode())
