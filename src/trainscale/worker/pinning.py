"""Sets a process's cores and thread counts before any framework is imported, because libraries read these once.

A device's cores run everything that its rank does, communication threads included.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from .keeper.leased_host import end_with_parent

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def pin(cores: Sequence[int]) -> None:
    """Run on these cores only, with one thread per core. An empty list changes nothing."""
    # Threads that spin while they wait make a step up to ten times slower as soon as anything else runs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not cores:
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(len(cores))


def find_visible_gpu(index: int) -> str:
    """Return CUDA's name of a GPU. Where CUDA_VISIBLE_DEVICES lists some, the index counts among those."""
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if names and index >= len(names):
        raise ValueError(f"GPU {index} is not among CUDA_VISIBLE_DEVICES={','.join(names)}")
    return names[index] if names else str(index)


def die_with_parent() -> None:
    """Have Linux end this process when its parent ends, even by kill -9. Elsewhere only the keeper itself ends it.

    The keeper already asked for that when it started this process; but a wrapper script may stand between the two.
    """
    end_with_parent(signal.SIGKILL, os.getppid())
