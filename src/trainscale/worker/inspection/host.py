"""Inspects the host it runs on: machine, addresses, disk, and which interpreters have the requested frameworks.

The role ``look`` reads a HostFactsRequest as a JSON line. It prints the HostFacts as JSON text, cut into events
(HostFactsPiece). Frameworks are imported only in their own interpreters, by the role ``probe``.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ..emitter import claim_stdout, encode
from ..events import FrameworkFacts, HostFactsPiece
from .probe import ProbeRequest, run_probes

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


# ---- the role

_SIOCGIFADDR = 0x8915
_MOST_ADDRESSES = 40  # a host of many containers has more, of no use here
_PIECE = 1500  # characters of JSON text in an event line, where each quote needs two bytes
# Where `trainscale env create` puts its environments.
_ENVIRONMENTS = "trainscale/envs/*/bin/python"
_FIND_SECONDS = 30
# Prints which of the modules in its arguments an interpreter has, with their versions. A folder without code is not a
# module.
_FIND = r"""
import importlib.metadata, importlib.util, json, re, sys

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    builds = re.compile(re.escape(name) + r"[-_](cpu|gpu|rocm|intel|macos|nightly|cu\d+)")
    for package in importlib.metadata.distributions():
        if builds.match((package.metadata["Name"] or "").lower()):
            return package.version
    return "unknown"

specs = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: version(name) for name, spec in specs.items() if spec and spec.origin}))
"""


@dataclass(frozen=True)
class FrameworkSearch:
    """The modules of a framework, and the interpreters to try first."""

    modules: list[str]
    pythons: list[str]


@dataclass(frozen=True)
class HostFactsRequest:
    """``frameworks`` to look for, by name. ``folder``: where the worker is copied to, whose disk space matters.
    ``probes``: frameworks to import, each in the interpreter that was found for it.
    """

    frameworks: dict[str, FrameworkSearch] = field(default_factory=dict)
    folder: str = "/tmp"
    probes: list[ProbeRequest] = field(default_factory=list)

    @classmethod
    def from_json(cls, text: str) -> HostFactsRequest:
        values = json.loads(text)
        searches = {name: FrameworkSearch(**search) for name, search in values.get("frameworks", {}).items()}
        probes = [ProbeRequest.from_dict(probe) for probe in values.get("probes", ())]
        return cls(**{**values, "frameworks": searches, "probes": probes})


@dataclass(frozen=True)
class FrameworkLocation:
    """The interpreter that has a framework, and the versions of the framework's modules."""

    python: str
    versions: dict[str, str]


@dataclass(frozen=True)
class HostFacts:
    """What a host says about itself. The controller adds the last two."""

    machine: Machine
    addresses: dict[str, str] = field(default_factory=dict)  # by interface
    reached_at: str = ""  # the address to which the controller's ssh connected, or empty
    disk_free_bytes: int | None = None
    python: str = ""
    python_version: str = ""
    frameworks: dict[str, FrameworkLocation | None] = field(default_factory=dict)
    probes: dict[str, FrameworkFacts] = field(default_factory=dict)  # of the frameworks that were to be imported
    clock_ahead_seconds: tuple[float, float] | None = None  # at least and at most, compared with the controller's
    worker_copied: bool | None = None  # whether the worker had to be copied to the host just now


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    request = HostFactsRequest.from_json(sys.stdin.readline())
    text = json.dumps(inspect_host(request), default=vars)
    for start in range(0, len(text), _PIECE):
        os.write(out, encode(HostFactsPiece(text[start : start + _PIECE])))
    return 0


def inspect_host(request: HostFactsRequest) -> HostFacts:
    modules = tuple(sorted({module for search in request.frameworks.values() for module in search.modules}))
    machine = read_machine()  # before the frameworks make it busy
    locations = {
        name: find_interpreter(search.modules, search.pythons, modules) for name, search in request.frameworks.items()
    }
    # Where none has the framework, the probe says so, or why the interpreter that a person named does not work.
    pythons = {
        name: location.python if location else (*request.frameworks[name].pythons, sys.executable)[0]
        for name, location in locations.items()
    }
    return HostFacts(
        machine=machine,
        addresses=list_addresses(),
        reached_at=find_reached_address(),
        disk_free_bytes=_measure_free_disk(request.folder),
        python=sys.executable,
        python_version=sys.version.split()[0],
        frameworks=locations,
        probes=run_probes(pythons, request.probes),
    )


def list_addresses() -> dict[str, str]:
    """Return the IPv4 address of every interface that has one; the interface of the default route comes first."""
    by_interface = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has none
            by_interface[name] = socket.inet_ntoa(answer[20:24])
    outward = _find_outward_interface()
    return dict(sorted(by_interface.items(), key=lambda item: item[0] != outward)[:_MOST_ADDRESSES])


def _find_outward_interface() -> str | None:
    """Return the interface of the default route."""
    try:
        with open("/proc/net/route") as file:  # noqa: PTH123
            rows = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return None
    return next((row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"), None)


def find_reached_address() -> str:
    """Return the address of this host to which the controller's ssh connected; empty if it was not by ssh."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return fields[2] if len(fields) == 4 else ""


def find_data_home() -> str:
    """Return the folder of this user's data. As for the controller (folders.py), a relative path counts as unset."""
    folder = os.environ.get("XDG_DATA_HOME", "")
    return folder if os.path.isabs(folder) else os.path.expanduser("~/.local/share")  # noqa: PTH111, PTH117


def find_interpreter(modules: list[str], pythons: list[str], all_modules: tuple[str, ...]) -> FrameworkLocation | None:
    """Return the first interpreter that has these modules: of those named, this one, and the environments made here.
    Each interpreter is asked once, for ``all_modules``.
    """
    candidates = [*pythons, sys.executable, *sorted(glob.glob(os.path.join(find_data_home(), _ENVIRONMENTS)))]  # noqa: PTH118, PTH207
    for python in dict.fromkeys(candidates):
        path = shutil.which(python)
        versions = _find_versions(path, all_modules) if path else {}
        if path and all(module in versions for module in modules):
            return FrameworkLocation(path, {module: versions[module] for module in modules})
    return None


@cache
def _find_versions(python: str, modules: tuple[str, ...]) -> dict[str, str]:
    try:
        done = subprocess.run([python, "-c", _FIND, *modules], capture_output=True, timeout=_FIND_SECONDS)
        versions: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    return versions


def _measure_free_disk(folder: str) -> int | None:
    try:
        return shutil.disk_usage(os.path.expanduser(folder)).free  # noqa: PTH111
    except OSError:
        return None
