"""Packs the worker for hosts that lack it, and makes the first program that a host runs."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import trainscale

WORKER = Path(trainscale.__file__).resolve().parent / "worker"

# Runs the first line of its input, a Python string with a program, and leaves the rest there.
# No login shell changes anything in this text.
RUN_FIRST_LINE = 'import os;exec(eval(b"".join(iter(lambda:os.read(0,1)or b"\\n",b"\\n"))or"str()"))'


@dataclass(frozen=True)
class WorkerArchive:
    data: bytes
    digest: str  # of the files' names and contents


@cache
def build_archive() -> WorkerArchive:
    digest = hashlib.sha256()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(WORKER.rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts or path.name.startswith("."):
                continue  # bootstrap.py skips the same files
            name, content = f"trainscale/worker/{path.relative_to(WORKER).as_posix()}", path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return WorkerArchive(gzip.compress(raw.getvalue(), mtime=0), digest.hexdigest()[:16])


@cache
def make_bootstrap_line(folder: str, role: str) -> bytes:
    """Return the line that gets the worker into ``folder`` of a host and runs ``role`` of it."""
    archive = build_archive()
    call = f"\nbootstrap({folder!r}, {archive.digest!r}, {len(archive.data)}, {role!r})\n"
    return repr((WORKER / "keeper/bootstrap.py").read_text() + call).encode() + b"\n"
