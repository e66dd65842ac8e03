"""The worker as one small archive, for hosts that do not have it, and the text that a host runs first."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import trainscale

WORKER = Path(trainscale.__file__).resolve().parent / "worker"

# Reads one line from standard input, byte by byte so that what follows it stays there, and runs it. The line is a
# Python string, whose text is a program. Without quotes, exclamation marks and line breaks that some login shell minds.
RUN_FIRST_LINE = 'import os;exec(eval(b"".join(iter(lambda:os.read(0,1)or b"\\n",b"\\n"))))'


@dataclass(frozen=True)
class WorkerArchive:
    data: bytes
    digest: str  # of the files' names and contents


@cache
def build_archive() -> WorkerArchive:
    """Of the worker's files, the same bytes for the same files."""
    whole = hashlib.sha256()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(WORKER.rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts or path.name.startswith("."):
                continue  # as bootstrap.py counts
            name, content = f"trainscale/worker/{path.relative_to(WORKER).as_posix()}", path.read_bytes()
            whole.update(f"{name}\0{len(content)}\0".encode() + content)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return WorkerArchive(gzip.compress(raw.getvalue(), mtime=0), whole.hexdigest()[:16])


def bootstrap_line(folder: str, role: str) -> bytes:
    """What makes a host have the worker below ``folder`` and run a role of it. To be read by RUN_FIRST_LINE."""
    found = build_archive()
    call = f"\nbootstrap({folder!r}, {found.digest!r}, {len(found.data)}, {role!r})\n"
    return repr((WORKER / "supervision/bootstrap.py").read_text() + call).encode() + b"\n"
