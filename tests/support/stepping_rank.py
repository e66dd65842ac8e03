"""One rank that takes steps as it is told: a job and a list of actions come in, and what each action gave goes out.

A test starts it in the interpreter of a framework. The actions: ``step`` gives a loss, ``off`` and ``on`` switch
dropout, ``programs`` gives how many programs the step was compiled to (None where that is not known), ``statistics``
the sums of the running statistics, ``zeros`` the share of zeros that each dropout layer makes of ones, and ``drain``
nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from trainscale.worker import plugins
from trainscale.worker.data import source
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.job import WORKER, Job


def main() -> None:
    request = json.loads(sys.stdin.readline())
    job = Job.from_json(request["job"])
    plugins.use(job.plugins)
    adapter = FRAMEWORKS[job.config.framework].load(job)(job)
    adapter.join()
    adapter.build()
    if job.role != WORKER:
        adapter.serve()
        return
    batch = source.make_batch(job, adapter.place)
    results = [act(adapter, action, batch) for action in request["actions"]]
    Path(request["results"]).write_text(json.dumps({"can_switch": adapter.can_switch_dropout, "results": results}))
    adapter.leave()


def act(adapter: Any, action: str, batch: Any) -> Any:
    if action == "step":
        adapter.wait(adapter.step(batch))
        return adapter.loss()
    if action in ("off", "on"):
        return adapter.set_dropout(action == "on")
    if action == "programs":
        return programs(adapter)
    if action == "statistics":
        return {name: float(values.sum()) for name, values in adapter.statistics().items()}
    if action == "zeros":
        return shares_of_zeros(adapter)
    return getattr(adapter, action)()


def shares_of_zeros(adapter: Any) -> dict[str, float]:
    import numpy as np

    layers = [layer for layer in adapter.catalogue_graph.layers if layer.kind == "dropout"]
    ones = np.ones((100, 1000), np.float32)
    return {layer.name: float((adapter.drop(layer.name, ones) == 0).mean()) for layer in layers}


def programs(adapter: Any) -> int | None:
    """Return how many programs a step was compiled to, where the framework tells it."""
    if hasattr(adapter, "_program"):
        return int(adapter._program._cache_size())
    if hasattr(getattr(adapter, "_step", None), "experimental_get_tracing_count"):
        return int(adapter._step.experimental_get_tracing_count())
    if adapter.config.compile:
        import torch

        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    return None


main()
