"""Looks at the host it runs on: machine, addresses, disk, and which interpreters have the wanted frameworks.

Reads one JSON line {"frameworks": {name: {"modules": […], "pythons": […]}}, "folder"} and prints event lines, which
together are the answer. No framework is imported: that takes seconds, and is for the probe.
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
from functools import cache
from typing import Any

from ..events import claim_stdout, encode
from .machine import read_machine

_SIOCGIFADDR = 0x8915
_MOST_ADDRESSES = 40  # that fit into one event line; a host of containers has more, of no use here
# Where `trainscale env create` puts its environments.
_ENVIRONMENTS = "trainscale/envs/*/bin/python"
_FIND_SECONDS = 30
# Prints which of the modules in its arguments an interpreter has, with their versions. A folder without code is none.
_FIND = r"""
import importlib.metadata, importlib.util, json, re, sys

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    builds = re.compile(re.escape(name) + r"[-_](cpu|gpu|rocm|intel|macos|nightly|cu\d+)")
    for one in importlib.metadata.distributions():
        if builds.match((one.metadata["Name"] or "").lower()):
            return one.version
    return "unknown"

specs = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: version(name) for name, spec in specs.items() if spec and spec.origin}))
"""


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    asked = json.loads(sys.stdin.readline())
    wanted = asked.get("frameworks", {})
    machine = read_machine().to_dict()
    modules = _all_modules(wanted)
    for part in (  # each must fit into a line, on a host of hundreds of cores, too
        {"gpus": machine.pop("gpus")},
        {"machine": machine},
        {
            "addresses": addresses(),
            "reached_at": reached_at(),
            "disk_free_bytes": _disk_free(asked.get("folder", "/tmp")),
        },
        {
            "python": sys.executable,
            "version": sys.version.split()[0],
            "frameworks": {name: find(one["modules"], one["pythons"], modules) for name, one in wanted.items()},
        },
    ):
        os.write(out, encode({"kind": "look", **part}))
    return 0


def addresses() -> dict[str, str]:
    """The IPv4 address of every interface that has one, by the interface's name: that of the default route first."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(one.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has none
            found[name] = socket.inet_ntoa(answer[20:24])
    outward = _outward_interface()
    return dict(sorted(found.items(), key=lambda item: item[0] != outward)[:_MOST_ADDRESSES])


def _outward_interface() -> str | None:
    """That of the default route."""
    try:
        with open("/proc/net/route") as file:  # noqa: PTH123
            rows = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return None
    return next((row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"), None)


def reached_at() -> str:
    """The address of this host to which the controller's ssh came; empty if it came by other means."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else ""


def data_home() -> str:
    """Return the folder of this user's data. As for the controller (folders.py), a relative path counts as unset."""
    folder = os.environ.get("XDG_DATA_HOME", "")
    return folder if os.path.isabs(folder) else os.path.expanduser("~/.local/share")  # noqa: PTH111, PTH117


def find(modules: list[str], pythons: list[str], others: tuple[str, ...]) -> dict[str, Any] | None:
    """The first interpreter that has these modules, and their versions: of those named, then this one, then the
    environments made here. ``others`` are modules that it will be asked for too.
    """
    candidates = [*pythons, sys.executable, *sorted(glob.glob(os.path.join(data_home(), _ENVIRONMENTS)))]  # noqa: PTH118, PTH207
    for python in dict.fromkeys(candidates):
        path = shutil.which(python)
        versions = _versions(path, others) if path else {}
        if path and all(module in versions for module in modules):
            return {"python": path, "versions": {module: versions[module] for module in modules}}
    return None


def _all_modules(wanted: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted({module for one in wanted.values() for module in one["modules"]}))


@cache
def _versions(python: str, modules: tuple[str, ...]) -> dict[str, str]:
    try:
        done = subprocess.run([python, "-c", _FIND, *modules], capture_output=True, timeout=_FIND_SECONDS)
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    return found


def _disk_free(folder: str) -> int | None:
    try:
        return shutil.disk_usage(os.path.expanduser(folder)).free  # noqa: PTH111
    except OSError:
        return None
