"""Predictions of a framework's network, outside of training. The interpreter that has the framework runs this program,
which prints one line of JSON. Differences of logits are relative to the largest.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

_BATCH, _SIZE, _CLASSES = 8, 33, 7


def adapter_for(framework: str, layout: str, dropout: bool) -> Any:
    """Return an adapter of one device with a network of all layer kinds, whose weights do not change."""
    from trainscale.worker.config import Config
    from trainscale.worker.frameworks.catalog import FRAMEWORKS
    from trainscale.worker.job import Device, Job

    config = Config(
        framework, "every-kind", _BATCH, "local", _SIZE, _CLASSES, layout=layout, learning_rate=0.0, weight_decay=0.0
    )
    device = Device(cores=tuple(sorted(os.sched_getaffinity(0))[:1]))
    job = Job("worker", 0, 1, 0, ("127.0.0.1",), (0,), 0, device, config, _BATCH, dropout=dropout)
    adapter = FRAMEWORKS[framework].load(job)(job)
    adapter.join()
    adapter.build()
    return adapter


def main(framework: str, layout: str) -> dict[str, float]:
    random = np.random.default_rng(0)
    images, others = random.normal(size=(2, _BATCH, 3, _SIZE, _SIZE)).astype(np.float32) + 1
    labels = np.arange(_BATCH) % _CLASSES
    changed = np.concatenate([images[:1], others[1:]])

    plain = adapter_for(framework, layout, dropout=False)
    batch = plain.place(images, labels)
    for _ in range(100):  # the running statistics become those of these images
        plain.wait(plain.step(batch))
    trained = np.array(plain.logits(batch)[0])
    used = np.array(plain.predict(batch))
    changed_batch = plain.place(changed, labels)

    with_dropout = adapter_for(framework, layout, dropout=True)
    batch_there = with_dropout.place(images, labels)
    first, second = (np.array(with_dropout.predict(batch_there)) for _ in range(2))

    def difference(first: Any, second: Any) -> float:
        return float(np.abs(first - second).max() / np.abs(first).max())

    return {
        "from training, on the images of the statistics": difference(trained, used),
        "with other images in the batch": difference(used[0], np.array(plain.predict(changed_batch))[0]),
        "with other images in the batch, training": difference(trained[0], np.array(plain.logits(changed_batch)[0])[0]),
        "a second time, with dropout": difference(first, second),
        "between new and old statistics": difference(first, used),
    }


if __name__ == "__main__":
    import graph_nets

    graph_nets.register()
    print(json.dumps(main(*sys.argv[1:])))
