"""The one document that tells a process all it needs to know."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trainscale.worker.config import Config
from trainscale.worker.job import (
    Device,
    EndTasksRequest,
    Job,
    Measure,
    PortsRequest,
    SignalRequest,
    Task,
    TasksRequest,
    decode_request,
    encode_request,
)

JOB = Job(
    role="worker",
    rank=1,
    workers=2,
    servers=1,
    addresses=("10.0.0.1", "10.0.0.2", "10.0.0.1"),
    ports=(5000, 5002, 5003),
    rendezvous_port=5001,
    device=Device("cpu", 1, (2, 3)),
    config=Config("torch", 'a\'; echo foo "ü"\n', 8, "ps", 28, 10, servers=1),
    batch=8,
    measure=Measure(3, 7, 2.5),
    interface="lo",
    python_path=("/a folder", "/b"),
    seed=11,
    save_weights="/tmp/weights",
)


@pytest.mark.parametrize(
    "job",
    [JOB, replace(JOB, measure=Measure(), interface=None, python_path=(), save_weights=None, device=Device("cuda", 3))],
    ids=["all set", "defaults"],
)
def test_a_job_survives_its_json(job: Job) -> None:
    again = Job.from_json(job.to_json())
    assert again == job
    assert hash(again.device) == hash(job.device)  # cores came back as a tuple
    assert isinstance(again.addresses, tuple)


def test_a_job_is_one_line() -> None:
    text = JOB.to_json()
    assert "\n" not in text
    assert json.loads(text)["rank"] == 1


def test_the_world_is_workers_and_servers_and_rank_0_coordinates() -> None:
    assert JOB.world == 3
    assert JOB.coordinator == "10.0.0.1"


@pytest.mark.parametrize(
    ("strategy", "asynchronous"),
    [
        ("local", False),
        ("allreduce", False),
        ("ps", False),
        ("sharded", False),
        ("ps-async", True),
        ("independent", True),
    ],
)
def test_which_strategies_keep_their_ranks_in_step(strategy: str, asynchronous: bool) -> None:
    assert replace(JOB, config=replace(JOB.config, strategy=strategy)).is_asynchronous is asynchronous


def test_requests_survive_their_lines() -> None:
    tasks = (Task("node1", 0, ["PYTHON", "START"], JOB.to_json(), folder="/a"), Task("node1", 1, ["true"], gpu=1))
    for request in (TasksRequest(tasks, 60.0, 2.5, True), PortsRequest(3), SignalRequest(15), EndTasksRequest()):
        assert decode_request(encode_request(request)) == request
