"""The state of a real NVIDIA GPU while a trial trains on it."""

import shutil
from pathlib import Path

import pytest
from trials import run_trial

from trainscale.worker.inspection.gpus import Nvml, read_sample
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Measure

GPUS = len(read_machine().gpus) if shutil.which("nvidia-smi") else 0
pytestmark = [pytest.mark.framework, pytest.mark.skipif(GPUS == 0, reason="there is no NVIDIA GPU here")]


def test_the_driver_tells_the_state_of_a_gpu() -> None:
    values = read_sample(Nvml(), "0").values
    assert {"memory_mhz", "watts", "celsius", "pcie_sent", "watts_limit"} <= values.keys()
    assert 0 < values["sm_mhz"] <= values["sm_mhz_limit"]
    print(values)


def test_a_trial_records_its_gpu(tmp_path: Path) -> None:
    outcome = run_trial(
        tmp_path,
        strategies=("local",),
        device="cuda",
        models=("resnet50:64",),
        image_size=224,
        classes=1000,
        measure=Measure(3, 100),
    )
    assert outcome.record.ok, outcome.record.failure
    (rank,) = outcome.record.ranks
    assert rank.gpu is not None
    assert rank.gpu.samples >= 2
    assert rank.gpu.samples <= rank.window_seconds / 0.5 + 2
    assert rank.gpu.sm_mhz_mean
    assert rank.gpu.sm_mhz_limit
    assert rank.gpu.sm_mhz_mean <= rank.gpu.sm_mhz_limit
    assert rank.gpu.watts_mean
    assert rank.gpu.watts_mean > 100  # it trains
    print(rank.gpu, rank.energy_joules, rank.window_seconds)
