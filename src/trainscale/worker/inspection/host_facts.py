"""Inspects the host it runs on: machine, addresses, disk, and which interpreters have the requested frameworks.

Reads a HostFactsRequest as a JSON line. Prints the HostFacts as JSON text, cut into events (HostFactsPiece). Frameworks
are imported only in their own interpreters, by the role ``probe``.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache

from ..emitter import claim_stdout, encode
from ..events import FrameworkFacts, HostFactsPiece
from .machine import Machine, read_machine
from .probe import ProbeRequest, run_probes

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
