"""Arrays in memory that several processes see. The file behind them has no name: whatever happens, nothing is left."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

_ALIGNMENT = 64


class Shared:
    """``layout`` says where each array lies: with it and the file's number, another process opens the same."""

    def __init__(self, descriptor: int, layout: Mapping[str, Any]) -> None:
        self.descriptor, self.layout = descriptor, dict(layout)
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    def __getitem__(self, name: str) -> Any:
        import numpy as np

        dtype, shape, offset = self.layout[name]
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._memory, np.dtype(dtype), count, offset).reshape(shape)

    def close(self) -> None:
        """No other process can open it then; arrays that were taken stay."""
        os.close(self.descriptor)

    @classmethod
    def make(cls, wanted: Mapping[str, tuple[str, tuple[int, ...]]]) -> Shared:
        """Empty arrays of these types and shapes."""
        import numpy as np

        layout, end = {}, 0
        for name, (dtype, shape) in wanted.items():
            layout[name] = (dtype, list(shape), end)
            end += int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            end += -end % _ALIGNMENT
        descriptor = _file_without_name()
        try:
            # Now, and not when the first page cannot be had: that would be a bus error.
            os.posix_fallocate(descriptor, 0, max(1, end))
        except OSError as error:
            os.close(descriptor)
            raise MemoryError(f"{end / 2**20:,.0f} MiB of shared memory cannot be had: {error.strerror}") from None
        return cls(descriptor, layout)

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Shared:
        """Copies of these arrays."""
        shared = cls.make({name: (array.dtype.str, array.shape) for name, array in arrays.items()})
        for name, array in arrays.items():
            shared[name][...] = array
        return shared


def _file_without_name() -> int:
    """In memory, and not in /dev/shm, of which a container often has 64 MB; a file on a disk where there is neither."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trainscale")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
