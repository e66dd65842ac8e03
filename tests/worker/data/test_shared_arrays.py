"""Arrays that several processes see, in memory that no file names."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainscale.worker.data.shared_arrays import SharedArrays

_WRITE = """
import json, sys
from trainscale.worker.data.shared_arrays import SharedArrays
shared = SharedArrays(*json.loads(sys.argv[1]))
shared["b"][1] += int(shared["a"].sum())
"""


@pytest.mark.processes
def test_another_process_reads_and_writes_the_same_arrays() -> None:
    shared = SharedArrays.from_arrays(
        {"a": np.arange(7, dtype=np.uint8), "b": np.full((3, 2), 5, np.int64), "none": np.empty((0, 3))}
    )
    description = json.dumps([shared.descriptor, shared.layout])
    subprocess.run([sys.executable, "-c", _WRITE, description], pass_fds=(shared.descriptor,), check=True)
    assert shared["b"].tolist() == [[5, 5], [26, 26], [5, 5]]
    assert shared["none"].shape == (0, 3)


def test_arrays_lie_apart_and_no_file_is_left() -> None:
    before = set(Path("/dev/shm").iterdir())
    shared = SharedArrays.allocate({"a": ("|u1", (3,)), "b": ("<i8", (2,))})
    shared["a"][...] = 255
    assert shared["b"].tolist() == [0, 0]
    assert set(Path("/dev/shm").iterdir()) == before


def test_without_the_system_call_for_it_a_file_without_a_name_does_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    shared = SharedArrays.from_arrays({"a": np.arange(5)})
    assert shared["a"].tolist() == [0, 1, 2, 3, 4]


def test_memory_that_cannot_be_had_is_told_at_once_and_not_by_a_bus_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MemoryError, match="cannot allocate 3 MiB of shared memory: No space left on device"):
        SharedArrays.allocate({"a": ("|u1", (3 * 2**20,))})
