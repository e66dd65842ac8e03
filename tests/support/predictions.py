"""What a network of a framework says of images when it is used, not trained. A program, run by the interpreter that has
the framework: it prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
_BATCH, _SIZE, _CLASSES = 8, 33, 7


def adapter_for(framework: str, layout: str, dropout: bool) -> Any:
    """One device with a network of all layer kinds, whose weights stay as they are."""
    from trainscale.worker.config import Config
    from trainscale.worker.frameworks.catalog import FRAMEWORKS
    from trainscale.worker.job import Device, Job

    config = Config(
        framework,
        "every-kind",
        _BATCH,
        "local",
        _SIZE,
        _CLASSES,
        layout=layout,
        learning_rate=0.0,
        weight_decay=0.0,
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
    company = plain.place(changed, labels)

    random_one = adapter_for(framework, layout, dropout=True)
    batch_there = random_one.place(images, labels)
    first, second = (np.array(random_one.predict(batch_there)) for _ in range(2))

    def apart(one: Any, other: Any) -> float:
        return float(np.abs(one - other).max() / np.abs(one).max())

    return {
        "from training, on the images of the statistics": apart(trained, used),
        "in other company": apart(used[0], np.array(plain.predict(company))[0]),
        "in other company, training": apart(trained[0], np.array(plain.logits(company)[0])[0]),
        "a second time, with dropout": apart(first, second),
        "of new statistics from old": apart(first, used),
    }


def ask(framework: str, layout: str = "nhwc") -> dict[str, float]:
    """For tests: the same in the interpreter that has the framework. How far apart logits are, of their largest."""
    import subprocess

    from environments import python_for

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])}
    command = [python_for(framework), __file__, framework, layout]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    import graph_nets

    graph_nets.register()
    print(json.dumps(main(*sys.argv[1:])))
