"""Memory, from outside and in advance: what a rank's processes hold of the GPUs by the driver's count, what its loaders
hold of the host, and a limit for ranks that are tried with ever larger batches. Imports no framework.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Mapping
from typing import Any

from .nvml import Nvml, NvmlError

_SAMPLE_SECONDS = 0.2
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's own number for it (PROC_PID_INIT_INO)
_CGROUPS = "/sys/fs/cgroup"

ELSEWHERE = "NVML names processes by numbers of another namespace (a container), so the trial's own cannot be told"
NO_COUNT = "the driver does not say how much memory each process holds"


class GpuMemory:
    """The largest that each rank was seen to hold, its children's included, sampled by a thread of its own. Never what
    a stranger holds: a process that cannot be told to be of the trial counts for nobody.
    """

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}  # of ranks, by process number
        self._peaks: dict[int, int] = {}  # by rank
        self._trouble = ""
        self._seen = 0  # most processes that NVML named at a time
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)

    def watch(self, rank: int, pid: int) -> None:
        self._pids = {**self._pids, pid: rank}
        if self._thread.ident is None:
            self._thread.start()

    def of(self, rank: int) -> dict[str, Any]:
        """``peak_bytes``, or a ``note`` that says why there is none."""
        if self._trouble:
            return {"note": self._trouble}
        if rank in self._peaks:
            return {"peak_bytes": self._peaks[rank]}
        others = f"; it names {self._seen} other{'s' if self._seen != 1 else ''}" if self._seen else ""
        return {"note": f"NVML names no process of this rank{others}"}

    def stop(self) -> None:
        """The driver may take its time to answer; nobody waits for it."""
        self._stop.set()

    def _sample(self) -> None:
        inner = in_container()
        before: set[int] = set()
        try:
            nvml = Nvml()
            while not self._stop.wait(_SAMPLE_SECONDS):
                found = nvml.processes()
                unknown = {pid for pid in found if inner and not os.path.exists(f"/proc/{pid}")}  # noqa: PTH110
                if unknown & before:  # once may be a process that has just ended
                    self._trouble = ELSEWHERE
                    return
                before = unknown
                self._count(found)
        except NvmlError as error:
            self._trouble = str(error)

    def _count(self, found: Mapping[int, int | None]) -> None:
        now: dict[int, int] = {}
        self._seen = max(self._seen, len(found))
        for pid, size in found.items():
            rank = owner(pid, self._pids)
            if rank is None:
                continue
            if size is None:
                self._trouble = NO_COUNT
                return
            now[rank] = now.get(rank, 0) + size
        for rank, size in now.items():
            self._peaks[rank] = max(size, self._peaks.get(rank, 0))


def owner(pid: int, ranks: Mapping[int, int]) -> int | None:
    """The rank that a process belongs to, ``ranks`` being theirs by process number: itself, of its session, or below
    it in the tree.
    """
    for _ in range(64):  # a tree as it was read, while it changed, might have a ring
        if pid in ranks:
            return ranks[pid]
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        parent, session = int(fields[1]), int(fields[3])
        if session in ranks:  # a rank leads a session: so are children that have outlived their parents found
            return ranks[session]
        pid = parent
    return None


def in_container() -> bool:
    """Whether processes are numbered here otherwise than by the kernel, and so by its drivers."""
    try:
        return os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE  # noqa: PTH115
    except OSError:
        return False


def children_peak_bytes() -> int | None:
    """The most that the processes which this one has started held, each at its own time, added up; what they share is
    counted in each. None when there are none, or where the system does not say.
    """
    found = []
    try:
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208
            with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
                found += [peak for pid in file.read().split() if (peak := peak_bytes(pid)) is not None]
    except OSError:
        pass
    return sum(found) if found else None


def peak_bytes(pid: int | str) -> int | None:
    """The most memory that a process ever held (VmHWM)."""
    try:
        with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), None)
    except OSError:
        return None


def confine(share: float) -> int:
    """Lets this process, and each that it starts, allocate no more than this share of the memory that is free here now:
    an allocation beyond it fails, where the kernel would swap, or end processes. The limit in bytes.
    """
    limit = int(share * available_bytes())
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = min([limit, *(other for other in (soft, hard) if other != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return limit


def available_bytes() -> int:
    """What may be taken without swapping, by the machine's count and by that of every container around this process."""
    kib = _number("/proc/meminfo", "MemAvailable:")
    free = kib * 1024 if kib is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([free, *_left_in_groups()])


def _left_in_groups() -> list[int]:
    """Of every control group that this process is in and that has a limit, how much it leaves."""
    left = []
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
                left.append(max(0, most - now + (_number(f"{folder}/memory.stat", cached) or 0)))
    return left


def _number(path: str, name: str = "") -> int | None:
    """A file that holds one number, or the number after a name in one of its lines; None for «max», or no file."""
    try:
        with open(path) as file:  # noqa: PTH123
            return next((int(line[len(name) :].split()[0]) for line in file if line.startswith(name)), None)
    except (OSError, ValueError, IndexError):
        return None
