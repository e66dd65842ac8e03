"""Which interpreter runs which framework: the one a person named, this one, or that of an environment."""

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
    """An interpreter, where it was found in words, and the name of the environment it is of, if any."""

    python: str
    source: str
    environment: str = ""


def find_interpreter(framework: str, given: Mapping[str, str]) -> Interpreter:
    """Nothing is started: whether the framework works there is for the probe to say."""
    if framework in given:
        return Interpreter(given[framework], GIVEN)
    modules = FRAMEWORKS[framework].imports
    if all(_is_here(module) for module in modules):
        return Interpreter(sys.executable, HERE)
    # One that is made for this framework alone before one that is shared.
    for environment in sorted(list_environments(), key=lambda one: one.name != framework):
        if environment.usable and environment.has(modules):
            return Interpreter(environment.python, f"environment {environment.name}", environment.name)
    return Interpreter(sys.executable, HERE)  # which lacks it; the probe says so, and how to get it


def choose_pythons(frameworks: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """The interpreter of each framework. On other hosts this is where to look first: they may share a file system."""
    return {
        name.lower(): find_interpreter(name.lower(), given).python for name in frameworks if name.lower() in FRAMEWORKS
    }


def _is_here(module: str) -> bool:
    """Without importing it. A folder of that name without code, such as one in the current directory, is no module."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
