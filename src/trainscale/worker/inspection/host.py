"""Inspects a host: machine, addresses, disk, and which interpreters have some frameworks.

The role ``look`` reads a HostFactsRequest as a JSON line, and prints HostFacts in pieces.
Frameworks are imported in their own interpreters, by ``probe``.
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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

from ..events import AnswerPiece, FrameworkFacts, claim_stdout, encode
from .probe import ProbeRequest, run_probes
from .usage import list_usable_cores, read_line, read_number


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
    pressure: float | None  # per cent of 10 s in which a process waited for a core


def read_machine() -> Machine:
    gpus, note = _query_gpus()
    pressure = read_line("/proc/pressure/cpu", "some avg10=").partition(" ")[0]
    threads_per_core = 0
    for piece in read_line("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").split(","):
        first, _, last = piece.partition("-")
        threads_per_core += int(last or first) - int(first) + 1 if piece else 1
    return Machine(
        name=platform.node(),
        # platform.processor() would start a process.
        cpu=read_line("/proc/cpuinfo", "model name").partition(":")[2].strip() or platform.machine(),
        cores=list_usable_cores(),
        threads_per_core=threads_per_core,
        memory_bytes=(read_number("/proc/meminfo", "MemTotal:") or 0) * 1024,
        memory_available_bytes=(read_number("/proc/meminfo", "MemAvailable:") or 0) * 1024,
        gpus=gpus,
        gpu_note=note,
        load=os.getloadavg()[0],
        pressure=float(pressure) if pressure else None,
    )


def _query_gpus() -> tuple[tuple[Gpu, ...], str]:
    if shutil.which("nvidia-smi") is None:
        return (), "no nvidia-smi on this machine"
    try:
        columns = "--query-gpu=index,name,memory.total,driver_version,uuid"
        query = ["nvidia-smi", columns, "--format=csv,noheader,nounits"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi did not answer: {error}"
    if done.returncode != 0:
        message = (done.stdout or done.stderr).strip() or f"exit code {done.returncode}"
        return (), f"nvidia-smi failed: {message.splitlines()[0]}"
    gpus = []
    for line in done.stdout.strip().splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 4 or not cells[0].isdigit():
            continue  # a sentence, such as "No devices were found"
        index, name, memory, driver, *uuid = cells
        # Devices that share the host's memory answer "[N/A]".
        size = int(memory) * 1024**2 if memory.isdigit() else 0
        gpus.append(Gpu(int(index), name, size, driver, uuid[0] if uuid else ""))
    if not gpus:
        return (), f"nvidia-smi names none: {done.stdout.strip()[:200]}"
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is None:
        return tuple(gpus), ""
    # Processes see the GPUs that the variable names, numbered anew.
    chosen: list[Gpu] = []
    for name in (part.strip() for part in variable.split(",")):
        # By number or beginning of the UUID. As in CUDA, a wrong name hides all that follow.
        named = [gpu for gpu in gpus if name == str(gpu.index)]
        if name.startswith("GPU-"):
            named = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
        if len(named) != 1:
            break
        chosen += named
    visible = tuple(replace(gpu, index=position) for position, gpu in enumerate(chosen))
    return visible, "" if visible else f"CUDA_VISIBLE_DEVICES={variable} hides {len(gpus)}"


# ---- the role

_SIOCGIFADDR = 0x8915
_MOST_ADDRESSES = 40  # a host of many containers has more, of no use here
_PIECE = 1500  # characters of JSON in a line, where a quote needs two bytes
# Prints which modules an interpreter has, with their versions. A folder without code is none.
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
class HostFactsRequest:
    frameworks: dict[str, list[str]] = field(default_factory=dict)  # their modules
    pythons: dict[str, list[str]] = field(default_factory=dict)  # to try first, by framework
    folder: str = "/tmp"  # where the worker is copied to
    probes: list[ProbeRequest] = field(default_factory=list)  # to be asked in what is found


@dataclass(frozen=True)
class FrameworkLocation:
    """The interpreter that has a framework, and the versions of its modules."""

    python: str
    versions: dict[str, str]


@dataclass(frozen=True)
class HostFacts:
    """What a host says about itself. The controller adds the last two."""

    machine: Machine
    addresses: dict[str, str] = field(default_factory=dict)  # by interface
    reached_at: str = ""  # by the controller's ssh, or empty
    disk_free_bytes: int | None = None
    python: str = ""
    python_version: str = ""
    frameworks: dict[str, FrameworkLocation | None] = field(default_factory=dict)
    probes: dict[str, FrameworkFacts] = field(default_factory=dict)
    clock_ahead_seconds: tuple[float, float] | None = None  # of the controller's: least and most
    worker_copied: bool | None = None  # whether the worker had to be copied just now


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    values = json.loads(sys.stdin.readline())
    probes = [ProbeRequest.from_dict(probe) for probe in values.pop("probes", ())]
    request = HostFactsRequest(**values, probes=probes)
    all_modules = tuple(sorted(set[str]().union(*request.frameworks.values())))
    machine = read_machine()  # before the frameworks make it busy
    locations, pythons = {}, {}
    for name, modules in request.frameworks.items():
        named = request.pythons.get(name, [])
        locations[name] = location = find_interpreter(modules, named, all_modules)
        # Where none has the framework, the probe says so.
        pythons[name] = location.python if location else (*named, sys.executable)[0]
    try:
        disk_free_bytes = shutil.disk_usage(os.path.expanduser(request.folder)).free
    except OSError:
        disk_free_bytes = None
    facts = HostFacts(
        machine=machine,
        addresses=list_addresses(),
        reached_at=find_reached_address(),
        disk_free_bytes=disk_free_bytes,
        python=sys.executable,
        python_version=sys.version.split()[0],
        frameworks=locations,
        probes=run_probes(pythons, probes),
    )
    text = json.dumps(facts, default=vars)
    for start in range(0, len(text), _PIECE):
        os.write(out, encode(AnswerPiece(text[start : start + _PIECE])))
    return 0


def list_addresses() -> dict[str, str]:
    """Return the IPv4 addresses by interface; that of the default route comes first."""
    by_interface = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has none
            by_interface[name] = socket.inet_ntoa(answer[20:24])
    outward = None
    with suppress(OSError), open("/proc/net/route") as file:
        rows = [line.split() for line in file.readlines()[1:]]
        defaults = (row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000")
        outward = next(defaults, None)
    return dict(sorted(by_interface.items(), key=lambda item: item[0] != outward)[:_MOST_ADDRESSES])


def find_reached_address() -> str:
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return fields[2] if len(fields) == 4 else ""


def find_interpreter(modules: list[str], pythons: list[str], all_modules: tuple[str, ...]) -> FrameworkLocation | None:
    """Return the first interpreter that has these modules: of those named, this one, and the
    environments made here. Each is asked once, for ``all_modules``.
    """
    data_home = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data_home):  # as in folders.py, a relative path counts as unset
        data_home = os.path.expanduser("~/.local/share")
    environments = sorted(glob.glob(os.path.join(data_home, "trainscale/envs/*/bin/python")))
    for python in dict.fromkeys([*pythons, sys.executable, *environments]):
        path = shutil.which(python)
        versions = _find_versions(path, all_modules) if path else {}
        if path and all(module in versions for module in modules):
            return FrameworkLocation(path, {module: versions[module] for module in modules})
    return None


@cache
def _find_versions(python: str, modules: tuple[str, ...]) -> dict[str, str]:
    try:
        done = subprocess.run([python, "-c", _FIND, *modules], capture_output=True, timeout=30)
        return dict(json.loads(done.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
