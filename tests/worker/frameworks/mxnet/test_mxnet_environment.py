"""What MXNet is told before it is imported."""

from __future__ import annotations

import os

import pytest
from jobs import make_job

from trainscale.worker.frameworks.mxnet.environment import environment
from trainscale.worker.job import SCHEDULER, SERVER, WORKER, Device, Job


def job(strategy: str, role: str = WORKER, rank: int = 0, device: Device | None = None) -> Job:
    return make_job(
        strategy,
        role=role,
        rank=rank,
        workers=2,
        servers=1,
        addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"),
        ports=(1001, 1002, 1003, 1004),
        device=device or Device(cores=(2, 3)),
        interface="lo",
    )


@pytest.mark.parametrize("strategy", ["local", "independent"])
def test_without_servers_there_is_no_word_of_a_cluster(strategy: str) -> None:
    assert not [name for name in environment("mxnet", job(strategy)) if name.startswith("DMLC")]


def test_a_role_that_the_user_left_in_the_environment_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even an empty one makes MXNet wait for a cluster when it is imported."""
    monkeypatch.setenv("DMLC_ROLE", "")
    environment("mxnet", None)
    assert "DMLC_ROLE" not in os.environ


@pytest.mark.parametrize(("role", "rank"), [(WORKER, 1), (SERVER, 2), (SCHEDULER, 3)])
@pytest.mark.parametrize("strategy", ["ps", "ps-async"])
def test_every_process_of_a_cluster_knows_its_role_and_the_scheduler(strategy: str, role: str, rank: int) -> None:
    variables = environment("mxnet", job(strategy, role, rank))
    assert variables["DMLC_ROLE"] == role
    assert (variables["DMLC_PS_ROOT_URI"], variables["DMLC_PS_ROOT_PORT"]) == ("10.0.0.4", "1004")
    assert (variables["DMLC_NUM_WORKER"], variables["DMLC_NUM_SERVER"]) == ("2", "1")
    assert (variables["DMLC_INTERFACE"], variables["DMLC_NODE_HOST"]) == ("lo", f"10.0.0.{rank + 1}")
    assert variables["PORT"] == str(1001 + rank)


def test_threads_are_as_many_as_cores() -> None:
    assert environment("mxnet", job("local"))["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(("given", "seen"), [(None, "1"), ("4,7", "7")])
def test_a_rank_sees_its_own_gpu_only(monkeypatch: pytest.MonkeyPatch, given: str | None, seen: str) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert environment("mxnet", job("local", device=Device("cuda", 1)))["CUDA_VISIBLE_DEVICES"] == seen
