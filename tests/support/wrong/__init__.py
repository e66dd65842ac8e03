"""PyTorch with a mistake in it, as a framework of its own: what a parity check is there to find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trainscale.worker import plugins
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.plugin_reference import PluginReference

# Each is a mistake that was really made in some comparison of frameworks.
MISTAKES = ("no_decay", "other_eps", "transposed", "wider", "other_init", "dies")


def _framework(mistake: str) -> Any:
    adapter = f"wrong.adapters:{mistake}"
    name = f"torch-{mistake.replace('_', '-')}"
    return replace(FRAMEWORKS["torch"], name=name, adapter=adapter, layouts={"cpu": ("nchw",)})


NO_DECAY, OTHER_EPS, TRANSPOSED, WIDER, OTHER_INIT, DIES = map(_framework, MISTAKES)


def register(mistake: str) -> str:
    """The name under which the mistaken framework can be asked for."""
    name = f"torch-{mistake.replace('_', '-')}"
    reference = f"wrong:{mistake.upper()}"
    folder = str(Path(__file__).parent.parent)
    if name not in FRAMEWORKS:
        plugins.add(PluginReference("framework", name, reference, folder))
    return name
