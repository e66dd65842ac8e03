"""Packages that only some exports need. They are imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import TrainscaleError


def import_package(name: str, purpose: str, distribution: str = "") -> Any:
    """Import a package. If it is missing, the error says what needs it and how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TrainscaleError(
            f"{purpose} needs the package {name}, which cannot be imported ({error})\n"
            f"  install it: pip install {distribution or name}"
        ) from None
