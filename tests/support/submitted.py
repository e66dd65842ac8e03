"""A run that was submitted as a batch job: its plan, and records of its trials."""

from __future__ import annotations

from trainscale.measure.submission import plan_for_nodes
from trainscale.record.trial import OK, Failure, RankSample, TrialRecord
from trainscale.spec.config import Trial
from trainscale.spec.experiment import make_experiment
from trainscale.spec.plan import Plan


def plan_of_two_nodes() -> Plan:
    settings = {"nodes": 2, "gpus_per_host": 1, "cores_per_device": 1, "models": ("mnist:8",), "repeats": 2}
    return plan_for_nodes(make_experiment(settings))


def record(trial: Trial, status: str = OK) -> TrialRecord:
    ranks = (RankSample(rank=0, host="node1", samples=8, window_seconds=1.0, step_seconds=(0.5, 0.5)),)
    failure = None if status == OK else Failure(status, "a reason")
    return TrialRecord(trial, status, "2026-01-01", 2.0, ranks=ranks if status == OK else (), failure=failure)
