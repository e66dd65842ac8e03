"""The display of a run in a pipe or a log file: a line for each epoch, trial and warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..analyse.throughput import compute_samples_per_second
from ..launch.trial.state import TrialState
from ..measure.measure import RunListener
from ..measure.order import NextTrial
from ..record.trial import TrialRecord
from . import live_search

if TYPE_CHECKING:
    from rich.console import Console

    from .live import RunProgress


def make_line_listener(console: Console, progress: RunProgress) -> RunListener:
    """Return a listener for a pipe or a log file, which prints a line for every epoch and every trial."""
    printed_epochs = 0
    labels = live_search.make_config_labels(progress.plan)
    gone = set(progress.find_departures())

    def print_line(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    def begin_trial(trial: NextTrial) -> None:
        nonlocal printed_epochs
        progress.begin_trial(trial)
        printed_epochs = 0

    def update_trial(state: TrialState) -> None:
        nonlocal printed_epochs
        progress.update_trial(state)
        for epoch in state.epochs[printed_epochs:]:
            print_line(
                f"{state.trial.label} · epoch {epoch.epoch}/{state.trial.config.epochs}:"
                f" train {epoch.train_accuracy:.4f}, valid {epoch.valid_accuracy:.4f} ({epoch.seconds:.1f} s)"
            )
        printed_epochs = len(state.epochs)

    def end_trial(record: TrialRecord) -> None:
        progress.end_trial(record)
        label, config = record.trial.label, record.trial.config
        if progress.is_search:
            label = f"{config.framework} {config.model} {labels[config]} · {label.partition(' · ')[2]}"
        print_line(f"{label}: {_describe_outcome(record)} ({record.seconds:.0f} s)")
        for warning in progress.new_warnings if record.ok else ():  # the line above says why a trial failed
            print_line(f"  warning: {warning}")
        for (config, devices), reason in progress.find_departures().items():
            if (config, devices) not in gone:
                gone.add((config, devices))
                print_line(f"  left: {config.framework} {config.model} {labels[config]}: {reason}")

    return RunListener(begin_trial, update_trial, end_trial, print_line)


def _describe_outcome(record: TrialRecord) -> str:
    """Return the speed of a trial, with its accuracy if it has one, or why it failed."""
    if not record.ok:
        return f"{record.status}: {record.failure.message if record.failure else ''}"
    accuracy = f", valid {record.epochs[-1].valid_accuracy:.4f}" if record.epochs else ""
    return f"{compute_samples_per_second(record):,.4g} {record.unit}/s{accuracy}"
