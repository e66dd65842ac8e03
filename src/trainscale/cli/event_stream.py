"""``--json``: what happens in a run as JSON on standard output, one event a line, for programs.

docs/running.md describes the events. Every event has ``event`` and ``time``; ``run-begins`` also has ``schema``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import IO, Any

from ..analyse.statistics import mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured
from ..launch.trial.state import TrialState
from ..measure.measure import RunListener
from ..measure.order import NextTrial
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from ..spec.config import Trial
from ..worker.type_aliases import JsonObject
from .live import RunProgress

SCHEMA = 1
_LEAST_SECONDS = 1.0  # between two reports about the steps of a trial


class EventStream:
    """Writes events to a file."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, event: str, **values: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"event": event, "time": now, **values}, allow_nan=False, ensure_ascii=False)
        print(line, file=self._file, flush=True)

    def begin(self, progress: RunProgress, location: str) -> None:
        points = [
            {
                **_describe_point(config.key, config.to_dict(), devices),
                "trials": len(progress.select_records(config, devices)),
            }
            for config, devices in progress.plan.points
        ]
        self.write(
            "run-begins",
            schema=SCHEMA,
            directory=location,
            points=points,
            trials=progress.finished_trials,
            planned_trials=progress.planned_trials,
        )

    def end(self, location: str, run: RunInfo, records: Sequence[TrialRecord], exit_code: int) -> None:
        from ..questions.explain.text import list_closing_verdicts

        self.write("run-ends", directory=location, verdicts=list_closing_verdicts(run, records), exit_code=exit_code)

    def make_listener(self, progress: RunProgress) -> RunListener:
        """Return a listener that writes an event for everything that happens to a trial."""
        last_phase, last_time = "", 0.0

        def trial_begins(trial: NextTrial) -> None:
            nonlocal last_phase
            progress.begin_trial(trial)
            last_phase = ""
            self.write("trial-begins", **_describe_trial(trial.trial))

        def trial_moves(state: TrialState) -> None:
            nonlocal last_phase, last_time
            progress.update_trial(state)
            now = time.monotonic()
            if progress.phase != last_phase or now - last_time >= _LEAST_SECONDS:
                last_phase, last_time = progress.phase, now
                self.write("trial-moves", **_describe_trial(state.trial), phase=progress.phase, step=progress.step)

        def trial_ends(record: TrialRecord) -> None:
            progress.end_trial(record)
            self.write("trial-ends", **_describe_trial(record.trial), **_describe_outcome(record, progress))
            for warning in progress.new_warnings:
                self.write("warning", message=warning)

        return RunListener(trial_begins, trial_moves, trial_ends, lambda line: self.write("message", message=line))


def _describe_point(key: str, config: JsonObject, devices: int) -> JsonObject:
    return {"config_key": key, "config": config, "devices": devices}


def _describe_trial(trial: Trial) -> JsonObject:
    """Return what identifies a trial. Its config is in the first event, under the same key."""
    return {
        "trial": trial.key,
        "config_key": trial.config.key,
        "devices": trial.devices,
        "repeat": trial.repeat,
        "short": trial.short,
        "label": trial.label,
    }


def _describe_outcome(record: TrialRecord, progress: RunProgress) -> JsonObject:
    """Return the speed of the trial, that of its point so far, and what is left."""
    trials = [other for other in progress.select_records(*record.trial.point) if is_measured(other)]
    speeds = [compute_samples_per_second(other) for other in trials if other.trial.short == record.trial.short]
    interval = mean_interval(speeds, progress.plan.experiment.measurement.is_sequential) if speeds else None
    return {
        "status": record.status,
        "failure": record.failure.message if record.failure else None,
        "seconds": record.seconds,
        "unit": record.unit,
        "samples_per_second": compute_samples_per_second(record) if is_measured(record) else None,
        "point": {"mean": interval.mean, "low": interval.low, "high": interval.high, "repeats": len(speeds)}
        if interval
        else None,
        "trials": progress.finished_trials,
        "planned_trials": progress.planned_trials,
        "seconds_left": progress.estimate_remaining_seconds(),
    }
