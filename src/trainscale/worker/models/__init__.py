"""Networks, each defined once as a framework-neutral graph. `worker/frameworks/` builds them natively."""

from __future__ import annotations

from .builder import Builder
from .catalog import MODELS, ModelInfo, build, names, resolve, samples_of, training_defaults_of
from .declarations import CROSS_ENTROPY, IMAGES, Samples, TrainingDefaults
from .graph import BATCH_NORM_EPS, BATCH_NORM_MOMENTUM, KINDS, Graph, Head, Layer, Parameter, ShapeError
from .weights import initial_weights

__all__ = [
    "BATCH_NORM_EPS",
    "BATCH_NORM_MOMENTUM",
    "CROSS_ENTROPY",
    "IMAGES",
    "KINDS",
    "MODELS",
    "Builder",
    "Graph",
    "Head",
    "Layer",
    "ModelInfo",
    "Parameter",
    "Samples",
    "ShapeError",
    "TrainingDefaults",
    "build",
    "initial_weights",
    "names",
    "resolve",
    "samples_of",
    "training_defaults_of",
]
