"""Networks, each defined once as a graph. `worker/frameworks/` builds them natively."""

from __future__ import annotations

from .builder import Builder
from .catalog import (
    CROSS_ENTROPY,
    IMAGES,
    MODELS,
    ModelInfo,
    Samples,
    TrainingDefaults,
    build,
    find_samples,
    find_training_defaults,
    list_names,
    resolve,
)
from .graph import BATCH_NORM_EPS, BATCH_NORM_MOMENTUM, KINDS, Graph, Head, Layer, Parameter, ShapeError
from .weights import initial_weights

__all__ = [
    "BATCH_NORM_EPS", "BATCH_NORM_MOMENTUM", "CROSS_ENTROPY", "IMAGES", "KINDS", "MODELS", "Builder", "Graph", "Head",
    "Layer", "ModelInfo", "Parameter", "Samples", "ShapeError", "TrainingDefaults", "build", "find_samples",
    "find_training_defaults", "initial_weights", "list_names", "resolve",
]  # fmt: skip
