"""The launchers by name, and the settings that they declare. A plug-in may add a launcher (launch/plugins.py)."""

from __future__ import annotations

import importlib

from ...errors import explain_unknown
from ...spec.settings import SettingGroup
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


def load_launcher(name: str) -> type[Launcher]:
    """Import the class of a launcher."""
    if name not in LAUNCHERS:
        raise explain_unknown("launcher", name, LAUNCHERS)
    module, _, class_name = LAUNCHERS[name].partition(":")
    launcher_class: type[Launcher] = getattr(importlib.import_module(module, __package__), class_name)
    return launcher_class


def list_launcher_groups() -> tuple[type[SettingGroup], ...]:
    """Return the groups of settings that launchers declare, each once."""
    groups = dict.fromkeys(load_launcher(name).settings_type for name in LAUNCHERS)
    return tuple(group for group in groups if group.settings())


def list_plugin_setting_keys() -> tuple[str, ...]:
    """Return the keys of the settings that launchers of plug-ins declare."""
    names = [name for name, reference in LAUNCHERS.items() if not reference.startswith(".")]
    return tuple(setting.key for name in names for setting in load_launcher(name).settings_type.settings())
