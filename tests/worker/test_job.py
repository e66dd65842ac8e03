"""The one document that tells a process all it needs to know."""

import math
from dataclasses import replace
from typing import Any

import pytest

from trainscale.worker.config import (
    ALLOCATORS,
    SYSTEM,
    TUNED,
    Config,
    check_schedule,
    compute_learning_rate,
    select_allocator_variables,
)
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
    text = job.to_json()
    again = Job.from_json(text)
    assert (again, "\n" in text) == (job, False)
    assert hash(again.device) == hash(job.device)  # cores came back as a tuple
    assert isinstance(again.addresses, tuple)
    assert (again.world, again.coordinator) == (3, "10.0.0.1")


def test_which_strategies_do_not_keep_their_ranks_in_step() -> None:
    strategies = ("local", "allreduce", "ps", "sharded", "ps-async", "independent")
    jobs = [replace(JOB, config=replace(JOB.config, strategy=strategy)) for strategy in strategies]
    assert [job.config.strategy for job in jobs if job.is_asynchronous] == ["ps-async", "independent"]


def test_requests_survive_their_lines() -> None:
    tasks = (Task("node1", 0, ["PYTHON", "START"], JOB.to_json(), folder="/a"), Task("node1", 1, ["true"], gpu=1))
    for request in (TasksRequest(tasks, 60.0, 2.5, True), PortsRequest(3), SignalRequest(15), EndTasksRequest()):
        line = encode_request(request)
        assert (decode_request(line), line.count(b"\n")) == (request, 1)


# ---- what a config says of the learning rate and of the allocator

EACH = 10  # updates an epoch


def make_schedule(rate: float, **values: Any) -> Config:
    return Config("torch", "mnist", 8, "local", 28, 10, learning_rate=rate, **values)


def rates(config: Config, epochs: int) -> list[float]:
    return [compute_learning_rate(config, update, EACH) for update in range(epochs * EACH)]


def test_a_constant_rate_is_constant_and_so_is_every_rate_without_epochs() -> None:
    assert set(rates(make_schedule(0.1, epochs=3), 3)) == {0.1}
    assert compute_learning_rate(make_schedule(0.1, schedule="cosine"), 1_000_000, 0) == 0.1


def test_steps_multiply_the_rate_from_their_epoch_on_by_a_tenth_unless_told_otherwise() -> None:
    learning_rates = rates(make_schedule(1.0, epochs=4, schedule="step:1,3:0.5"), 4)
    assert learning_rates == [1.0] * 10 + [0.5] * 20 + [0.25] * 10
    assert rates(make_schedule(1.0, epochs=2, schedule="step:1"), 2)[-1] == pytest.approx(0.1)


def test_a_cosine_falls_to_nothing_at_the_last_epoch() -> None:
    learning_rates = rates(make_schedule(1.0, epochs=2, schedule="cosine"), 2)
    assert learning_rates[0] == 1.0
    assert learning_rates[10] == pytest.approx(0.5)
    assert learning_rates == sorted(learning_rates, reverse=True)
    assert learning_rates[-1] == pytest.approx(0.5 * (1 + math.cos(math.pi * 19 / 20)))


def test_the_warm_up_rises_in_a_straight_line() -> None:
    learning_rates = rates(make_schedule(1.0, epochs=3, warmup_epochs=0.5), 1)
    assert learning_rates == pytest.approx([0.2, 0.4, 0.6, 0.8, *[1.0] * 6])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear", "'linear' is not a schedule"),
        ("cosine:3", "is not a schedule"),
        ("step", "is not a schedule"),
        ("step:3:0.1:7", "is not a schedule"),
        ("step:x", "must be numbers"),
        ("step:60,30", "must rise"),
        ("step:0", "must rise"),
        ("step:30:2", "between 0 and 1"),
    ],
)
def test_what_is_no_schedule_is_told_with_what_is(text: str, message: str) -> None:
    for valid in ("constant", "cosine", "step:30", "step:30,60", "step:0.5,1:0.3", " Cosine "):
        assert check_schedule(valid) == valid.strip().lower()
    with pytest.raises(ValueError, match=message) as caught:
        check_schedule(text)
    assert "valid: constant, cosine, step:30,60" in str(caught.value)


def test_the_variables_of_the_c_allocator_are_named_and_no_others() -> None:
    own = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "LD_PRELOAD": "libjemalloc.so.2", "MALLOC_ARENA_MAX": "1"}
    others = {"PATH": "/bin", "PYTHONMALLOC": "malloc", "LD_LIBRARY_PATH": "/lib"}
    assert select_allocator_variables({**others, **own}) == own
    assert list(select_allocator_variables({**own, **others})) == sorted(own)
    assert select_allocator_variables(ALLOCATORS[TUNED]) == ALLOCATORS[TUNED]
    assert (len(ALLOCATORS[TUNED]), ALLOCATORS[SYSTEM]) == (3, {})
