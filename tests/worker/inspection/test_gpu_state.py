"""Clocks, power and traffic of a GPU in a rank's window. The driver's library is a stand-in that the tests compile."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_nvml import Driver
from trials import run_trial

from trainscale.worker.inspection.gpus import GpuSample, Nvml, read_sample, summarise
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Measure
from trainscale.worker.sample import GpuState

NAMES = ("sm_mhz", "memory_mhz", "watts", "celsius", "pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received")
LIMITS: dict[str, Any] = {"sm_mhz_limit": 1980, "memory_mhz_limit": 3201, "watts_limit": 700.0}

# A rank that has measured for a while, and reports its window as loop.py does.
RANK = """
import json, os, time
state = os.environ["NVML_STAND_IN_STATE"]
began = time.perf_counter()
{body}
window = {{"window_seconds": time.perf_counter() - began, "window_began": began}}
for last in (False, True):
    piece = {{"kind": "report", "rank": 0, "text": "", "start": 0, "is_last": last, **window}}
    print("@trainscale " + json.dumps(piece, separators=(",", ":")), flush=True)
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver(tmp_path)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver


def read(driver: Driver, gpu: str = "0") -> GpuSample:
    return replace(read_sample(Nvml(driver.library), gpu), seconds=0.0)


@pytest.mark.processes
def test_a_sample_holds_what_the_driver_says(driver: Driver) -> None:
    driver.compile().set_state(1200, 2619, 650_500, 61, 0x4 | 0x20 | 0x1, 7, 8, 9, 2**33)
    values = dict(zip(NAMES, (1200, 2619, 650.5, 61, 7000.0, 8000.0, 9 * 1024, 2**43), strict=True))
    # An idle GPU (0x1) is not a limited one.
    assert read(driver) == GpuSample(0.0, {**values, **LIMITS}, ("power cap", "temperature"))


@pytest.mark.processes
def test_what_a_gpu_does_not_offer_is_left_out(driver: Driver) -> None:
    driver.compile().set_state(1200, -1, -1, -1, -1, -1, -1, -1, -1)
    assert read(driver) == GpuSample(0.0, {"sm_mhz": 1200, **LIMITS})
    assert read(driver, "1") == GpuSample(0.0, {})  # there is no such GPU


def samples() -> list[GpuSample]:
    rows: list[Any] = [
        (1.0, 1000, 2000, 100.0, 50, (), 5.0, 50.0, 0, 1000),  # before the window
        (2.0, 1900, 2600, 600.0, 60, (), 10.0, 100.0, 100, 1000),
        (3.0, 1200, 2600, 700.0, 65, ("power cap",), 20.0, 200.0, 200, 2000),
        (4.0, 1100, 2500, 700.0, 70, ("power cap", "temperature"), 30.0, 300.0, 500, 4000),
        (5.0, 100, 100, 50.0, 90, ("hardware slowdown",), 0.0, 0.0, 900, 9000),  # after it
    ]
    return [GpuSample(row[0], {**dict(zip(NAMES, row[1:5] + row[6:], strict=True)), **LIMITS}, row[5]) for row in rows]


def test_only_samples_in_the_window_are_summarised() -> None:
    assert summarise(samples(), 1.5, 4.5) == GpuState(
        samples=3,
        sm_mhz_mean=1400.0,
        sm_mhz_min=1100,
        sm_mhz_limit=1980,
        memory_mhz_mean=pytest.approx(2566.667),
        memory_mhz_min=2500,
        memory_mhz_limit=3201,
        watts_mean=pytest.approx(666.667),
        watts_limit=700.0,
        celsius_max=70,
        limited_share=pytest.approx(2 / 3),
        limited_by={"power cap": pytest.approx(2 / 3), "temperature": pytest.approx(1 / 3)},
        pcie_sent_per_second=20.0,
        pcie_received_per_second=200.0,
        nvlink_sent_per_second=200.0,
        nvlink_received_per_second=1500.0,
    )


def test_no_sample_has_no_summary_and_a_counter_with_one_value_or_that_began_again_has_no_rate() -> None:
    assert summarise(samples(), 2.1, 2.9) is None
    alone = summarise(samples(), 1.9, 2.1)
    assert alone is not None
    assert (alone.nvlink_sent_per_second, alone.sm_mhz_mean) == (None, 1900.0)
    fallen = [samples()[4], replace(samples()[1], seconds=6.0)]
    summary = summarise(fallen, 0.0, 9.0)
    assert summary is not None
    assert summary.nvlink_sent_per_second is None


def list_states(events: list[dict[str, Any]]) -> list[Any]:
    """Return the states that a keeper reports: after the last piece of a report, and before the exit."""
    return [event["state"] for event in events if event["kind"] == "gpu"]


@pytest.mark.processes
def test_a_keeper_reports_the_gpu_of_a_rank_after_its_result(driver: Driver) -> None:
    """The rank changes the state of the GPU when its window is half over."""
    driver.compile().set_state(1900, 2619, 600_000, 60, 0, 10, 20, 1000, 2000)
    new = "1200 2619 700000 70 4 10 20 3000 4000"
    body = f"time.sleep(1.6)\nwith open(state + '2', 'w') as file: file.write('{new}')\n"
    body += "os.rename(state + '2', state)\ntime.sleep(1.6)"
    events = driver.keeps(RANK.format(body=body))
    kinds = [event["kind"] for event in events if event["kind"] in ("report", "gpu", "exit")]
    assert kinds == ["report", "report", "gpu", "gpu", "exit"]
    gpu, again = list_states(events)
    assert gpu == again
    assert gpu["sm_mhz_min"] == 1200
    assert 1200 < gpu["sm_mhz_mean"] < 1900
    assert 0 < gpu["limited_share"] < 1
    assert list(gpu["limited_by"]) == ["power cap"]
    assert gpu["nvlink_sent_per_second"] > 0
    assert gpu["watts_limit"] == 700.0


@pytest.mark.processes
def test_a_rank_without_a_window_or_without_a_driver_has_no_state(driver: Driver) -> None:
    assert list_states(driver.keeps(RANK.format(body="time.sleep(0.6)"))) == [None, None]  # there is no library yet
    driver.compile()
    assert list_states(driver.keeps("import time; time.sleep(0.6)")) == [None]


# ---- a real GPU

GPUS = len(read_machine().gpus) if shutil.which("nvidia-smi") else 0


def on_a_gpu(test: Any) -> Any:
    return pytest.mark.framework(pytest.mark.skipif(GPUS == 0, reason="there is no NVIDIA GPU here")(test))


@on_a_gpu
def test_the_driver_tells_the_state_of_a_gpu() -> None:
    values = read_sample(Nvml(), "0").values
    assert {"memory_mhz", "watts", "celsius", "pcie_sent", "watts_limit"} <= values.keys()
    assert 0 < values["sm_mhz"] <= values["sm_mhz_limit"]
    print(values)


@on_a_gpu
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
