"""What TensorFlow is told before it is imported."""

from __future__ import annotations

import pytest
from jobs import make_job

from trainscale.worker.frameworks.tensorflow.environment import environment
from trainscale.worker.job import Device, Job


def job(device: Device, role: str = "worker", strategy: str = "local") -> Job:
    return make_job(strategy, role=role, device=device)


def test_threads_are_as_many_as_the_cores() -> None:
    variables = environment("tensorflow", job(Device("cpu", 0, (2, 3, 5))))
    assert variables["TF_NUM_INTRAOP_THREADS"] == "3"


def test_without_cores_of_its_own_a_rank_leaves_threads_to_tensorflow() -> None:
    assert "TF_NUM_INTRAOP_THREADS" not in environment("tensorflow", job(Device("cpu")))


@pytest.mark.parametrize(("given", "seen"), [(None, "1"), ("", "1"), ("4,7", "7"), ("GPU-aa,GPU-bb", "GPU-bb")])
def test_a_rank_sees_its_own_gpu_among_those_it_was_given(
    monkeypatch: pytest.MonkeyPatch, given: str | None, seen: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert environment("tensorflow", job(Device("cuda", 1)))["CUDA_VISIBLE_DEVICES"] == seen


def test_a_gpu_that_was_not_given_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    with pytest.raises(ValueError, match="GPU 1 is not among CUDA_VISIBLE_DEVICES=4"):
        environment("tensorflow", job(Device("cuda", 1)))


@pytest.mark.parametrize(("kind", "role"), [("cpu", "worker"), ("cuda", "server")])
def test_who_computes_on_cores_sees_no_gpu(kind: str, role: str) -> None:
    assert environment("tensorflow", job(Device(kind), role, "ps"))["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_look_at_tensorflow_changes_nothing_but_what_it_says_and_takes() -> None:
    assert environment("tensorflow", None) == {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
