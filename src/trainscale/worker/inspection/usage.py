"""What processes use: memory, with a limit for ranks that try ever larger batches; cores; energy."""

from __future__ import annotations

import glob
import os
import re
import resource
from collections.abc import Callable
from typing import Any

from ..job import Job
from ..sample import RankSample
from .gpus import Nvml, NvmlError, find_visible_gpu

_CGROUPS = "/sys/fs/cgroup"
RAPL = "/sys/class/powercap"


def read_line(path: str, start: str = "") -> str:
    """Return the rest of the first line that starts so; empty if there is none."""
    try:
        with open(path, errors="replace") as file:
            return next((line[len(start) :].strip() for line in file if line.startswith(start)), "")
    except OSError:
        return ""


def read_number(path: str, start: str = "") -> int | None:
    """Return the number that begins that rest; None for a word, such as "max"."""
    number = read_line(path, start).partition(" ")[0]
    return int(number) if number.isdigit() else None


# ---- memory


def read_peak_bytes(pid: int | str = "self") -> int | None:
    # Not by getrusage, whose maximum can be the parent's.
    kib = read_number(f"/proc/{pid}/status", "VmHWM:")
    return None if kib is None else kib * 1024


def sum_children_peak_bytes() -> int | None:
    files = glob.glob("/proc/self/task/*/children")
    peaks = [read_peak_bytes(pid) for file in files for pid in read_line(file).split()]
    return sum(filter(None, peaks)) or None


def limit_memory(share: float) -> int:
    """Limit this process and its children before the kernel swaps or ends any; return the limit."""
    limit = int(share * count_available_bytes())
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = min([limit, *(other for other in (soft, hard) if other != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return limit


def count_available_bytes() -> int:
    """Return what the machine and every container can allocate without swapping."""
    kib = read_number("/proc/meminfo", "MemAvailable:")
    available = [(kib or 0) * 1024 or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
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
                reclaimable = read_number(f"{folder}/memory.stat", cached) or 0
                available.append(max(0, allowed - current + reclaimable))
    return min(available)


# ---- CPU


def list_usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may use, limited by a container's quota."""
    allowed = sorted(os.sched_getaffinity(0))
    limit, _, period = read_line("/sys/fs/cgroup/cpu.max").partition(" ")
    if not limit:  # version 1
        limit = read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    quota = int(limit) / int(period) if limit.isdigit() and period.isdigit() else len(allowed)
    return tuple(allowed[: max(1, int(quota))])


def read_process_usage() -> dict[str, Any]:
    """Return what this process has used, by the names of RankSample. What is unknown is missing."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    values: dict[str, Any] = {"cpu_seconds": usage.ru_utime + usage.ru_stime}
    values["involuntary_switches"] = usage.ru_nivcsw
    waits = [read_line(file).split() for file in glob.glob("/proc/self/task/*/schedstat")]
    if any(waits):
        values["core_wait_seconds"] = sum(int(fields[1]) for fields in waits if fields) / 1e9
    return values


def set_usage(sample: RankSample, before: dict[str, Any]) -> None:
    """Set what this process has used since ``before``."""
    for name, value in read_process_usage().items():
        if name in before:  # a thread may have ended, with its time
            setattr(sample, name, max(0, value - before[name]))


# ---- energy


class EnergyCounter:
    """``read`` returns joules since some moment. ``source`` is ``nvml``, ``rapl`` or empty."""

    def __init__(self, source: str = "", read: Callable[[], float | None] = lambda: None) -> None:
        self.source = "" if read() is None else source
        self._read = read
        self._before: float | None = None

    def start(self) -> None:
        self._before = self._read()

    def read_joules(self) -> float | None:
        after = self._read()
        if self._before is None or after is None or after < self._before:
            return None
        return after - self._before


def open_counter(job: Job) -> EnergyCounter:
    """Return the counter of a rank's device; RAPL's is the first rank's of a host."""
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

        return EnergyCounter() if job.device.shared else EnergyCounter("nvml", read_gpu)

    names = os.listdir(RAPL) if os.path.isdir(RAPL) else []
    packages = [f"{RAPL}/{name}" for name in names if re.fullmatch(r"(intel|amd)-rapl:\d+", name)]

    def read_packages() -> float | None:
        microjoules = [read_number(f"{path}/energy_uj") for path in packages]
        return None if None in microjoules or not packages else sum(filter(None, microjoules)) / 1e6

    is_first = job.addresses.index(job.addresses[job.rank]) == job.rank
    return EnergyCounter("rapl", read_packages) if is_first else EnergyCounter()
