"""Networks as a user writes them in JAX, and networks that go wrong. Only ranks import this."""

from __future__ import annotations

import os
import signal
from typing import Any

import jax
import numpy as np


def _plain(classes: int, channels: int = 3) -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {
        "conv": {"kernel": random.normal(0, 0.2, (3, 3, channels, 8)).astype(np.float32)},
        "heads": [random.normal(0, 0.1, (8, classes)).astype(np.float32) for _ in range(2)],
    }


def _logits(parameters: dict[str, Any], images: jax.Array) -> tuple[jax.Array, ...]:
    x = jax.lax.conv_general_dilated(
        images, parameters["conv"]["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = jax.nn.relu(x).mean((1, 2))
    return tuple(x @ head for head in parameters["heads"])


def two_heads(classes: int) -> tuple[Any, Any]:
    return _plain(classes), _logits


def not_a_pair() -> str:
    return "surprise"


def whole_numbers() -> tuple[Any, Any]:
    return {"w": np.zeros(3, np.int32)}, lambda parameters, images: images


def raises(classes: int) -> tuple[Any, Any]:
    def apply(parameters: Any, images: jax.Array) -> Any:
        if jax.process_index() == 1:
            raise ValueError("the network of rank 1 does not like this image")
        return _logits(parameters, images)

    return _plain(classes), apply


def killed(classes: int) -> tuple[Any, Any]:
    """Its second process is gone in the fourth step, in the middle of a program."""
    steps = []

    def count_and_kill(pixel: Any) -> Any:
        steps.append(pixel)
        if len(steps) == 4 and jax.process_index() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return pixel

    def apply(parameters: Any, images: jax.Array) -> Any:
        pixel = jax.pure_callback(count_and_kill, jax.ShapeDtypeStruct((), images.dtype), images[0, 0, 0, 0])
        return _logits(parameters, images.at[0, 0, 0, 0].set(pixel))

    return _plain(classes), apply
