"""What processes use: memory, and a limit for ranks that try ever larger batches; CPU time; energy, by the counters of
the driver (a GPU) or of RAPL (the processors of a host). Imports no framework.
"""

from __future__ import annotations

import glob
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass

from ..job import Job
from ..sample import RankSample
from .gpus import Nvml, NvmlError, find_visible_gpu

_CGROUPS = "/sys/fs/cgroup"
RAPL = "/sys/class/powercap"
_PACKAGE = re.compile(r"(?:intel|amd)-rapl:\d+")


def read_line(path: str, start: str = "") -> str:
    """Return the rest of the first line that starts so; empty if there is none, or if the file cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return next((line[len(start) :].strip() for line in file if line.startswith(start)), "")
    except OSError:
        return ""


def read_number(path: str, start: str = "") -> int | None:
    """Return the number at the beginning of that rest; None if there is no number, such as in "max"."""
    number = read_line(path, start).partition(" ")[0]
    return int(number) if number.isdigit() else None


# ---- memory


def read_peak_bytes(pid: int | str = "self") -> int | None:
    """Return the most memory that a process ever held (VmHWM)."""
    kib = read_number(f"/proc/{pid}/status", "VmHWM:")
    return None if kib is None else kib * 1024


def read_host_peak_bytes() -> int:
    """Return the most memory that this process ever held: VmHWM, because ru_maxrss can be the parent's."""
    scale = 1 if os.uname().sysname == "Darwin" else 1024
    return read_peak_bytes() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def sum_children_peak_bytes() -> int | None:
    """Return the sum of the peaks of this process's children; None if there are none or they are unknown.

    Memory that they share is counted in each of them.
    """
    files = glob.glob("/proc/self/task/*/children")
    peaks = [read_peak_bytes(pid) for file in files for pid in read_line(file).split()]
    return sum(filter(None, peaks)) or None


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
    kib = read_number("/proc/meminfo", "MemAvailable:")
    available = [kib * 1024 if kib is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.strip().split(":", 2) for line in file]
    except OSError:
        groups = []
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
            allowed, current = read_number(f"{folder}/{limit}"), read_number(f"{folder}/{used}")
            if allowed is not None and current is not None:
                available.append(max(0, allowed - current + (read_number(f"{folder}/memory.stat", cached) or 0)))
    return min(available)


# ---- CPU time


@dataclass(frozen=True)
class Usage:
    """What this process used: CPU seconds, how often a core was taken away, how long its threads had none."""

    cpu_seconds: float
    involuntary_switches: int
    core_wait_seconds: float | None


def read_process_usage() -> Usage:
    """Return what this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    # Time in which its threads were ready to run but had no core; None if the kernel does not count it.
    waits = [read_line(file).split() for file in glob.glob("/proc/self/task/*/schedstat")]
    core_wait_seconds = sum(int(fields[1]) for fields in waits if fields) / 1e9 if any(waits) else None
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_nivcsw, core_wait_seconds)


def set_usage(sample: RankSample, before: Usage) -> None:
    """Set what this process has used since ``before``."""
    after = read_process_usage()
    sample.cpu_seconds = after.cpu_seconds - before.cpu_seconds
    sample.involuntary_switches = after.involuntary_switches - before.involuntary_switches
    if after.core_wait_seconds is not None and before.core_wait_seconds is not None:
        sample.core_wait_seconds = max(0.0, after.core_wait_seconds - before.core_wait_seconds)  # a thread may end


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
        try:
            nvml, gpu = Nvml(), find_visible_gpu(job.device.index)
        except (NvmlError, ValueError):
            return EnergyCounter()

        def read_gpu() -> float | None:
            try:
                return nvml.read_number("nvmlDeviceGetTotalEnergyConsumption", gpu, wide=True) / 1000
            except NvmlError:
                return None

        return EnergyCounter() if job.device.shared or read_gpu() is None else EnergyCounter("nvml", read_gpu)

    packages = [path for path in glob.glob(f"{RAPL}/*") if _PACKAGE.fullmatch(os.path.basename(path))]

    def read_packages() -> float | None:
        microjoules = [read_number(f"{path}/energy_uj") for path in packages]
        return None if None in microjoules or not packages else sum(filter(None, microjoules)) / 1e6

    is_first = job.addresses.index(job.addresses[job.rank]) == job.rank
    return EnergyCounter("rapl", read_packages) if is_first and read_packages() is not None else EnergyCounter()
