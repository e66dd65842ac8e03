"""Finds what third-party packages add, by their entry points: frameworks, models and launchers.

A plug-in that cannot be loaded is kept with its error and listed; it never stops anything.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ..worker import plugins
from .launchers.base import Launcher
from .launchers.catalog import LAUNCHERS

GROUPS = {
    "trainscale.frameworks": plugins.FRAMEWORK,
    "trainscale.models": plugins.MODEL,
    "trainscale.launchers": plugins.LAUNCHER,
}
_FILE = "entry_points.txt"


@dataclass(frozen=True)
class Plugin:
    """One entry point. ``error`` says why it is not used; empty when it is."""

    kind: str
    name: str
    reference: str
    package: str  # name and version of the distribution that brings it
    error: str = ""


@cache
def load_plugins() -> tuple[Plugin, ...]:
    """Every plug-in there is, loaded once. Must come before anything that lists frameworks, models or launchers."""
    return tuple(_find())


def broken_plugins(kind: str) -> list[Plugin]:
    return [plugin for plugin in load_plugins() if plugin.kind == kind and plugin.error]


def _find() -> Iterator[Plugin]:
    """Goes by the packages, not by ``metadata.entry_points()``: that one fails for all when one package is damaged."""
    seen = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text(_FILE) or ""
        except Exception:
            continue  # whatever it is, it does not say that it is for us
        groups = [group for group in GROUPS if group in text]
        if not groups:
            continue
        name, version = _name(distribution)
        if name in seen:
            continue  # an older copy, further back on the module path
        seen.add(name)
        yield from _plugins(distribution, groups, f"{name} {version}")


def _plugins(distribution: metadata.Distribution, groups: list[str], package: str) -> Iterator[Plugin]:
    for group in groups:
        kind = GROUPS[group]
        try:
            entries = [(entry.name, entry.value) for entry in distribution.entry_points.select(group=group)]
        except Exception as error:
            yield Plugin(kind, _FILE, "", package, f"cannot be read: {_words(error)}")
            continue
        for name, value in entries:
            reference = value.partition("[")[0].strip()  # the extras it might need are pip's concern
            yield Plugin(kind, name, reference, package, _add(kind, name, reference))


def _name(distribution: metadata.Distribution) -> tuple[str, str]:
    try:
        return distribution.metadata["Name"], distribution.version
    except Exception:
        return str(distribution), ""  # its metadata is damaged; this names its folder


def _add(kind: str, name: str, reference: str) -> str:
    """Adds it to its table; returns what went wrong. A foreign module may do anything at import, even exit."""
    try:
        found = plugins.add({"kind": kind, "name": name, "reference": reference, "folder": _folder(reference)})
        if kind == plugins.LAUNCHER:
            _check_launcher(name, reference, found)
            LAUNCHERS[name] = reference
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _words(error)
    return ""


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


def _check_launcher(name: str, reference: str, found: Any) -> None:
    if not (isinstance(found, type) and issubclass(found, Launcher)):
        raise TypeError(f"{reference} is not a class derived from Launcher")
    if inspect.isabstract(found):
        raise TypeError(f"{reference} lacks {', '.join(sorted(found.__abstractmethods__))}")
    own = getattr(found, "name", None)
    if own != name:
        raise ValueError(f"the entry point is called {name!r}, what it names calls itself {own!r}")
    if name in LAUNCHERS:
        whose = "a built-in" if LAUNCHERS[name].startswith(".") else f"another plug-in, {LAUNCHERS[name]}"
        raise ValueError(f"{name!r} is the name of {whose}")


def _folder(reference: str) -> str:
    """Where the plug-in's top-level package or module lies, for processes whose environment does not have it."""
    top = plugins.top_of(reference)
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top!r}")
    if spec.origin:
        path = Path(spec.origin)
        place = path.parent.parent if path.name == "__init__.py" else path.parent
        if not place.is_dir():
            raise ValueError(f"{spec.origin} is not a plain file")
        return str(place)
    # A namespace may lie in several folders: the plug-in's is the one that has the next part of its module's name.
    inner = reference.partition(":")[0].split(".")[1:2] or [""]
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    own = [folder for folder in folders if any(folder.glob(f"{inner[0]}*"))]
    return str((own or folders)[0].parent)
