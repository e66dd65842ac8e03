"""Memory of a rank, without importing a framework: the GPU memory of its processes as the driver counts it, the host
memory of its loaders, and a limit for ranks that try ever larger batches.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Mapping

from ..events import GpuMemoryPeak
from .nvml import Nvml, NvmlError

_SAMPLE_SECONDS = 0.2
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's own number for it (PROC_PID_INIT_INO)
_CGROUPS = "/sys/fs/cgroup"

ELSEWHERE = "NVML names processes by numbers of another namespace (a container), so the trial's own cannot be told"
NO_COUNT = "the driver does not say how much memory each process holds"


class GpuMemory:
    """Samples in a thread how much GPU memory each rank and its children hold, and keeps the maximum. Processes that do
    not belong to the trial are not counted.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # by process id
        self._peaks: dict[int, int] = {}  # by rank
        self._problem = ""
        self._most_processes = 0  # that NVML named at a time
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)

    def watch(self, rank: int, pid: int) -> None:
        self._ranks = {**self._ranks, pid: rank}
        if self._thread.ident is None:
            self._thread.start()

    def peak_of(self, rank: int) -> GpuMemoryPeak:
        """Return the peak of a rank's processes, or why it is unknown."""
        if self._problem:
            return GpuMemoryPeak(note=self._problem)
        if rank in self._peaks:
            return GpuMemoryPeak(self._peaks[rank])
        others = (
            f"; it names {self._most_processes} other{'s' if self._most_processes != 1 else ''}"
            if self._most_processes
            else ""
        )
        return GpuMemoryPeak(note=f"NVML names no process of this rank{others}")

    def stop(self) -> None:
        """End the sampling. Do not wait for the thread, because the driver may answer late."""
        self._stop.set()

    def _sample(self) -> None:
        is_in_container = in_container()
        unknown_before: set[int] = set()
        try:
            nvml = Nvml()
            while not self._stop.wait(_SAMPLE_SECONDS):
                sizes = nvml.processes()
                unknown = {pid for pid in sizes if is_in_container and not os.path.exists(f"/proc/{pid}")}  # noqa: PTH110
                if unknown & unknown_before:  # seen twice, so it has not just ended
                    self._problem = ELSEWHERE
                    return
                unknown_before = unknown
                self._add_sample(sizes)
        except NvmlError as error:
            self._problem = str(error)

    def _add_sample(self, sizes: Mapping[int, int | None]) -> None:
        by_rank: dict[int, int] = {}
        self._most_processes = max(self._most_processes, len(sizes))
        for pid, size in sizes.items():
            rank = find_rank(pid, self._ranks)
            if rank is None:
                continue
            if size is None:
                self._problem = NO_COUNT
                return
            by_rank[rank] = by_rank.get(rank, 0) + size
        for rank, size in by_rank.items():
            self._peaks[rank] = max(size, self._peaks.get(rank, 0))


def find_rank(pid: int, ranks: Mapping[int, int]) -> int | None:
    """Return the rank that a process belongs to: it is the rank, in its session, or a descendant. ``ranks`` are theirs
    by process id.
    """
    for _ in range(64):  # the tree changes while it is read, so it might look like a ring
        if pid in ranks:
            return ranks[pid]
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        parent, session = int(fields[1]), int(fields[3])
        if session in ranks:  # a rank leads a session, which its children keep when their parents have ended
            return ranks[session]
        pid = parent
    return None


def in_container() -> bool:
    """Return whether process ids here differ from those of the kernel and its drivers."""
    try:
        return os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE  # noqa: PTH115
    except OSError:
        return False


def children_peak_bytes() -> int | None:
    """Return the sum of the memory peaks of this process's children, with shared memory counted in each of them. None if
    there are no children, or the system does not tell.
    """
    peaks = []
    try:
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208
            with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
                peaks += [peak for pid in file.read().split() if (peak := peak_bytes(pid)) is not None]
    except OSError:
        pass
    return sum(peaks) if peaks else None


def peak_bytes(pid: int | str) -> int | None:
    """Return the most memory that a process ever held (VmHWM)."""
    try:
        with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), None)
    except OSError:
        return None


def limit_memory(share: float) -> int:
    """Limit this process, and each that it starts, to this share of the memory that is free now. A larger allocation
    then fails, instead of making the kernel swap or kill processes. Return the limit in bytes.
    """
    limit = int(share * available_bytes())
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = min([limit, *(other for other in (soft, hard) if other != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return limit


def available_bytes() -> int:
    """Return how much memory can be used without swapping, on this machine and in all containers around this process."""
    kib = _number("/proc/meminfo", "MemAvailable:")
    free = kib * 1024 if kib is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([free, *_remaining_in_groups()])


def _remaining_in_groups() -> list[int]:
    """Return how much memory each control group of this process that has a limit still allows."""
    remaining = []
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
            most, now = _number(f"{folder}/{limit}"), _number(f"{folder}/{used}")
            if most is not None and now is not None:
                remaining.append(max(0, most - now + (_number(f"{folder}/memory.stat", cached) or 0)))
    return remaining


def _number(path: str, name: str = "") -> int | None:
    """Read the number in a file, or the number after a name in one of its lines. Return None for «max» or no file."""
    try:
        with open(path) as file:  # noqa: PTH123
            return next((int(line[len(name) :].split()[0]) for line in file if line.startswith(name)), None)
    except (OSError, ValueError, IndexError):
        return None
