"""Losses on the host, for the validation set. A network declares its loss (models/catalog.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..models import CROSS_ENTROPY


def cross_entropy(logits: Any, labels: Any) -> tuple[float, int]:
    """Return the sum of the softmax cross-entropy losses and the number of correct predictions."""
    import numpy as np

    shifted = logits - logits.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(labels)), labels]
    losses = np.log(np.exp(shifted).sum(axis=1)) - chosen
    return float(losses.sum()), int((logits.argmax(axis=1) == labels).sum())


LOSSES: dict[str, Callable[[Any, Any], tuple[float, int]]] = {CROSS_ENTROPY: cross_entropy}
