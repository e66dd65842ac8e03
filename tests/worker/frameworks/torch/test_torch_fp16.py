"""Momentum in fp16, where the loss scale may skip the first step."""

import math

import numpy as np
import pytest
from jobs import make_config, make_job

from trainscale.worker.data import source
from trainscale.worker.frameworks.catalog import FRAMEWORKS

pytestmark = pytest.mark.framework


def test_a_skipped_first_step_leaves_no_garbage_in_the_momentum() -> None:
    """Fused SGD allocates it in the first step. By this setting, PyTorch fills such memory with NaN."""
    import torch

    config = make_config(model="mnist", image_size=28, channels=1, precision="fp16", deterministic=True)
    job = make_job(config=config, batch=4)
    adapter = FRAMEWORKS["torch"].load(job)(job)
    try:
        adapter.build()
        images, labels = source.make_batch(job, lambda *arrays: arrays)
        adapter.step(adapter.place(np.full_like(images, 1e30), labels))
        assert adapter.skipped_updates() == 1
        losses = []
        for _ in range(6):
            adapter.step(adapter.place(images, labels))
            losses.append(adapter.loss())
        assert all(map(math.isfinite, losses))
        assert losses[-1] != losses[0]
    finally:
        torch.use_deterministic_algorithms(False)
