"""Frameworks that are PyTorch with a mistake, which a parity check must find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trainscale.worker import plugins
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.job import PluginReference

# Comparisons of frameworks have really contained these mistakes.
MISTAKES = (
    "no_decay", "other_eps", "transposed", "wider", "other_init", "dies", "nearly_the_eps", "other_momentum",
    "other_dropout", "unscaled_dropout", "frozen_biases", "missing_biases", "relu6", "wrong_pixels", "hidden_bf16",
    "hidden_tf32", "no_update_in_fp32", "frozen_scale_in_fp32", "other_momentum_in_fp32",
)  # fmt: skip


def _framework(mistake: str) -> Any:
    adapter = f"mistaken_frameworks.adapters:{mistake}"
    name = f"torch-{mistake.replace('_', '-')}"
    return replace(FRAMEWORKS["torch"], name=name, adapter=adapter, layouts={"cpu": ("nchw",)})


globals().update({mistake.upper(): _framework(mistake) for mistake in MISTAKES})


def register(mistake: str) -> str:
    """Add the framework with this mistake to the catalog and return its name."""
    name = f"torch-{mistake.replace('_', '-')}"
    reference = f"mistaken_frameworks:{mistake.upper()}"
    folder = str(Path(__file__).parent.parent)
    if name not in FRAMEWORKS:
        plugins.add(PluginReference("framework", name, reference, folder))
    return name
