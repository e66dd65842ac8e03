"""The display while a run goes on: on a terminal a table that fills up, with what runs now, what is left and warnings.

In a pipe, live_lines.py prints lines instead; event_stream.py writes events for programs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING

from ..analyse.series import drop_superseded
from ..analyse.statistics import mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured
from ..launch.trial.state import TrialState
from ..measure.measure import RunListener
from ..measure.order import NextTrial, choose_next_trial, find_hopeless_points
from ..record.journal import Journal
from ..record.trial import IMAGES, Epoch, TrialRecord
from ..report.numbers import format_rough_duration
from ..spec.config import Config, PointKey, Trial
from ..spec.plan import LEAST_ROUNDS, Plan
from ..worker.data.facts import DatasetFacts
from . import live_search
from .live_lines import make_line_listener
from .live_warnings import list_trial_warnings

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_LONG_RUN_SECONDS = 1200.0
_WIDE = 115  # columns of a terminal that shows an epoch in full
_NOW_WIDTH, _LEAST_MODEL_WIDTH, _GAP = 18, 8, 2  # columns of the last cell, of a model's name, and between cells
_EPOCH, _VALIDATION = "epoch", "validation"  # phases that are followed by a number (worker/training/learning.py)
_MOST_WARNINGS = 3  # under the table; the report has all
# For phases whose own name does not say what happens.
_PHASE_NAMES = {"resident": "on one batch", "exchange": "exchange alone", "batches": "other batches"}


@contextmanager
def show_progress(
    plan: Plan, journal: Journal, retry_failed: bool = False, remote_job: str = ""
) -> Iterator[RunListener]:
    """Show how a run goes on. ``remote_job`` names the job that measures it, if that is not this process."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    progress = RunProgress(plan, journal, remote_job)
    if not remote_job:
        console.print(_describe_start(plan, journal, progress, retry_failed), soft_wrap=True)
    if not console.is_terminal:
        yield make_line_listener(console, progress)
        return
    with Live(
        get_renderable=lambda: make_progress_table(progress, console.width),
        console=console,
        refresh_per_second=4,
        transient=True,
    ):
        yield RunListener(progress.begin_trial, progress.update_trial, progress.end_trial, progress.begin_expectation)


class RunProgress:
    """What has been measured, and what goes on now."""

    def __init__(self, plan: Plan, journal: Journal, remote_job: str = "") -> None:
        self.plan = plan
        self.journal = journal
        self.remote_job = remote_job
        self.current: NextTrial | None = None
        self.phase = ""
        self.step = 0  # within the phase
        self.epochs: Sequence[Epoch] = ()  # of the current trial
        self.warnings: list[str] = []  # of all trials that ended since the display began, each once
        self.new_warnings: list[str] = []  # of the last trial
        self.began = time.monotonic()
        # Read once: the facts of a folder of photographs are counted on the disk, and the table is drawn often.
        self.facts = plan.dataset.facts if plan.dataset.is_real else None
        further = {point.point: plan.estimate_seconds(*point.point, point.measure) for point in plan.further_points}
        self._estimates = {**{point: plan.estimate_seconds(*point) for point in plan.points}, **further}

    def begin_trial(self, trial: NextTrial) -> None:
        self.current, self.phase, self.step = trial, "under way" if self.remote_job else "start", 0
        self.epochs = ()

    def begin_expectation(self, line: str) -> None:
        self.phase = "reference"

    def update_trial(self, state: TrialState) -> None:
        self.phase, self.step = state.slowest_worker.phase, state.slowest_worker.step
        self.epochs = tuple(state.epochs)

    def end_trial(self, record: TrialRecord) -> None:
        self.current = None
        self.new_warnings = [text for text in list_trial_warnings(record) if text not in self.warnings]
        self.warnings += self.new_warnings

    @property
    def planned_trials(self) -> int | None:
        """The number of trials on the ladders. None where the results decide it."""
        measurement = self.plan.experiment.measurement
        if measurement.is_sequential or self.is_search:
            return None
        return measurement.repeats * len(self.plan.points)

    @property
    def finished_trials(self) -> int:
        """The number of recorded trials; those beside the ladders count only where no number is planned."""
        points = set(self.plan.points)
        trials = [record.trial for record in self.journal.records]
        return len(trials if self.planned_trials is None else [t for t in trials if t.point in points])

    @property
    def is_search(self) -> bool:
        return self.plan.experiment.measurement.search is not None

    def find_departures(self) -> dict[PointKey, str]:
        """Return the points that left a search so far, and why."""
        return live_search.find_departures(self.plan, self.journal.records)

    def select_records(self, config: Config, devices: int) -> list[TrialRecord]:
        return [record for record in self.journal.records if record.trial.point == (config, devices)]

    def format_speed(self, config: Config, devices: int) -> tuple[str, str]:
        """Return the samples per second of the cluster, and their ±."""
        records = drop_superseded(self.select_records(config, devices))
        speeds = [compute_samples_per_second(record) for record in records if is_measured(record)]
        if not speeds:
            return "", ""
        interval = mean_interval(speeds, self.plan.experiment.measurement.is_sequential)
        return f"{interval.mean:,.4g}", "" if interval.relative is None else f"±{interval.relative:.0%}"

    def format_accuracy(self, config: Config, devices: int) -> str:
        """Return the last validation accuracy: of the current trial, otherwise the mean over the finished ones."""
        if self.epochs and self.current and self.current.trial.point == (config, devices):
            return f"{self.epochs[-1].valid_accuracy:.4f}"
        accuracies = [
            record.epochs[-1].valid_accuracy for record in self.select_records(config, devices) if record.epochs
        ]
        return f"{fmean(accuracies):.4f}" if accuracies else ""

    def estimate_remaining_seconds(self) -> float:
        """Estimate the time to go from what each point has taken so far, otherwise from the plan."""
        measurement = self.plan.experiment.measurement
        if self.is_search:
            return live_search.estimate_remaining_seconds(self.plan, self.journal.records, self._estimates)
        further = {point.point: point.repeats for point in self.plan.further_points}
        least = measurement.repeats if measurement.until_interval is None else LEAST_ROUNDS
        repeats = {**dict.fromkeys(self.plan.points, least), **further}
        total = 0.0
        if measurement.budget is not None:
            ladder = [record.seconds for record in self.journal.records if record.trial.point not in further]
            repeats, total = further, max(0.0, measurement.budget - sum(ladder))
        hopeless = find_hopeless_points(self.journal.records)
        for (config, devices), count in repeats.items():
            records = self.select_records(config, devices)
            missing = 0 if (config, devices) in hopeless else max(0, count - len(records))
            estimate = fmean(record.seconds for record in records) if records else self._estimates[config, devices]
            total += missing * estimate
        return total


def _describe_start(plan: Plan, journal: Journal, progress: RunProgress, retry_failed: bool) -> str:
    """Return the lines that are printed before the first trial."""
    text = f"[bold]trainscale[/] on {plan.available.description}, results in {journal.directory}/"
    recorded = [record for record in journal.records if record.ok or not retry_failed]
    if choose_next_trial(plan, recorded) is None:
        return f"{text}\nall {len(journal.records)} trials are in the journal already; --fresh measures anew"
    if recorded:
        text += f"\ncontinuing: {len(recorded)} trials are in the journal"
    remaining = progress.estimate_remaining_seconds()
    if plan.experiment.measurement.budget is None and remaining > _LONG_RUN_SECONDS:
        text += (
            f"\nvery roughly {format_rough_duration(remaining)} to go; --budget 5m gives a first answer in five minutes"
        )
    return text


def make_progress_table(progress: RunProgress, width: int) -> RenderableType:
    """Return the table of all points and the line under it."""
    from rich.console import Group
    from rich.text import Text

    has_epochs = any(config.epochs for config in progress.plan.configs)
    # On a narrow terminal the names of models are cut, and ± is left out: training is seldom repeated.
    has_spread = not has_epochs or width >= _WIDE
    table = _make_empty_table(progress, width, has_epochs, has_spread)
    measurement = progress.plan.experiment.measurement
    repeats = "" if measurement.is_sequential or progress.is_search else f"/{measurement.repeats}"
    labels, departures = live_search.make_config_labels(progress.plan), progress.find_departures()
    further = [(*point.point, f"/{point.repeats}") for point in progress.plan.further_points]
    for config, devices, planned in (*((*point, repeats) for point in progress.plan.points), *further):
        records = progress.select_records(config, devices)
        failed = [record for record in records if not record.ok]
        now = _make_current_cell(progress, config, devices, width) or Text(
            failed[-1].status if failed else "", style="red"
        )
        if (config, devices) in departures and not failed:
            now = Text("left", style="dim")
        speed = progress.format_speed(config, devices)[: 2 if has_spread else 1]
        accuracy = [progress.format_accuracy(config, devices)] if has_epochs else []
        trials = f"{len(records)}{planned}"
        label = labels.get(config, config.strategy_label)
        table.add_row(config.model, label, str(devices), *speed, *accuracy, trials, now)
    passed, remaining = time.monotonic() - progress.began, progress.estimate_remaining_seconds()
    leave = f"Ctrl-C leaves, {progress.remote_job} goes on" if progress.remote_job else "Ctrl-C stops, nothing is lost"
    times = f"{format_rough_duration(passed)} passed, about {format_rough_duration(remaining)} to go"
    warnings = [Text(f"warning: {text}", style="yellow") for text in progress.warnings[-_MOST_WARNINGS:]]
    return Group(table, *warnings, Text(f"{describe_trials(progress)} · {times} · {leave}", style="dim"))


def describe_trials(progress: RunProgress) -> str:
    """Return «12 of 40 trials», or «12 trials» where the results decide how many there will be."""
    done, planned = progress.finished_trials, progress.planned_trials
    return f"{done} trial{'' if done == 1 else 's'}" if planned is None else f"{done} of {planned} trials"


def _make_empty_table(progress: RunProgress, width: int, has_epochs: bool, has_spread: bool) -> Table:
    """Return the table with its columns, in which the model's name gets the width that the others leave."""
    from rich.table import Table

    numbers = {
        "devices": 7,
        f"{_find_unit(progress)}/s": 8,
        **({"±": 5} if has_spread else {}),
        **({"valid": 6} if has_epochs else {}),
        "trials": 6,
    }
    further = [point.config.strategy_label for point in progress.plan.further_points]
    strategy = max(map(len, (*live_search.make_config_labels(progress.plan).values(), *further)))
    taken = sum(least + _GAP for least in (max(strategy, 8), *numbers.values(), _NOW_WIDTH))
    table = Table(box=None, padding=(0, _GAP, 0, 0))
    table.add_column("model", no_wrap=True, max_width=max(_LEAST_MODEL_WIDTH, width - taken - _GAP))
    table.add_column("strategy", no_wrap=True, min_width=strategy)
    for name, least in numbers.items():
        table.add_column(name, justify="right", no_wrap=True, min_width=least)
    table.add_column("now", min_width=_NOW_WIDTH, no_wrap=True)
    return table


def _find_unit(progress: RunProgress) -> str:
    """Return what the networks call a sample; before the first record, ``images``."""
    units = {record.unit for record in progress.journal.records} or {IMAGES}
    return units.pop() if len(units) == 1 else "samples"


def _make_current_cell(progress: RunProgress, config: Config, devices: int, width: int) -> RenderableType | None:
    """Return what the point's trial does now. None if another point is measured."""
    current = progress.current
    if current is None or current.trial.point != (config, devices):
        return None
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if progress.phase != "measure" or current.measure.seconds is not None:
        return Text(f"● {describe_phase(progress, short=width < _WIDE)}", style="green")
    grid = Table.grid(padding=(0, 1))
    steps = current.measure.steps
    grid.add_row(ProgressBar(total=steps, completed=progress.step, width=10), f"{progress.step}/{steps}")
    return grid


def describe_phase(progress: RunProgress, short: bool) -> str:
    """Return where the current trial is: ``epoch 3/10 · step 120/390 · valid 0.71``; ``short``: ``3/10 · 120/390``."""
    assert progress.current is not None
    trial = progress.current.trial
    kind, _, number = progress.phase.partition(" ")
    if kind not in (_EPOCH, _VALIDATION) or progress.facts is None:
        name = _PHASE_NAMES.get(progress.phase, progress.phase)
        return f"{name} {progress.step}" if progress.step else name
    parts = [f"{kind} {number}/{trial.config.epochs}"]
    if kind == _EPOCH:
        steps = f"{progress.step}/{_count_steps_per_epoch(trial, progress.facts)}"
        parts = [parts[0].removeprefix("epoch "), steps] if short else [*parts, f"step {steps}"]
    if progress.epochs and not short:
        parts.append(f"valid {progress.epochs[-1].valid_accuracy:.2f}")
    return " · ".join(parts)


def _count_steps_per_epoch(trial: Trial, facts: DatasetFacts) -> int:
    """Return the steps of a rank in an epoch, as worker/data/batches.py counts them."""
    return facts.train // trial.config.global_batch(trial.devices)
