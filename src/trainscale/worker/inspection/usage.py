"""What a rank uses: host memory of its processes, with a limit for ranks that try ever larger batches, and energy by
the counters of the driver (a GPU) or of RAPL (the processors of a host). Imports no framework.
"""

from __future__ import annotations

import glob
import os
import re
import resource
from collections.abc import Callable

from ..job import Job
from ..pinning import find_visible_gpu
from .gpus import Nvml, NvmlError

_CGROUPS = "/sys/fs/cgroup"
RAPL = "/sys/class/powercap"
_PACKAGE = re.compile(r"(?:intel|amd)-rapl:\d+")


# ---- memory


def sum_children_peak_bytes() -> int | None:
    """Return the sum of the peaks of this process's children; None if there are none or they are unknown.

    Memory that they share is counted in each of them.
    """
    peaks = []
    try:
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208
            with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
                peaks += [peak for pid in file.read().split() if (peak := read_peak_bytes(pid)) is not None]
    except OSError:
        pass
    return sum(peaks) if peaks else None


def read_peak_bytes(pid: int | str) -> int | None:
    """Return the most memory that a process ever held (VmHWM)."""
    try:
        with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), None)
    except OSError:
        return None


def limit_memory(share: float) -> int:
    """Limit this process, and each that it starts, to this share of the memory that is free now; return the limit.

    A larger allocation fails. Otherwise the kernel would swap or end processes. The limit is in bytes.
    """
    limit = int(share * count_available_bytes())
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = min([limit, *(other for other in (soft, hard) if other != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return limit


def count_available_bytes() -> int:
    """Return what can be allocated without swapping, in the machine and in every container around this process."""
    kib = _read_number("/proc/meminfo", "MemAvailable:")
    free = kib * 1024 if kib is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([free, *_list_available_in_groups()])


def _list_available_in_groups() -> list[int]:
    """Return what every control group of this process that has a limit still allows."""
    available = []
    try:
        with open("/proc/self/cgroup") as file:  # noqa: PTH123
            groups = [line.strip().split(":", 2) for line in file]
    except OSError:
        return []
    for _, controllers, path in groups:
        if not controllers:  # version 2
            root, limit, used, cached = _CGROUPS, "memory.max", "memory.current", "inactive_file "
        elif "memory" in controllers.split(","):
            root, limit, used = f"{_CGROUPS}/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file "
        else:
            continue
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            folder = "/".join([root, *parts[:depth]])
            allowed, current = _read_number(f"{folder}/{limit}"), _read_number(f"{folder}/{used}")
            if allowed is not None and current is not None:
                available.append(max(0, allowed - current + (_read_number(f"{folder}/memory.stat", cached) or 0)))
    return available


def _read_number(path: str, name: str = "") -> int | None:
    """Read a file's only number, or the number after a name in one of its lines; None for "max" or without a file."""
    try:
        with open(path) as file:  # noqa: PTH123
            return next((int(line[len(name) :].split()[0]) for line in file if line.startswith(name)), None)
    except (OSError, ValueError, IndexError):
        return None


# ---- energy; none is reported where nothing counts it


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
