"""Arrays in memory that several processes share. Their file has no name, so nothing is left behind in any case."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

_ALIGNMENT = 64


class SharedArrays:
    """``layout`` says where each array lies. With it and the file descriptor, another process opens the same arrays."""

    def __init__(self, descriptor: int, layout: Mapping[str, Any]) -> None:
        self.descriptor, self.layout = descriptor, dict(layout)
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    def __getitem__(self, name: str) -> Any:
        import numpy as np

        dtype, shape, offset = self.layout[name]
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._memory, np.dtype(dtype), count, offset).reshape(shape)

    def close(self) -> None:
        """Close the file, so that no other process can open it. Arrays that were read from it stay valid."""
        os.close(self.descriptor)

    @classmethod
    def allocate(cls, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> SharedArrays:
        """Make empty arrays of these types and shapes."""
        import numpy as np

        layout, end = {}, 0
        for name, (dtype, shape) in shapes.items():
            layout[name] = (dtype, list(shape), end)
            end += int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            end += -end % _ALIGNMENT
        descriptor = _open_unnamed_file()
        try:
            # Reserve the memory now. A page that is missing later would be a bus error.
            os.posix_fallocate(descriptor, 0, max(1, end))
        except OSError as error:
            os.close(descriptor)
            raise MemoryError(f"cannot allocate {end / 2**20:,.0f} MiB of shared memory: {error.strerror}") from None
        return cls(descriptor, layout)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> SharedArrays:
        shared = cls.allocate({name: (array.dtype.str, array.shape) for name, array in arrays.items()})
        for name, array in arrays.items():
            shared[name][...] = array
        return shared


def _open_unnamed_file() -> int:
    """Open a file in memory, or on disk where that is not possible. Containers often have only 64 MB of /dev/shm."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trainscale")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
