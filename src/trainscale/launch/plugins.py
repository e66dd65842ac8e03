"""Finds the plug-ins of other packages by their entry points, and lists those that cannot be loaded."""

import importlib.util
import inspect
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ..spec.groups import GROUPS as SETTING_GROUPS
from ..spec.groups import PLUGIN_GROUPS, collect_settings
from ..spec.settings import SettingGroup
from ..worker import plugins
from ..worker.job import PluginReference, parse_package
from .launchers.base import Launcher
from .launchers.target import LAUNCHERS

EXPORTER = "exporter"
GROUPS = {
    "trainscale.frameworks": plugins.FRAMEWORK,
    "trainscale.models": plugins.MODEL,
    "trainscale.launchers": plugins.LAUNCHER,
    "trainscale.exporters": EXPORTER,
}
_ENTRY_POINTS = "entry_points.txt"


@dataclass(frozen=True)
class Plugin:
    """One entry point. ``error`` says why it is not used, else it is empty."""

    kind: str
    name: str
    reference: str
    package: str  # name and version of its distribution
    error: str = ""


@cache
def load_plugins() -> tuple[Plugin, ...]:
    """Load every plug-in once, before anything lists frameworks, models or launchers."""
    # Read one by one: ``metadata.entry_points()`` fails for all if one is damaged.
    found: list[Plugin] = []
    seen = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text(_ENTRY_POINTS) or ""
            groups = [group for group in GROUPS if group in text]
            package = f"{distribution.metadata['Name']} {distribution.version}" if groups else ""
        except Exception:
            continue  # a damaged package cannot be known to be a plug-in
        name = package.rpartition(" ")[0]
        if name in seen:
            continue  # another copy, later on the module path
        if groups:
            seen.add(name)
        for group in groups:
            kind = GROUPS[group]
            try:
                entries = list(distribution.entry_points.select(group=group))
            except Exception as error:
                problem = f"cannot be read: {_describe(error)}"
                found.append(Plugin(kind, _ENTRY_POINTS, "", package, problem))
                continue
            for entry in entries:
                reference = entry.value.partition("[")[0].strip()  # without extras, which concern pip
                problem = _add(kind, entry.name, reference)
                found.append(Plugin(kind, entry.name, reference, package, problem))
    return tuple(found)


def list_broken_plugins(kind: str) -> list[Plugin]:
    return [plugin for plugin in load_plugins() if plugin.kind == kind and plugin.error]


def _add(kind: str, name: str, reference: str) -> str:
    """Return what went wrong. A module may exit at import."""
    if kind == EXPORTER:
        return ""  # export/base.py imports it when it is used
    try:
        added = plugins.add(PluginReference(kind, name, reference, _find_folder(reference)))
        if kind == plugins.LAUNCHER:
            _check_launcher(name, reference, added)
            LAUNCHERS[name] = reference
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _describe(error)
    return ""


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


def _check_launcher(name: str, reference: str, launcher: Any) -> None:
    if not (isinstance(launcher, type) and issubclass(launcher, Launcher)):
        raise TypeError(f"{reference} is not a class derived from Launcher")
    if inspect.isabstract(launcher):
        raise TypeError(f"{reference} lacks {', '.join(sorted(launcher.__abstractmethods__))}")
    own_name = getattr(launcher, "name", None)
    if own_name != name:
        raise ValueError(f"the entry point is called {name!r}, what it names calls itself {own_name!r}")
    if name in LAUNCHERS:
        reference = LAUNCHERS[name]
        owner = "a built-in" if reference.startswith(".") else f"another plug-in, {reference}"
        raise ValueError(f"{name!r} is the name of {owner}")
    group = launcher.settings_type
    if not (isinstance(group, type) and issubclass(group, SettingGroup)):
        raise TypeError(f"settings_type of {reference} is not a class derived from SettingGroup")
    if group.settings() and group not in (*SETTING_GROUPS, *PLUGIN_GROUPS):
        collect_settings([group])  # raises an error if a name is taken
        PLUGIN_GROUPS.append(group)


def _find_folder(reference: str) -> str:
    """Return the folder of the plug-in's package, for environments that do not have it."""
    top = parse_package(reference)
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top!r}")
    if not spec.origin:
        # A namespace package may lie in several folders.
        inner = reference.partition(":")[0].split(".")[1:2] or [""]
        folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
        matching = [folder for folder in folders if any(folder.glob(f"{inner[0]}*"))]
        return str((matching or folders)[0].parent)
    path = Path(spec.origin)
    folder = path.parent.parent if path.name == "__init__.py" else path.parent
    if not folder.is_dir():
        raise ValueError(f"{spec.origin} is not a plain file")
    return str(folder)
