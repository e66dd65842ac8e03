"""Journals that the tests of ``trainscale compare`` compare, and the command itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import curve, failed_record, make_config, make_run, record_at
from stored_runs import write_run
from studied_runs import NEAR

from trainscale import cli
from trainscale.record.parity import PROVEN, WitnessVerdict
from trainscale.record.trial import MachineLoad, TrialRecord
from trainscale.spec.config import Config

SPEEDS = {1: 100.0, 2: 190.0, 4: 360.0}
CONFIG = make_config()
TITLE = "AlexNet · torch · allreduce"


def records(
    factor: float = 1.0, values: Sequence[float] = NEAR, config: Config = CONFIG, speeds: Mapping[int, float] = SPEEDS
) -> list[TrialRecord]:
    return [
        record_at(speed * factor * value, config, devices, repeat, witness=WitnessVerdict(PROVEN))
        for repeat, value in enumerate(values)
        for devices, speed in speeds.items()
    ]


def write(directory: Path, trials: Sequence[TrialRecord], spec: Mapping[str, Any] | None = None, **facts: Any) -> Path:
    run = replace(make_run(**facts), spec={"warmup": 2, "steps": 3, **(spec or {})})
    return write_run(directory, trials, run)


def write_runs(folder: Path) -> None:
    """Write run a, and three that are the same, slower and faster."""
    for name, factor in {"a": 1.0, "same": 1.001, "slow": 0.95, "fast": 1.05}.items():
        write(folder / name, records(factor))


def write_further_runs(folder: Path) -> None:
    """Write runs with few repeats, with noise, on a busy machine, of two series, changed, and without a proof."""
    for name, values in {"once": [1.0], "again": [1.0], "twice": [1.0, 1.0], "noisy": [0.97, 1.0, 1.03]}.items():
        write(folder / name, records(0.5 if name == "once" else 1.0, values))
    # One of the machine's 2 cores is free beside one device, which leaves 0.4.
    busy = [replace(record, machine=MachineLoad(other_cores=1.4)) for record in records(0.8)]
    write(folder / "busier", busy)
    good = [record for record in records() if record.trial.devices < 4]
    write(folder / "lost", [*good, failed_record(CONFIG, 4)])
    servers, vgg = make_config(strategy="ps", servers=2), make_config(model="vgg16")
    write(folder / "both", [*records(), *records(0.9, config=servers)])
    for name, factor in (("two", 1.0), ("new", 0.9)):
        write(folder / name, [*records(), *records(factor, config=vgg)])
    write(folder / "main" / "1", records())
    changed = records(config=make_config(precision="bf16", batch=64))
    versions = {"torch": "2.10.0", "python": "3.11.9"}
    machine = {"cpu": "Another CPU", "cores": 2, "gpus": []}
    write(folder / "changed", [replace(record, versions=versions) for record in changed], machine=machine)
    write(folder / "unproven", [replace(record, witness=WitnessVerdict("unproven")) for record in records()])
    allreduce, apart = curve(CONFIG, {2: 190}, 3, 0.01), make_config(strategy="ps", servers=1)
    write_run(folder / "servers", curve(CONFIG, {1: 100, 2: 190, 4: 300}, 3, 0.01) + curve(apart, {2: 150}, 3, 0.01))
    write_run(folder / "alone", allreduce)
    write_run(folder / "alone-and-failed", [*allreduce, *curve(apart, {2: None}, 1)])
    write_run(folder / "apart", curve(apart, {2: 150}, 3, 0.01))


def write_published_runs(folder: Path) -> None:
    """Write a run on GPUs of which published curves are near, and one on a laptop."""
    gpus = {"cpu": "A CPU", "cores": 64, "gpus": ["NVIDIA A100-SXM4-80GB"] * 8}
    config = make_config(model="resnet50", batch=256, device="cuda", precision="tf32")
    _write_resnet(folder / "ours", {1: 900.0, 2: 1780.0, 8: 6300.0}, config, gpus)
    laptop = make_config(model="resnet50", batch=8, device="cpu", precision="fp32")
    _write_resnet(folder / "laptop", {1: 10.0, 2: 19.0}, laptop, {"cpu": "A CPU", "cores": 2, "gpus": []})


def _write_resnet(directory: Path, speeds: Mapping[int, float], config: Config, machine: Mapping[str, Any]) -> None:
    trials = records(1.0, (0.998, 0.999, 1.0, 1.001, 1.002), config, speeds)
    write(directory, [replace(trial, parameters=25_557_032) for trial in trials], machine=machine)


class Compare:
    """``trainscale compare`` in this process, which has imported what takes long."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *argv: str, code: int = 0) -> str:
        """Return what the command prints."""
        assert cli.main(["compare", *argv]) == code
        printed = self._capsys.readouterr()
        assert printed.err == ""
        return printed.out

    def document(self, *argv: str, code: int = 0) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.text(*argv, "--json", code=code))
        return values

    def refusal(self, *argv: str) -> str:
        """Return the message of a command line that cannot be used."""
        assert cli.main(["compare", *argv]) == 2
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return printed.err.removeprefix("trainscale: ")
