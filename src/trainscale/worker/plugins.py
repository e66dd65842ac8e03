"""What third parties add: a framework, a model or a launcher, by name, as the document that a job carries.

The controller finds them (launch/plugins.py). A process that trains may run in another environment, where the package
is not installed: it is told the package's folder, and takes that package from there and nothing else.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import operator
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
        top = top_of(plugin["reference"])
        if plugin["folder"] and importlib.util.find_spec(top) is None:
            sys.meta_path.append(_OnePackage(top, plugin["folder"]))
        add(plugin)


def top_of(reference: str) -> str:
    """The package or module that holds all of a plug-in."""
    return reference.partition(":")[0].partition(".")[0]


def add(plugin: dict[str, str]) -> Any:
    """Load it, check it, and put it into the table of its kind. Raises what is wrong with it."""
    module, _, name = plugin["reference"].partition(":")
    if not name:
        raise ValueError(f"{plugin['reference']!r} names a module; valid: module:name")
    found = operator.attrgetter(name)(importlib.import_module(module))
    if plugin["kind"] == FRAMEWORK:
        _check_type(found, frameworks.Framework, plugin)
        _check_name(found.name, frameworks.FRAMEWORKS, plugin)
        _check_framework(found)
        frameworks.FRAMEWORKS[found.name] = replace(found, plugin=plugin)
    elif plugin["kind"] == MODEL:
        _check_type(found, models.ModelInfo, plugin)
        _check_name(found.name, models.MODELS, plugin)
        _check_reference("builder", found.builder)
        models.add(replace(found, plugin=plugin))
    return found


def _check_type(found: Any, kind: type, plugin: dict[str, str]) -> None:
    if not isinstance(found, kind):
        raise TypeError(f"{plugin['reference']} is of type {type(found).__name__}, not {kind.__name__}")


def _check_name(name: str, known: Any, plugin: dict[str, str]) -> None:
    if plugin["name"] != name:
        raise ValueError(f"the entry point is called {plugin['name']!r}, what it names calls itself {name!r}")
    if name != name.lower():
        raise ValueError(f"{name!r} has capitals; people may type them, names do not have them")
    if name not in known:
        return
    if known[name].plugin is None:
        raise ValueError(f"{name!r} is the name of a built-in")
    if known[name].plugin["reference"] != plugin["reference"]:
        raise ValueError(f"{name!r} is taken by another plug-in, {known[name].plugin['reference']}")


def _check_framework(found: frameworks.Framework) -> None:
    """What every command reads, so that a mistake in it is found here and not in the middle of a listing."""
    for name in ("adapter", "environment"):
        if name == "adapter" or found.environment:
            _check_reference(name, getattr(found, name))
    _check_names("imports", found.imports, None)
    _check_names("libraries", found.libraries, None)
    _check_names("precisions", found.precisions, frameworks.PRECISIONS)
    for name, table, valid in (
        ("engines", found.engines, frameworks.STRATEGIES),
        ("layouts", found.layouts, ("cpu", "cuda")),
    ):
        if not isinstance(table, dict) or not table:
            raise TypeError(f"{name} must be a dictionary that is not empty, not {table!r}")
        _check_names(name, tuple(table), valid)
    for device, layouts in found.layouts.items():
        _check_names(f"layouts of {device}", layouts, frameworks.LAYOUTS)
        if not layouts:
            raise ValueError(f"layouts of {device}: none is given; valid: {', '.join(frameworks.LAYOUTS)}")


def _check_reference(field: str, value: Any) -> None:
    if not isinstance(value, str) or value.startswith(".") or not all(value.partition(":")):
        raise ValueError(f"{field} {value!r} must be 'module:name', with the module's full name")


def _check_names(field: str, names: Any, valid: Iterable[str] | None) -> None:
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{field} must be a tuple of names, not {names!r}")
    for name in names:
        if valid is not None and name not in valid:
            raise ValueError(f"{field}: {name!r} is unknown; valid: {', '.join(valid)}")


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
        start = os.path.join(package, "__init__.py")  # noqa: PTH118
        if os.path.isfile(start):  # noqa: PTH113
            return importlib.util.spec_from_file_location(fullname, start, submodule_search_locations=[package])
        if not os.path.isdir(package):  # noqa: PTH112
            return importlib.util.spec_from_file_location(fullname, f"{package}.py")
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)  # a namespace: a folder without code
        spec.submodule_search_locations = [package]
        return spec
