"""What third parties add: a framework, a model or a launcher, by name, as the document that a job carries.

The controller finds them (../plugins.py). A process that trains may run in another environment, where the package is not
installed: it is told the package's folder, and takes that package from there and nothing else.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from .frameworks import catalog as frameworks
from .models import catalog as models

FRAMEWORK, MODEL, LAUNCHER = "framework", "model", "launcher"


def use(plugins: Iterable[dict[str, str]]) -> None:
    """Make these known in this process. ``{"kind", "name", "reference", "folder"}``: reference is "module:name"."""
    for plugin in plugins:
        top = plugin["reference"].partition(":")[0].partition(".")[0]
        if plugin["folder"] and importlib.util.find_spec(top) is None:
            sys.meta_path.append(_OnePackage(top, plugin["folder"]))
        add(plugin)


def add(plugin: dict[str, str]) -> Any:
    """Load it, check it, and put it into the table of its kind. Raises what is wrong with it."""
    module, _, name = plugin["reference"].partition(":")
    found = getattr(importlib.import_module(module), name)
    if plugin["kind"] == FRAMEWORK:
        _check(found, frameworks.Framework, plugin)
        _check_new(plugin["name"], found.name, frameworks.FRAMEWORKS)
        frameworks.FRAMEWORKS[found.name] = replace(found, plugin=plugin)
    elif plugin["kind"] == MODEL:
        _check(found, models.ModelInfo, plugin)
        _check_new(plugin["name"], found.name, models.MODELS)
        models.add(replace(found, plugin=plugin))
    return found


def _check(found: Any, kind: type, plugin: dict[str, str]) -> None:
    if not isinstance(found, kind):
        raise TypeError(f"{plugin['reference']} is of type {type(found).__name__}, not {kind.__name__}")


def _check_new(entry: str, name: str, known: Any) -> None:
    if entry != name:
        raise ValueError(f"the entry point is called {entry!r}, what it names calls itself {name!r}")
    if name in known and known[name].plugin is None:
        raise ValueError(f"{name!r} is the name of a built-in")


class _OnePackage(importlib.abc.MetaPathFinder):
    """Finds one top-level package or module in a folder, and lets every other be found as usual."""

    def __init__(self, name: str, folder: str) -> None:
        self._name, self._folder = name, folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        package = os.path.join(self._folder, self._name)  # noqa: PTH118
        if os.path.isdir(package):  # noqa: PTH112
            start = os.path.join(package, "__init__.py")  # noqa: PTH118
            return importlib.util.spec_from_file_location(fullname, start, submodule_search_locations=[package])
        return importlib.util.spec_from_file_location(fullname, f"{package}.py")
