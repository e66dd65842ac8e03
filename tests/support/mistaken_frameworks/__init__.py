"""Frameworks that are PyTorch with a mistake, which a parity check must find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trainscale.worker import plugins
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.job import PluginReference


def __getattr__(mistake: str) -> Any:
    """Return the framework with this mistake: the name of an adapter in adapters.py, in capitals."""
    if not mistake.isupper():
        raise AttributeError(mistake)
    adapter = f"{__name__}.adapters:{mistake.lower()}"
    name = f"torch-{mistake.lower().replace('_', '-')}"
    return replace(FRAMEWORKS["torch"], name=name, adapter=adapter, layouts={"cpu": ("nchw",)})


def register(mistake: str) -> str:
    """Add the framework with this mistake to the catalog and return its name."""
    name = f"torch-{mistake.replace('_', '-')}"
    if name not in FRAMEWORKS:
        folder = str(Path(__file__).parent.parent)
        reference = f"{__name__}:{mistake.upper()}"
        plugins.add(PluginReference("framework", name, reference, folder))
    return name
