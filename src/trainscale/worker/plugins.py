"""Loads the frameworks and models of third parties in a process that trains.

The controller finds plug-ins (launch/plugins.py), and a job carries those that it needs. A
package that an environment does not have is imported from the folder that the job names.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import operator
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .frameworks import catalog as frameworks
from .job import PluginReference
from .models import catalog as models

FRAMEWORK, MODEL, LAUNCHER = "framework", "model", "launcher"


def use(plugins: Iterable[PluginReference], python_path: Sequence[str] = ()) -> None:
    """Add plug-ins, after cores have been chosen: they may import numpy."""
    sys.path[:0] = python_path
    for plugin in plugins:
        if plugin.folder and importlib.util.find_spec(plugin.package) is None:
            # Not by sys.path, because a plug-in's neighbours belong to another environment.
            spec = importlib.machinery.PathFinder.find_spec(plugin.package, [plugin.folder])
            if spec is not None:
                module = sys.modules[plugin.package] = importlib.util.module_from_spec(spec)
                assert spec.loader is not None
                spec.loader.exec_module(module)
        add(plugin)


def add(plugin: PluginReference) -> Any:
    module, _, name = plugin.reference.partition(":")
    if not name:
        raise ValueError(f"{plugin.reference!r} names a module; valid: module:name")
    loaded = operator.attrgetter(name)(importlib.import_module(module))
    if plugin.kind == FRAMEWORK:
        _check_type_and_name(loaded, frameworks.Framework, frameworks.FRAMEWORKS, plugin)
        _check_framework(loaded)
        frameworks.FRAMEWORKS[loaded.name] = replace(loaded, plugin=plugin)
    elif plugin.kind == MODEL:
        _check_type_and_name(loaded, models.ModelInfo, models.MODELS, plugin)
        _check_reference("builder", loaded.builder)
        models.add(replace(loaded, plugin=plugin))
    return loaded


def _check_type_and_name(loaded: Any, kind: type[Any], known: Any, plugin: PluginReference) -> None:
    if not isinstance(loaded, kind):
        raise TypeError(f"{plugin.reference} is of type {type(loaded).__name__}, not {kind.__name__}")
    name = loaded.name
    if plugin.name != name:
        raise ValueError(f"the entry point is called {plugin.name!r}, what it names calls itself {name!r}")
    if name != name.lower():
        raise ValueError(f"{name!r} has capitals; people may type them, names do not have them")
    if name in known and known[name].plugin is None:
        raise ValueError(f"{name!r} is the name of a built-in")
    if name in known and known[name].plugin.reference != plugin.reference:
        raise ValueError(f"{name!r} is taken by another plug-in, {known[name].plugin.reference}")


def _check_framework(framework: frameworks.Framework) -> None:
    _check_reference("adapter", framework.adapter)
    # A plug-in may be one of ours with another adapter, and then has our environment.
    if framework.environment not in ("", *(known.environment for known in frameworks.FRAMEWORKS.values())):
        _check_reference("environment", framework.environment)
    for field in ("engines", "layouts"):
        table = getattr(framework, field)
        if not isinstance(table, dict) or not table:
            raise TypeError(f"{field} must be a dictionary that is not empty, not {table!r}")
    for field, names, valid in (
        ("imports", framework.imports, None),
        ("libraries", framework.libraries, None),
        ("precisions", framework.precisions, frameworks.PRECISIONS),
        ("engines", tuple(framework.engines), frameworks.STRATEGIES),
        ("layouts", tuple(framework.layouts), ("cpu", "cuda")),
        *((f"layouts of {device}", names, frameworks.LAYOUTS) for device, names in framework.layouts.items()),
    ):
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"{field} must be a tuple of names, not {names!r}")
        for name in names:
            if valid is not None and name not in valid:
                raise ValueError(f"{field}: {name!r} is unknown; valid: {', '.join(valid)}")
    for device, layouts in framework.layouts.items():
        if not layouts:
            raise ValueError(f"layouts of {device}: none is given; valid: {', '.join(frameworks.LAYOUTS)}")


def _check_reference(field: str, value: Any) -> None:
    if not isinstance(value, str) or value.startswith(".") or not all(value.partition(":")):
        raise ValueError(f"{field} {value!r} must be 'module:name', with the module's full name")
