"""The view while a run goes on: a table that fills up on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING

from ..analyse.statistics import mean_interval
from ..analyse.throughput import is_measured, samples_per_second
from ..launch.trial.state import TrialState
from ..record.journal import Journal
from ..record.trial import Epoch, TrialRecord
from ..report.numbers import rough_duration
from ..run.measure import RunListener
from ..run.order import NextTrial, hopeless_points, next_trial
from ..spec.config import Config, Trial
from ..spec.plan import Plan
from ..worker.data.facts import DatasetFacts

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LONG_RUN_SECONDS = 1200.0
_WIDE = 115  # columns of a terminal, from which on an epoch is told in full
_NOW, _LEAST_NAME, _GAP = 18, 8, 2  # columns of the last cell, of a model's name at least, and between cells
_EPOCH, _VALIDATION = "epoch", "validation"  # phases with a number behind them (worker/training/learning.py)
_PHASES = {"resident": "on one batch"}  # whose names alone do not say what goes on


@contextmanager
def live(plan: Plan, journal: Journal, retry_failed: bool = False, elsewhere: str = "") -> Iterator[RunListener]:
    """``elsewhere``: in words, where a run goes on that is only looked at from here."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    progress = Progress(plan, journal, elsewhere)
    if not elsewhere:
        console.print(_opening(plan, journal, progress, retry_failed), soft_wrap=True)
    if not console.is_terminal:
        yield _lines(console, progress)
        return
    with Live(
        get_renderable=lambda: _table(progress, console.width), console=console, refresh_per_second=4, transient=True
    ):
        yield RunListener(progress.begins, progress.moves, progress.ends)


class Progress:
    """What has been measured and what is going on now."""

    def __init__(self, plan: Plan, journal: Journal, elsewhere: str = "") -> None:
        self.plan = plan
        self.journal = journal
        self.elsewhere = elsewhere
        self.step: NextTrial | None = None
        self.phase = ""
        self.number = 0
        self.epochs: Sequence[Epoch] = ()  # of the trial that goes on
        self.began = time.monotonic()
        # Asked for once: the facts of a folder of photographs are counted on the disk, a view is drawn often.
        self.facts = plan.dataset.facts() if plan.dataset.is_real else None
        self._guesses = {point: plan.trial_seconds(*point) for point in plan.points}

    def begins(self, step: NextTrial) -> None:
        self.step, self.phase, self.number = step, "under way" if self.elsewhere else "start", 0
        self.epochs = ()

    def moves(self, state: TrialState) -> None:
        self.phase, self.number = state.slowest_worker.phase, state.slowest_worker.step
        self.epochs = tuple(state.epochs)

    def ends(self, record: TrialRecord) -> None:
        self.step = None

    def records(self, config: Config, devices: int) -> list[TrialRecord]:
        return [record for record in self.journal.records if record.trial.point == (config, devices)]

    def speed(self, config: Config, devices: int) -> tuple[str, str]:
        """Images per second of the cluster, and its ±."""
        good = [samples_per_second(record) for record in self.records(config, devices) if is_measured(record)]
        if not good:
            return "", ""
        interval = mean_interval(good)
        return f"{interval.mean:,.4g}", "" if interval.relative is None else f"±{interval.relative:.0%}"

    def accuracy(self, config: Config, devices: int) -> str:
        """After the last epoch, on the validation images: of the trial under way, else the mean of finished ones."""
        if self.epochs and self.step and self.step.trial.point == (config, devices):
            return f"{self.epochs[-1].valid_accuracy:.4f}"
        found = [record.epochs[-1].valid_accuracy for record in self.records(config, devices) if record.epochs]
        return f"{fmean(found):.4f}" if found else ""

    def seconds_left(self) -> float:
        """By what each point has taken so far, or else by the plan's guess."""
        budget = self.plan.experiment.measurement.budget
        if budget is not None:
            return max(0.0, budget - sum(record.seconds for record in self.journal.records))
        hopeless = hopeless_points(self.journal.records)
        left = 0.0
        for config, n in self.plan.points:
            records = self.records(config, n)
            missing = 0 if (config, n) in hopeless else self.plan.experiment.measurement.repeats - len(records)
            taken = [record.seconds for record in records]
            left += missing * (sum(taken) / len(taken) if taken else self._guesses[config, n])
        return left


def _opening(plan: Plan, journal: Journal, progress: Progress, retry_failed: bool) -> str:
    words = f"[bold]trainscale[/] on {plan.available.description}, results in {journal.directory}/"
    kept = [record for record in journal.records if record.ok or not retry_failed]
    if next_trial(plan, kept) is None:
        return f"{words}\nall {len(journal.records)} trials are in the journal already; --fresh measures anew"
    if kept:
        words += f"\ncontinuing: {len(kept)} trials are in the journal"
    left = progress.seconds_left()
    if plan.experiment.measurement.budget is None and left > _LONG_RUN_SECONDS:
        words += f"\nvery roughly {rough_duration(left)} to go; --budget 5m gives a first answer in five minutes"
    return words


def _lines(console: Console, progress: Progress) -> RunListener:
    """For a pipe or a log file: a line for every epoch and every trial."""
    told = 0

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    def begins(step: NextTrial) -> None:
        nonlocal told
        progress.begins(step)
        told = 0

    def moves(state: TrialState) -> None:
        nonlocal told
        progress.moves(state)
        for epoch in state.epochs[told:]:
            say(
                f"{state.trial.label} · epoch {epoch.epoch}/{state.trial.config.epochs}:"
                f" train {epoch.train_accuracy:.4f}, valid {epoch.valid_accuracy:.4f} ({epoch.seconds:.1f} s)"
            )
        told = len(state.epochs)

    def ends(record: TrialRecord) -> None:
        progress.ends(record)
        if record.ok:
            learnt = f", valid {record.epochs[-1].valid_accuracy:.4f}" if record.epochs else ""
            said = f"{samples_per_second(record):,.4g} {record.unit}/s{learnt}"
        else:
            said = f"{record.status}: {record.failure.message if record.failure else ''}"
        say(f"{record.trial.label}: {said} ({record.seconds:.0f} s)")

    return RunListener(begins, moves, ends)


def _table(progress: Progress, width: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    learns = any(config.epochs for config in progress.plan.configs)
    # On a narrow terminal only the names of models give way, and what is mostly empty: training is seldom repeated.
    spread = not learns or width >= _WIDE
    columns = {
        "devices": 7,
        "images/s": 8,
        **({"±": 5} if spread else {}),
        **({"valid": 6} if learns else {}),
        "trials": 6,
    }
    strategy = max(len(config.strategy_label) for config in progress.plan.configs)
    taken = sum(least + _GAP for least in (max(strategy, 8), *columns.values(), _NOW))
    table = Table(box=None, padding=(0, _GAP, 0, 0))
    table.add_column("model", no_wrap=True, max_width=max(_LEAST_NAME, width - taken - _GAP))
    table.add_column("strategy", no_wrap=True, min_width=strategy)
    for name, least in columns.items():
        table.add_column(name, justify="right", no_wrap=True, min_width=least)
    table.add_column("now", min_width=_NOW, no_wrap=True)
    for config, n in progress.plan.points:
        records = progress.records(config, n)
        failed = [record for record in records if not record.ok]
        measurement = progress.plan.experiment.measurement
        wanted = "" if measurement.budget is not None else f"/{measurement.repeats}"
        now = _now(progress, config, n, width) or Text(failed[-1].status if failed else "", style="red")
        speed = progress.speed(config, n)[: 2 if spread else 1]
        accuracy = [progress.accuracy(config, n)] if learns else []
        trials = f"{len(records)}{wanted}"
        table.add_row(config.model, config.strategy_label, str(n), *speed, *accuracy, trials, now)
    passed = time.monotonic() - progress.began
    left = rough_duration(progress.seconds_left())
    leave = f"Ctrl-C leaves, {progress.elsewhere} goes on" if progress.elsewhere else "Ctrl-C stops, nothing is lost"
    foot = f"{rough_duration(passed)} passed, about {left} to go · {leave}"
    return Group(table, Text(foot, style="dim"))


def _now(progress: Progress, config: Config, devices: int, width: int) -> RenderableType | None:
    step = progress.step
    if step is None or step.trial.point != (config, devices):
        return None
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if progress.phase != "measure" or step.measure.seconds is not None:
        return Text(f"● {phase_words(progress, short=width < _WIDE)}", style="green")
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=step.measure.steps, completed=progress.number, width=10),
                 f"{progress.number}/{step.measure.steps}")  # fmt: skip
    return grid


def phase_words(progress: Progress, short: bool) -> str:
    """Where the trial under way is: ``epoch 3/10 · step 120/390 · valid 0.71``; ``short``: ``3/10 · 120/390``."""
    assert progress.step is not None
    trial = progress.step.trial
    kind, _, number = progress.phase.partition(" ")
    if kind not in (_EPOCH, _VALIDATION) or progress.facts is None:
        named = _PHASES.get(progress.phase, progress.phase)
        return f"{named} {progress.number}" if progress.number else named
    parts = [f"{kind} {number}/{trial.config.epochs}"]
    if kind == _EPOCH:
        taken = f"{progress.number}/{_steps(trial, progress.facts)}"
        parts = [parts[0].removeprefix("epoch "), taken] if short else [*parts, f"step {taken}"]
    if progress.epochs and not short:
        parts.append(f"valid {progress.epochs[-1].valid_accuracy:.2f}")
    return " · ".join(parts)


def _steps(trial: Trial, facts: DatasetFacts) -> int:
    """Of every rank in an epoch, as worker/data/sampling.py counts them."""
    return facts.train // trial.config.global_batch(trial.devices)
