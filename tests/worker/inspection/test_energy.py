"""Counters of energy: the driver of a GPU (a stand-in that the tests compile), and RAPL's files."""

import os
from pathlib import Path

import pytest
from jobs import make_job
from test_nvml import Driver

from trainscale.worker.inspection import usage
from trainscale.worker.inspection.gpus import Nvml, NvmlError
from trainscale.worker.inspection.usage import EnergyCounter, open_counter
from trainscale.worker.job import Device


def write_package(folder: Path, name: str, microjoules: int) -> None:
    (folder / name).mkdir(exist_ok=True, parents=True)
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def rapl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(usage, "RAPL", str(tmp_path / "powercap"))
    return tmp_path / "powercap"


def test_rapl_adds_the_packages_and_not_their_parts(rapl: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        write_package(rapl, name, 5_000_000)
    counter = open_counter(make_job())
    counter.start()
    write_package(rapl, "intel-rapl:0", 7_000_000)
    write_package(rapl, "intel-rapl:0:0", 6_900_000)
    assert counter.source == "rapl"
    assert counter.read_joules() == pytest.approx(2.0)


def test_a_counter_that_began_again_or_was_not_started_tells_nothing(rapl: Path) -> None:
    assert EnergyCounter("x", lambda: 1.0).read_joules() is None
    write_package(rapl, "intel-rapl:0", 5_000_000)
    counter = open_counter(make_job())
    counter.start()
    write_package(rapl, "intel-rapl:0", 1_000_000)
    assert counter.read_joules() is None


def test_only_the_first_rank_of_a_host_counts_the_host(rapl: Path) -> None:
    write_package(rapl, "amd-rapl:0", 5_000_000)
    addresses = ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2")
    sources = [open_counter(make_job(rank=rank, workers=4, addresses=addresses)).source for rank in range(4)]
    assert sources == ["rapl", "", "rapl", ""]


def test_without_rapl_or_with_files_that_cannot_be_read_there_is_no_energy(rapl: Path) -> None:
    for _ in range(2):
        counter = open_counter(make_job())
        counter.start()
        assert (counter.source, counter.read_joules()) == ("", None)
        (rapl / "intel-rapl:0").mkdir(parents=True, exist_ok=True)  # without energy_uj, as if it were not readable


@pytest.mark.processes
def test_the_driver_counts_the_energy_of_the_gpu_that_is_named(tmp_path: Path) -> None:
    nvml, function = Nvml(Driver(tmp_path).compile(gpus=2).library), "nvmlDeviceGetTotalEnergyConsumption"
    assert [nvml.read_number(function, name, wide=True) / 1000 for name in ("0", "1", "GPU-1")] == [1000, 2000, 2000]
    for unknown in ("2", "GPU-7"):
        with pytest.raises(NvmlError):
            nvml.read_number(function, unknown, wide=True)


@pytest.mark.processes
def test_a_rank_counts_the_gpu_that_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(tmp_path).compile(gpus=4)
    monkeypatch.setattr(usage, "Nvml", lambda: Nvml(driver.library))
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "3,GPU-1")
    counter = open_counter(make_job(device=Device("cuda", 1)))
    counter.start()
    assert (counter.source, counter.read_joules()) == ("nvml", 0.0)
    assert open_counter(make_job(device=Device("cuda", 1, shared=True))).source == ""
    assert open_counter(make_job(device=Device("cuda", 2))).source == ""
    (tmp_path / "silent").mkdir()
    driver = Driver(tmp_path / "silent").compile(answer=3)  # it does not count energy
    assert open_counter(make_job(device=Device("cuda", 0))).source == ""
