"""The launchers there are, by name. One is imported when it is used. Third parties add theirs (plugins.py)."""

from __future__ import annotations

import importlib

from ...cluster.hosts import HostAccess
from ...errors import unknown
from .base import Launcher

# "module:class"; a module that begins with a dot is in this package.
LAUNCHERS: dict[str, str] = {
    "local": ".local:LocalLauncher",
    "ssh": ".ssh:SshLauncher",
    "mpi": ".mpi:MpiLauncher",
    "slurm": ".slurm:SlurmLauncher",
    "yarn": ".yarn:YarnLauncher",
    "ray": ".ray:RayLauncher",
}


def launcher(name: str, where: HostAccess | None = None) -> Launcher:
    if name not in LAUNCHERS:
        raise unknown("launcher", name, LAUNCHERS)
    module, kind = LAUNCHERS[name].split(":")
    found: type[Launcher] = getattr(importlib.import_module(module, __package__), kind)
    return found(where)
