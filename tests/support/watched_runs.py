"""A made-up run that is written trial by trial, as a process that measures would write it, and one of a batch job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from factories import make_config, record_at

from trainscale.measure.submission import plan_for_nodes
from trainscale.record.journal import Journal, open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import OK, Failure, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.spec.experiment import make_experiment
from trainscale.spec.plan import Plan

CONFIG = make_config()
LADDER = (1, 2)
SPEEDS = {1: 100.0, 2: 150.0}


def run_info(config: Config = CONFIG, repeats: int = 2, **spec: Any) -> RunInfo:
    series = [{**config.to_dict(), "ladder": list(LADDER)}]
    return RunInfo(
        {"series": series, "warmup": 2, "steps": 3, "seed": 1, "repeats": repeats, **spec},
        {"command": "trainscale run -m alexnet:32"},
    )


def records(config: Config = CONFIG, repeats: int = 2) -> list[TrialRecord]:
    """All trials in the order in which a run measures them: every other round goes backwards."""
    rounds = [LADDER if repeat % 2 == 0 else LADDER[::-1] for repeat in range(repeats)]
    return [record_at(SPEEDS[n], config, n, repeat) for repeat, counts in enumerate(rounds) for n in counts]


def begin(directory: Path, *trials: TrialRecord, **spec: Any) -> Journal:
    """Return the open journal, which holds the lock, with some trials in it."""
    journal = open_journal(directory, run_info(**spec))
    for trial in trials:
        journal.append(trial)
    return journal


def plan_of_two_nodes() -> Plan:
    settings = {"nodes": 2, "gpus_per_host": 1, "cores_per_device": 1, "models": ("mnist:8",), "repeats": 2}
    return plan_for_nodes(make_experiment(settings))


def submitted_record(trial: Trial, status: str = OK) -> TrialRecord:
    ranks = (RankSample(rank=0, host="node1", samples=8, window_seconds=1.0, step_seconds=(0.5, 0.5)),)
    failure = None if status == OK else Failure(status, "a reason")
    return TrialRecord(trial, status, "2026-01-01", 2.0, ranks=ranks if status == OK else (), failure=failure)
