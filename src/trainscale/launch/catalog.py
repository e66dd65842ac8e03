"""The launchers there are, by name. One is imported when it is used."""

from __future__ import annotations

import importlib

from .base import Launcher

LAUNCHERS: dict[str, str] = {"local": "local:LocalLauncher"}


def launcher(name: str) -> Launcher:
    module, kind = LAUNCHERS[name].split(":")
    found: type[Launcher] = getattr(importlib.import_module(f".{module}", __package__), kind)
    return found()
