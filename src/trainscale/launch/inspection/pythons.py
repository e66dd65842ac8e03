"""Chooses the interpreter for each framework: the one a person named, this one, or that of an environment."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...cluster.environments import list_environments
from ...worker.frameworks.catalog import FRAMEWORKS

HERE, GIVEN = "this Python", "given by --python"


@dataclass(frozen=True)
class Interpreter:
    """``source`` describes where it was found; ``environment`` is the name of the environment it belongs to, if any."""

    python: str
    source: str
    environment: str = ""


def find_interpreter(framework: str, given: Mapping[str, str]) -> Interpreter:
    """Find an interpreter without starting it. The probe tests later whether the framework works there."""
    if framework in given:
        return Interpreter(given[framework], GIVEN)
    modules = FRAMEWORKS[framework].imports
    if all(_is_installed(module) for module in modules):
        return Interpreter(sys.executable, HERE)
    # An environment for this framework alone comes before a shared one.
    for environment in sorted(list_environments(), key=lambda environment: environment.name != framework):
        if environment.is_usable and environment.has(modules):
            return Interpreter(environment.python, f"environment {environment.name}", environment.name)
    return Interpreter(sys.executable, HERE)  # it lacks the framework; the probe reports that, and how to install it


def choose_pythons(frameworks: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the interpreter of each framework. Other hosts try it first, because they may share a file system."""
    names = [name.lower() for name in frameworks]
    return {name: find_interpreter(name, given).python for name in names if name in FRAMEWORKS}


def _is_installed(module: str) -> bool:
    """Return whether this Python has the module, without importing it. A folder of that name without code does not
    count; there may be one in the current directory.
    """
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
