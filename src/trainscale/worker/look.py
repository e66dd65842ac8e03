"""Looks at the host it runs on: machine, addresses, clock, disk, and which interpreters have the wanted frameworks.

Reads one JSON line {"frameworks": {name: {"modules": […], "pythons": […]}}, "folder"} and prints one event line. No
framework is imported: that takes seconds, and is for the probe.
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
import time

from .events import claim_stdout, encode
from .machine import look

_SIOCGIFADDR = 0x8915
# Where `trainscale env create` puts its environments.
_ENVIRONMENTS = "trainscale/envs/*/bin/python"
_FIND = "import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))"


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    asked = json.loads(sys.stdin.readline())
    answer = {
        "kind": "look",
        "machine": look().to_dict(),
        "addresses": addresses(),
        "clock": time.time(),
        "disk_free_bytes": _disk_free(asked.get("folder", "/tmp")),
        "python": sys.executable,
        "version": sys.version.split()[0],
        "pythons": {
            name: find_python(wanted["modules"], wanted["pythons"])
            for name, wanted in asked.get("frameworks", {}).items()
        },
    }
    os.write(out, encode(answer))
    return 0


def addresses() -> dict[str, str]:
    """The IPv4 address of every interface that has one, by the interface's name."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(one.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has none
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def find_python(modules: list[str], pythons: list[str]) -> str | None:
    """The first interpreter that has these modules: of those named, then this one, then the environments made here."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111
    candidates = [*pythons, sys.executable, *sorted(glob.glob(os.path.join(data, _ENVIRONMENTS)))]  # noqa: PTH118, PTH207
    for python in dict.fromkeys(candidates):
        path = shutil.which(python)
        try:
            if path and subprocess.run([path, "-c", _FIND, *modules], capture_output=True, timeout=60).returncode == 0:
                return path
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def _disk_free(folder: str) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
