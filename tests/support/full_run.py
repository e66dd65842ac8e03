"""A made-up run with everything that a report can show, and one of many trials."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from factories import curve, failed_record, learning_record, make_config, make_rank, make_record, make_run
from planted import PARAMETERS, STEPS

from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import remove_exchange

HOSTS = {
    f"a-long-host-name-of-a-cluster-{number}": {
        "host": f"node{number}", "cpu": "A CPU with a long name", "gpus": ["NVIDIA H200"] * 4, "memory GiB": 125.9,
    }
    for number in (1, 2)
}  # fmt: skip
SLOW, DRIFT = 3, 0.3  # the rank that is slow, and by how much the steps of a window grow


def full_run() -> RunInfo:
    versions = {"torch": {"torch": "2.9.1", "cuda": "13.0"}, "jax": {"jax": "0.8.0"}}
    return make_run(hosts=HOSTS, frameworks=versions, trainscale="0.1.0", commit="abc123")


def full_records() -> list[TrialRecord]:
    """Two frameworks weakly, one strongly, each to 8 devices on two hosts; with ranks that exchange nothing, a slow
    rank, energy, and failures.
    """
    noise = random.Random(1)
    config = make_config(device="cuda", batch=64)
    records = []
    for devices in (1, 2, 4, 8):
        for repeat in range(3):
            for strategy, extra in ((config, 0.012 * (devices - 1) ** 0.5), (remove_exchange(config), 0.0)):
                records.append(_trial(strategy, devices, repeat, 0.1 + extra, noise))
    jax = make_config(framework="jax", device="cuda", batch=64)
    strong = make_config(device="cuda", batch=256, scaling="strong")
    records += curve(jax, {1: 560.0, 2: 1080.0, 4: 2050.0, 8: None}, repeats=3, spread=0.01)
    records += curve(strong, {1: 700.0, 2: 1300.0, 4: 2300.0, 8: 3300.0}, repeats=3, spread=0.01)
    records += [failed_record(make_config(model="vgg16", device="cuda", batch=512), 1, repeat) for repeat in (0, 1)]
    return records


def _trial(config: Any, devices: int, repeat: int, seconds: float, noise: random.Random) -> TrialRecord:
    ranks = []
    for rank in range(devices):
        slow = 1.25 if rank == SLOW and config.strategy == "independent" else 1.0
        steps = [seconds * slow * (1 + DRIFT * n / STEPS) * noise.gauss(1, 0.01) for n in range(STEPS)]
        host = f"a-long-host-name-of-a-cluster-{1 + rank // 4}"
        changes = {"device_peak_bytes": (6 + devices // 4) * 2**30, "energy_joules": 2400.0, "energy_source": "nvml"}
        ranks.append(make_rank(rank, steps, config.batch_per_device(devices), host=host, **changes))
    hosts = 1 + (devices - 1) // 4
    return make_record(config, devices, repeat, ranks, hosts=hosts, parameters=PARAMETERS)


def learning_records() -> list[TrialRecord]:
    return [learning_record(devices=devices, seconds=40.0 / devices) for devices in (1, 2)]


def doubtful_records() -> list[TrialRecord]:
    """Repeats that differ, which the first screen has to say."""
    return curve(make_config(), {1: 100.0, 2: 150.0}, repeats=3, spread=0.2)


def many_records(series: int = 200, repeats: int = 5) -> list[TrialRecord]:
    """10,000 trials: 200 series of 10 device counts, 5 repeats each."""
    records = []
    for number in range(series):
        config = make_config(batch=number + 1)
        speeds: dict[int, float | None] = {n: 10.0 * (number + 1) * n**0.9 for n in range(1, 11)}
        if number % 10 == 0:
            speeds[10] = None
        records += curve(config, speeds, repeats=repeats, spread=0.01)
    return [replace(record, hosts=1) for record in records]


def write_page(folder: Path, records: list[TrialRecord], run: RunInfo | None = None) -> Path:
    from reported import write_outputs

    write_outputs(folder, run or full_run(), records)
    return folder / "report.html"
