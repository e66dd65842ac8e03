"""The PyTorch adapter on NVIDIA GPUs. With one GPU, two ranks share it and speak gloo; NCCL needs a GPU for each."""

import shutil
from pathlib import Path

import pytest
from trials import largest_difference, run_trial

from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Measure

GPUS = len(read_machine().gpus) if shutil.which("nvidia-smi") else 0
pytestmark = [pytest.mark.framework, pytest.mark.skipif(GPUS == 0, reason="there is no NVIDIA GPU here")]

# cuDNN sums in other orders than it did for another batch size.
TOLERANCE = 1e-5


@pytest.mark.parametrize("strategy", ["allreduce", "ps:2"])
def test_two_ranks_on_one_gpu_end_where_one_with_the_whole_batch_ends(tmp_path: Path, strategy: str) -> None:
    settings = {"device": "cuda", "measure": Measure(2, 8)}
    whole = run_trial(tmp_path / "whole", strategies=("local",), models=("nets:plain:16",), **settings)
    both = run_trial(tmp_path / "both", devices=2, strategies=(strategy,), ranks_per_gpu=2, **settings)
    assert both.record.ok, both.record.failure
    assert largest_difference(*both.weights) == 0.0
    assert largest_difference(both.weights[0], whole.weights[0]) < TOLERANCE


@pytest.mark.parametrize("strategy", ["local", "allreduce", "sharded", "independent", "ps:1", "ps-async:1"])
def test_every_strategy_trains_on_one_gpu(tmp_path: Path, strategy: str) -> None:
    outcome = run_trial(tmp_path, strategies=(strategy,), device="cuda", measure=Measure(3, 30))
    assert outcome.record.ok, outcome.record.failure
    rank = outcome.record.ranks[0]
    assert rank.last_loss < rank.first_loss  # type: ignore[operator]
    assert rank.device_peak_bytes


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_every_precision_trains(tmp_path: Path, precision: str) -> None:
    outcome = run_trial(
        tmp_path, strategies=("allreduce",), device="cuda", precision=precision, models=("mnist:32",), image_size=28
    )
    assert outcome.record.ok, outcome.record.failure


def test_running_out_of_gpu_memory_is_its_own_kind(tmp_path: Path) -> None:
    outcome = run_trial(tmp_path, strategies=("local",), device="cuda", models=("nets:out_of_gpu_memory:4",))
    assert outcome.record.status == "oom"


def test_step_times_come_from_the_device_and_add_up(tmp_path: Path) -> None:
    record = run_trial(tmp_path, strategies=("local",), device="cuda", measure=Measure(5, 50)).record
    rank = record.ranks[0]
    assert len(rank.step_seconds) == 50
    assert sum(rank.step_seconds) == pytest.approx(rank.window_seconds, rel=0.2)


@pytest.mark.skipif(GPUS < 2, reason="there are not two NVIDIA GPUs here")
@pytest.mark.parametrize("strategy", ["allreduce", "sharded"])
def test_nccl_keeps_two_gpus_alike(tmp_path: Path, strategy: str) -> None:
    outcome = run_trial(tmp_path, devices=2, strategies=(strategy,), device="cuda")
    assert outcome.record.ok, outcome.record.failure
    assert largest_difference(*outcome.weights) == 0.0
