"""Counters of energy: of NVIDIA's driver for a GPU, of RAPL for the processors of a host. Where there is none, or it
cannot be read, no energy is reported.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable

from ..job import Job
from ..pinning import find_visible_gpu
from .nvml import Nvml, NvmlError

RAPL = "/sys/class/powercap"
_PACKAGE = re.compile(r"(?:intel|amd)-rapl:\d+")


class EnergyCounter:
    """``read`` returns joules since some moment. ``source`` says what counts: ``nvml`` a GPU, ``rapl`` a host."""

    def __init__(self, source: str = "", read: Callable[[], float | None] = lambda: None) -> None:
        self.source = source
        self._read = read
        self._before: float | None = None

    def start(self) -> None:
        self._before = self._read()

    def read_joules(self) -> float | None:
        """Return the energy since ``start``. None where nothing counts it, or the counter began again."""
        after = self._read()
        if self._before is None or after is None or after < self._before:
            return None
        return after - self._before


def open_counter(job: Job) -> EnergyCounter:
    """Return the counter of a rank's device. RAPL counts a whole host, so only the first rank there has it."""
    if job.device.kind == "cuda":
        return EnergyCounter() if job.device.shared else _open_gpu_counter(job.device.index)
    is_first = job.addresses.index(job.addresses[job.rank]) == job.rank
    return _open_rapl_counter(RAPL) if is_first else EnergyCounter()


def _open_gpu_counter(index: int) -> EnergyCounter:
    try:
        nvml, gpu = Nvml(), find_visible_gpu(index)
        nvml.read_energy_joules(gpu)
    except (NvmlError, ValueError):
        return EnergyCounter()

    def read() -> float | None:
        try:
            return nvml.read_energy_joules(gpu)
        except NvmlError:
            return None

    return EnergyCounter("nvml", read)


def _open_rapl_counter(folder: str) -> EnergyCounter:
    packages = [path for path in glob.glob(f"{folder}/*") if _PACKAGE.fullmatch(os.path.basename(path))]  # noqa: PTH119, PTH207

    def read() -> float | None:
        try:
            return sum(_read_microjoules(path) for path in packages) / 1e6
        except (OSError, ValueError):
            return None

    return EnergyCounter("rapl", read) if packages and read() is not None else EnergyCounter()


def _read_microjoules(path: str) -> int:
    with open(f"{path}/energy_uj") as file:  # noqa: PTH123
        return int(file.read())
