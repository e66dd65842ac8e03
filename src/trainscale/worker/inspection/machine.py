"""Reads the state of this machine: cores, memory, GPUs and load. Changes nothing and imports no framework."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

_NVIDIA_QUERY = (
    "nvidia-smi",
    "--query-gpu=index,name,memory.total,driver_version,uuid",
    "--format=csv,noheader,nounits",
)
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    memory_bytes: int
    driver: str
    uuid: str = ""


@dataclass(frozen=True)
class Machine:
    name: str
    cpu: str
    cores: tuple[int, ...]  # that this process may use
    threads_per_core: int  # above 1, neighbouring "cores" share one
    memory_bytes: int
    memory_available_bytes: int
    gpus: tuple[Gpu, ...]
    gpu_note: str  # why there are none, if that is known
    load: float  # one-minute average of runnable processes
    pressure: float | None  # per cent of time in which some process waited for a core, last ten seconds


def read_machine() -> Machine:
    memory = _read_memory_sizes()
    gpus, note = _query_gpus()
    return Machine(
        name=platform.node(),
        cpu=_read_cpu_model(),
        cores=list_usable_cores(),
        threads_per_core=_count_threads_per_core(),
        memory_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        gpus=gpus,
        gpu_note=note,
        load=os.getloadavg()[0],
        pressure=read_cpu_pressure(),
    )


def list_usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may use, limited by a container's quota."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    quota = _read_container_quota()
    return tuple(allowed[: max(1, int(quota))] if quota else allowed)


def _read_container_quota() -> float | None:
    """Return the number of cores by cgroup v2's cpu.max or v1's cfs_quota; None without a limit."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        limit_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return limit_us / period_us if limit_us > 0 else None


def read_cpu_pressure() -> float | None:
    try:
        first = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    return next((float(word[6:]) for word in first.split() if word.startswith("avg10=")), None)


def _read_memory_sizes() -> dict[str, int]:
    sizes = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, size = line.partition(":")
            sizes[name] = int(size.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return sizes


def _read_cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()  # platform.processor() would start a process


def _count_threads_per_core() -> int:
    try:
        siblings = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return 1
    count = 0
    for piece in siblings.split(","):
        first, _, last = piece.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def _query_gpus() -> tuple[tuple[Gpu, ...], str]:
    if shutil.which("nvidia-smi") is None:
        return (), "no nvidia-smi on this machine"
    try:
        done = subprocess.run(_NVIDIA_QUERY, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi did not answer: {error}"
    if done.returncode != 0:
        message = (done.stdout or done.stderr).strip() or f"exit code {done.returncode}"
        return (), f"nvidia-smi failed: {message.splitlines()[0]}"
    gpus = parse_gpus(done.stdout)
    if not gpus:
        return (), f"nvidia-smi names none: {done.stdout.strip()[:200]}"
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = select_visible_gpus(gpus, variable)
    return visible, "" if visible else f"CUDA_VISIBLE_DEVICES={variable} hides {len(gpus)}"


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    gpus = []
    for line in text.strip().splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 4 or not cells[0].isdigit():
            continue  # a sentence, such as "No devices were found"
        index, name, memory, driver, *uuid = cells
        # Devices that share the host's memory answer "[N/A]".
        size = int(memory) * _MIB if memory.isdigit() else 0
        gpus.append(Gpu(int(index), name, size, driver, uuid[0] if uuid else ""))
    return tuple(gpus)


def select_visible_gpus(gpus: tuple[Gpu, ...], variable: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, numbered as the processes will see them."""
    if variable is None:
        return gpus
    chosen: list[Gpu] = []
    for name in (part.strip() for part in variable.split(",")):
        # A GPU is named by its number or by the beginning of its UUID. As in CUDA, a wrong name hides all that follow.
        by_uuid = name.startswith("GPU-")
        named = [gpu for gpu in gpus if (gpu.uuid.startswith(name) if by_uuid else name == str(gpu.index))]
        if len(named) != 1:
            break
        chosen += named
    return tuple(replace(gpu, index=position) for position, gpu in enumerate(chosen))
