"""The C library's memory allocator: the settings that a trial's processes are started with, and those that a process
has.

The allocator reads its variables when a process starts, so the keeper sets them.
"""

from __future__ import annotations

from collections.abc import Mapping

TUNED, SYSTEM = "tuned", "system"

# The variables of each setting. They yield to those that the host sets.
#
# With ``tuned`` the allocator keeps what a step frees for the next step. By its defaults it returns large tensors to
# the system and requests them again. That is 16,000 to 35,000 page faults per step of ResNet-18 in Keras on PyTorch, a
# tenth or more of the step, and differs between processes.
ALLOCATORS: dict[str, dict[str, str]] = {
    TUNED: {
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "MALLOC_TRIM_THRESHOLD_": "2147483647",
        "MALLOC_TOP_PAD_": "67108864",
    },
    SYSTEM: {},
}

# Another allocator, such as jemalloc or tcmalloc, is loaded by LD_PRELOAD.
_PREFIX, _OTHERS = "MALLOC_", ("GLIBC_TUNABLES", "LD_PRELOAD")


def select_allocator_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that choose or configure the C allocator, sorted by name."""
    names = sorted(name for name in environment if name.startswith(_PREFIX) or name in _OTHERS)
    return {name: environment[name] for name in names}
