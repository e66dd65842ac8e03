"""What a network declares besides its layers: the samples that it takes, its loss, and its training defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config

CROSS_ENTROPY = "cross-entropy"  # of softmax; a label is the number of a class


@dataclass(frozen=True)
class Samples:
    """What a network is trained on: its samples, the unit in which throughput counts them, and the loss."""

    unit: str = "images"
    dtype: str = "float32"
    loss: str = CROSS_ENTROPY

    def shape(self, config: Config) -> tuple[int, ...]:
        """Return the shape of one sample, without the batch: channels, height, width."""
        return config.channels, config.image_size, config.image_size


@dataclass(frozen=True)
class TrainingDefaults:
    """How a network is trained to an accuracy unless the experiment says otherwise."""

    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    schedule: str = "constant"


IMAGES = Samples()
USUAL_TRAINING = TrainingDefaults()
