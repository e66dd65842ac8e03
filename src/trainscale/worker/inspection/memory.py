"""Memory of a rank: what its processes hold of the GPUs by the driver's count, what its loaders hold of the host, and a
limit for ranks that try ever larger batches. Imports no framework.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Mapping

from .nvml import Nvml, NvmlError

_SAMPLE_SECONDS = 0.2
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's own number for it (PROC_PID_INIT_INO)
_CGROUPS = "/sys/fs/cgroup"

ELSEWHERE = "NVML names processes by numbers of another namespace (a container), so the trial's own are unknown"
NO_COUNT = "the driver does not say how much memory each process holds"


class GpuMemory:
    """Samples, in a thread, the most GPU memory that each rank held, its children included.

    A process that is not known to belong to the trial is not counted.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # by process number
        self._peaks: dict[int, int] = {}  # by rank
        self._problem = ""
        self._processes_seen = 0  # the most that NVML named at a time
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)

    def watch(self, rank: int, pid: int) -> None:
        self._ranks = {**self._ranks, pid: rank}
        if self._thread.ident is None:
            self._thread.start()

    def find_peak(self, rank: int) -> tuple[int | None, str]:
        """Return the peak of a rank's processes, or why it is unknown."""
        if self._problem:
            return None, self._problem
        if rank in self._peaks:
            return self._peaks[rank], ""
        seen = self._processes_seen
        others = f"; it names {seen} other{'s' if seen != 1 else ''}" if seen else ""
        return None, f"NVML names no process of this rank{others}"

    def stop(self) -> None:
        """Stop sampling, without waiting for the driver, which may be slow to answer."""
        self._stop.set()

    def _sample(self) -> None:
        inner = is_in_container()
        before: set[int] = set()
        try:
            nvml = Nvml()
            while not self._stop.wait(_SAMPLE_SECONDS):
                sizes = nvml.sum_process_bytes()
                unknown = {pid for pid in sizes if inner and not os.path.exists(f"/proc/{pid}")}  # noqa: PTH110
                if unknown & before:  # seen only once, it may have just ended
                    self._problem = ELSEWHERE
                    return
                before = unknown
                self._count(sizes)
        except NvmlError as error:
            self._problem = str(error)

    def _count(self, sizes: Mapping[int, int | None]) -> None:
        current: dict[int, int] = {}
        self._processes_seen = max(self._processes_seen, len(sizes))
        for pid, size in sizes.items():
            rank = find_rank(pid, self._ranks)
            if rank is None:
                continue
            if size is None:
                self._problem = NO_COUNT
                return
            current[rank] = current.get(rank, 0) + size
        for rank, size in current.items():
            self._peaks[rank] = max(size, self._peaks.get(rank, 0))


def find_rank(pid: int, ranks: Mapping[int, int]) -> int | None:
    """Return the rank that a process belongs to: it is the rank, or in its session, or one of its descendants.

    ``ranks`` are by process number.
    """
    for _ in range(64):  # a tree that changes while it is read might look like a ring
        if pid in ranks:
            return ranks[pid]
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        parent, session = int(fields[1]), int(fields[3])
        if session in ranks:  # a rank leads a session, so children are found that have outlived their parents
            return ranks[session]
        pid = parent
    return None


def is_in_container() -> bool:
    """Whether processes have other numbers here than the kernel and its drivers use."""
    try:
        return os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE  # noqa: PTH115
    except OSError:
        return False


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
