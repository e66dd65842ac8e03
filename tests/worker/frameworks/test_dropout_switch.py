"""Dropout is switched off and on in the program that is timed, in every framework and strategy."""

import json
import math
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import graph_nets
import pytest
from environments import python_for
from forked_frameworks import start_program
from forked_keepers import ForkedProcess
from jobs import make_config, make_job
from packages import EXAMPLE

from trainscale.worker.job import SCHEDULER, SERVER, WORKER, Job, PluginReference
from trainscale.worker.listening import find_free_ports

pytestmark = pytest.mark.framework

SOURCE = Path(graph_nets.__file__).parents[2] / "src"
SUPPORT = Path(graph_nets.__file__).parent
MODEL = PluginReference("model", "every-kind", "graph_nets:EVERY_KIND", str(SUPPORT))
NUMPY = PluginReference("framework", "numpy", "trainscale_example.frameworks:NUMPY", str(EXAMPLE))

SLOW = pytest.mark.slow
FAST = ("torch", "tensorflow", "jax", "keras-torch", "keras-tensorflow", "mxnet", "numpy")
OTHERS = {
    "torch": ("allreduce", "sharded", "ps", "ps-async"),
    "tensorflow": ("allreduce", "ps", "ps-async"),
    "jax": ("sharded",),
    "keras-jax": ("local",),
    "keras-tensorflow": ("allreduce",),
    "mxnet": ("ps", "ps-async"),
}
ONE_WORKER = [
    *((framework, "local") for framework in FAST),
    *(pytest.param(name, strategy, marks=SLOW) for name, each in OTHERS.items() for strategy in each),
]
TWO_WORKERS = [
    ("tensorflow", "allreduce"),
    ("jax", "allreduce"),
    ("jax", "sharded"),
    ("keras-tensorflow", "allreduce"),
    ("keras-jax", "allreduce"),
]
ACTIONS = ["off", "step", "step", "programs", "on", "zeros", "step", "programs", "counted_updates"]
# Where nobody but the adapter counts updates, or a worker may not have the newest count.
UNCOUNTED = (("torch", "ps-async"), ("mxnet", "ps"), ("mxnet", "ps-async"), ("numpy", "local"))


def take(folder: Path, job: Job, actions: list[str]) -> list[dict[str, Any]]:
    """Start all ranks of a job, and return what the actions gave on each worker."""
    ranks = _ranks(job)
    processes = [_start(folder, rank, actions) for rank in ranks]
    try:
        for rank, process in zip(ranks, processes, strict=True):
            code = process.wait(300)
            if rank.role == WORKER:
                assert code == 0, (folder / f"rank{rank.rank}.log").read_text()[-2000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(job.workers)]


def _start(folder: Path, job: Job, actions: list[str]) -> subprocess.Popen[bytes] | ForkedProcess:
    interpreter = python_for("torch" if job.config.framework == "numpy" else job.config.framework)
    request = {"job": job.to_json(), "actions": actions, "results": str(folder / f"rank{job.rank}.json")}
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(SOURCE)}
    program = [str(SUPPORT / "stepping_rank.py")]
    process = start_program(interpreter, job, program, environment, folder / f"rank{job.rank}")
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.close()
    return process


def _ranks(job: Job) -> list[Job]:
    scheduled = bool(job.servers) and job.config.framework == "mxnet"
    roles = [WORKER] * job.workers + [SERVER] * job.servers + [SCHEDULER] * scheduled
    ports = tuple(find_free_ports(len(roles)))
    addresses = ("127.0.0.1",) * len(roles)
    return [replace(job, role=role, rank=rank, addresses=addresses, ports=ports) for rank, role in enumerate(roles)]


def job_of(framework: str, strategy: str, workers: int = 1, dropout: bool = True, **values: Any) -> Job:
    network = {"model": "every-kind", "image_size": 33, "classes": 7}
    config = make_config(strategy, framework=framework, servers=int("ps" in strategy), **network, **values)
    used = (MODEL, NUMPY) if framework == "numpy" else (MODEL,)
    ranks = {"workers": workers, "servers": config.servers, "interface": "lo"}
    return make_job(config=config, plugins=used, dropout=dropout, **ranks)


@pytest.fixture(scope="module")
def losses_without(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The losses of a framework's build that has no dropout layers."""

    @cache
    def losses(framework: str) -> list[float]:
        folder = tmp_path_factory.mktemp("without")
        (rank,) = take(folder, job_of(framework, "local", dropout=False), ["step"] * 3)
        values: list[float] = rank["results"]
        return values

    return losses


def check(rank: dict[str, Any], expected: list[float], steps: int) -> None:
    """Check that the first steps had no dropout and the last one had."""
    assert rank["can_switch"]
    _, first, second, compiled, _, shares, last, compiled_later, _ = rank["results"]
    assert compiled == compiled_later
    for loss, without in list(zip((first, second), expected, strict=False))[:steps]:
        assert loss == pytest.approx(without, rel=2e-6)
    assert last != pytest.approx(expected[2], rel=1e-4)
    assert math.isfinite(last)
    if shares is not None:
        assert shares == {"dropout1": pytest.approx(0.5, abs=5 * math.sqrt(0.25 / 100_000))}


@pytest.mark.parametrize(("framework", "strategy"), ONE_WORKER)
def test_switched_off_it_trains_as_without_dropout(
    tmp_path: Path, losses_without: Any, framework: str, strategy: str
) -> None:
    job = job_of(framework, strategy)
    # Sessions of parameter servers do not run single layers.
    actions = [action if strategy in ("local", "allreduce") or action != "zeros" else "drain" for action in ACTIONS]
    (rank,) = take(tmp_path, job, actions)
    check(rank, losses_without(framework), steps=2)
    assert rank["results"][-1] == (None if (framework, strategy) in UNCOUNTED else 3)


@SLOW
@pytest.mark.parametrize(("framework", "strategy"), TWO_WORKERS)
def test_each_of_two_ranks_switches_its_own(tmp_path: Path, losses_without: Any, framework: str, strategy: str) -> None:
    """The second step has the gradients of both ranks, so only the first is compared."""
    actions = ["drain" if action == "zeros" else action for action in ACTIONS]
    first, second = take(tmp_path, job_of(framework, strategy, workers=2), actions)
    check(first, losses_without(framework), steps=1)
    assert second["results"][1] != first["results"][1]
    assert [rank["results"][-1] for rank in (first, second)] == [3, 3]


@SLOW
@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax", "keras-tensorflow", "keras-jax"])
def test_a_compiled_step_is_not_compiled_again(tmp_path: Path, losses_without: Any, framework: str) -> None:
    actions = ["step", "off", "step", "on", "step", "step", "programs"]
    (rank,) = take(tmp_path, job_of(framework, "local", compile=framework in ("torch", "tensorflow")), actions)
    assert rank["results"][-1] == 1


@SLOW
@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax", "keras-torch", "keras-tensorflow", "keras-jax"])
def test_it_also_switches_in_bfloat16(tmp_path: Path, losses_without: Any, framework: str) -> None:
    actions = ["off", "step", "on", "step", "step"]
    (rank,) = take(tmp_path, job_of(framework, "local", precision="bf16"), actions)
    assert rank["results"][1] == pytest.approx(losses_without(framework)[0], rel=2e-2)
    assert all(math.isfinite(rank["results"][place]) for place in (3, 4))
