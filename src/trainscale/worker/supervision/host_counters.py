"""Counters of the whole host, whose differences show what else ran on it during a trial."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class HostCounters:
    """Values since the host started. None where the system does not report them."""

    busy_seconds: float | None  # CPU time of all processes, and of other virtual machines on this one's cores
    waited_seconds: float | None  # in which some process had work but no core
    kernel_kills: int  # because memory ran out

    @classmethod
    def read(cls) -> HostCounters:
        return cls(_read_busy_seconds(), _read_waited_seconds(), _count_kernel_kills())


def _read_busy_seconds() -> float | None:
    """Return the CPU seconds that the machine has spent on any process since it started.

    What the kernel calls stolen is part of it: in that time a hypervisor gave a core to another virtual machine.
    """
    try:
        with open("/proc/stat") as file:  # noqa: PTH123
            ticks = [int(value) for value in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    idle, waiting_for_disks = ticks[3:5]
    return (sum(ticks) - idle - waiting_for_disks) / os.sysconf("SC_CLK_TCK")


def _read_waited_seconds() -> float | None:
    """Return the seconds in which some process, ours included, had work but no core (the kernel's PSI)."""
    try:
        with open("/proc/pressure/cpu") as file:  # noqa: PTH123
            return int(file.readline().rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def _count_kernel_kills() -> int:
    """Return how many processes the kernel has killed because memory ran out."""
    try:
        with open("/proc/vmstat") as file:  # noqa: PTH123
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, StopIteration):
        return 0
