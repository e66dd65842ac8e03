"""Give a process its cores, its thread counts and its way with memory, before any framework is imported: libraries
read these once.

A device's cores carry everything its rank does, communication threads included.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_PR_SET_PDEATHSIG = 1

# For the C library's allocator, which reads these when a process begins: what a step frees is kept for the next. Left
# alone it gives large tensors back to the system and asks for them again, 16,000 to 35,000 page faults a step of
# ResNet-18 in Keras on PyTorch: a tenth or more of the step, and another share in every process.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_TOP_PAD_": "67108864",
}


def pin(cores: Sequence[int]) -> None:
    """Run on these cores only, one thread a core. An empty list leaves the process where it is."""
    # Threads that spin while they wait make a step up to ten times slower as soon as anything else runs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not cores:
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(len(cores))


def visible_gpu(index: int) -> str:
    """CUDA's name for one GPU: where a scheduler or the user shows only some, the index counts among those."""
    shown = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if shown and index >= len(shown):
        raise ValueError(f"GPU {index} is not among CUDA_VISIBLE_DEVICES={','.join(shown)}")
    return shown[index] if shown else str(index)


def die_with_parent() -> None:
    """Linux ends this process when its keeper is gone, even by kill -9. Elsewhere the keeper's own care must do."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
