"""A made-up run with a weak and a strong ladder, up to 8 devices on 2 hosts. ``trainscale study`` is tested on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from factories import make_config, make_run, record_at
from stored_runs import write_run

from trainscale.record.parity import PROVEN, WitnessVerdict
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import STRONG, Config

NEAR = (0.998, 0.999, 1.0, 1.001, 1.002)
# Efficiencies of 98, 95 and 90 %.
WEAK_SPEEDS = {1: 100.0, 2: 196.0, 4: 380.0, 8: 720.0}
# Efficiencies of 90, 75 and 50 %.
STRONG_SPEEDS = {1: 100.0, 2: 180.0, 4: 300.0, 8: 400.0}
WEAK_CONFIG = make_config(device="cuda", cores_per_device=0)
STRONG_CONFIG = replace(WEAK_CONFIG, scaling=STRONG, batch=64)
COMMAND = "trainscale run -m alexnet:32 -x 8 --scaling weak -o results --repeats 3"
JOULES = 0.5  # of a sample, on every device


def ladder_records(
    config: Config, speeds: Mapping[int, float], values: Sequence[float] = NEAR, **changes: Any
) -> list[TrialRecord]:
    changes = {"witness": WitnessVerdict(PROVEN), **changes}
    return [
        record_at(speed * value, config, devices, repeat, hosts=1 + (devices > 4), **changes)
        for repeat, value in enumerate(values)
        for devices, speed in speeds.items()
    ]


def both_ladders() -> list[TrialRecord]:
    return [*ladder_records(WEAK_CONFIG, WEAK_SPEEDS), *ladder_records(STRONG_CONFIG, STRONG_SPEEDS)]


def with_energy(record: TrialRecord, source: str = "nvml") -> TrialRecord:
    ranks = [replace(rank, energy_joules=JOULES * rank.samples, energy_source=source) for rank in record.ranks]
    return replace(record, ranks=tuple(ranks))


def write_study(directory: Path, records: Sequence[TrialRecord], **facts: Any) -> Path:
    run = make_run(**{"command": COMMAND, "trainscale": "0.1.0", **facts})
    return write_run(directory, records, replace(run, spec={"warmup": 2, "steps": 3}))
