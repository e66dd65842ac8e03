"""Made-up runs in which the time of every cause is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from factories import make_config, make_rank, make_record

from trainscale.questions.explain.explain import PointExplanation, explain_records
from trainscale.record.trial import RankSample, TrialRecord
from trainscale.spec.config import Config, remove_exchange

SPREAD = 0.004  # between the repeats of a point
REPEATS = 5
STEPS = 40
PARAMETERS = 1_199_882

# What repeats differ by, so that points are not slow and fast together.
_OFFSETS = ((-2, 1, 0, 2, -1), (1, -1, 2, 0, -2), (0, 2, -2, -1, 1))


def small_config(**changes: Any) -> Config:
    return make_config(model="mnist", image_size=28, classes=10, channels=1, batch=64, **changes)


def trials(
    config: Config, devices: int, seconds: Sequence[float] | float, repeats: int = REPEATS, **changes: Any
) -> list[TrialRecord]:
    """The trials of a point. ``seconds`` is the step of every rank, or of all of them; ``rank`` changes samples.

    Every rank has its core whole.
    """
    rank_changes = changes.pop("rank", {})
    per_rank = [seconds] * devices if isinstance(seconds, float) else list(seconds)
    batch = config.batch_per_device(devices)
    offsets = _OFFSETS[devices % len(_OFFSETS)]
    records = []
    for repeat in range(repeats):
        factor = 1 + SPREAD * offsets[repeat % len(offsets)]
        ranks = [
            make_rank(rank, [step * factor] * STEPS, batch, **{"cpu_seconds": step * factor * STEPS, **rank_changes})
            for rank, step in enumerate(per_rank)
        ]
        records.append(make_record(config, devices, repeat, ranks, **{"parameters": PARAMETERS, **changes}))
    return records


def run(
    config: Config,
    work: float,
    apart: Sequence[float] | float,
    step: float,
    devices: int = 2,
    repeats: int = REPEATS,
    **changes: Any,
) -> list[TrialRecord]:
    """One device and several, each without exchange, and several devices that exchange gradients."""
    independent = remove_exchange(config)
    return [
        *trials(independent, 1, work, repeats, **changes),
        *trials(independent, devices, apart, repeats, **changes),
        *trials(config, devices, step, repeats, **changes),
    ]


def change_rank(record: TrialRecord, number: int, **changes: Any) -> TrialRecord:
    ranks: list[RankSample] = [replace(rank, **changes) if rank.rank == number else rank for rank in record.ranks]
    return replace(record, ranks=tuple(ranks))


def give_cores(records: Sequence[TrialRecord], shares: Sequence[float], waits: Sequence[float]) -> list[TrialRecord]:
    """Return the trials with the share of its core that each rank gets, and the share of time that it waits for it."""
    changed = []
    for record in records:
        for rank in record.ranks:
            window = rank.window_seconds
            cpu, wait = shares[rank.rank] * window, waits[rank.rank] * window
            record = change_rank(record, rank.rank, cpu_seconds=cpu, core_wait_seconds=wait)
        changed.append(record)
    return changed


def explain_only(records: list[TrialRecord]) -> PointExplanation:
    """Return the explanation of the only point, whose shares add up to 1."""
    (point,) = explain_records(records)
    assert sum(part.share for part in point.parts) == pytest.approx(1, abs=1e-12)
    assert all(part.share >= 0 for part in point.parts)
    return point


def shares(point: PointExplanation) -> dict[str, float]:
    return {" and ".join(part.causes): part.share for part in point.parts}
