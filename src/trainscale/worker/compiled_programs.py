"""Where a rank keeps the programs that its framework compiles, for the next trial.

They are in the user's cache folder on the rank's host. With ``--no-cache`` every rank has an
empty folder of its own, which is removed when the rank ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from .job import WORKER, Job

# Whether a rank compiled a program, read all programs that it needed from the cache, or needed none.
COLD, WARM, NONE = "cold", "warm", "none"

_ALWAYS_COMPILE = ("jax", "keras-jax")


@contextmanager
def open_cache(job: Job) -> Iterator[Job]:
    """Yield the job with the folder for compiled programs, if it compiles any."""
    if job.role != WORKER or not (job.config.compile or job.config.framework in _ALWAYS_COMPILE):
        yield job
    elif job.keeps_compiled:
        # As for the controller (folders.py), a relative path counts as unset.
        home = os.environ.get("XDG_CACHE_HOME", "")
        home = home if os.path.isabs(home) else os.path.expanduser("~/.cache")
        folder = f"{home}/trainscale/compiled"
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            pass
        # If it cannot be written to, frameworks compile, and keep nothing.
        yield replace(job, compiled_folder=folder if os.access(folder, os.W_OK | os.X_OK) else "")
    else:
        folder = tempfile.mkdtemp(prefix="trainscale-compiled-")
        try:
            yield replace(job, compiled_folder=folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def choose_compiler_folder(job: Job, name: str, variable: str = "") -> str:
    """Return the folder of a compiler; empty if the user's own ``variable`` names one."""
    if not job.compiled_folder or (variable and job.keeps_compiled and os.environ.get(variable)):
        return ""
    return f"{job.compiled_folder}/{name}"


def describe_state(needed: int, cached: int) -> str:
    """Return the state of a rank that needed this many programs, of which a cache had some."""
    if not needed:
        return NONE
    return WARM if cached >= needed else COLD
