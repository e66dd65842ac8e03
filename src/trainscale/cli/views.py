"""What a run shows: tables and lines for people, events for programs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..analyse.checks import OTHER_CORES
from ..analyse.race import count_most_rounds
from ..analyse.series import drop_superseded
from ..analyse.statistics import Interval, mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured, list_speeds
from ..analyse.titles import make_strategy_labels
from ..launch.trial.state import TrialState
from ..measure.measure import RunListener, RunView
from ..measure.order import NextTrial, choose_next_trial, find_hopeless_points, replay_races_of_plan
from ..record.decoding import find_first_line, remove_unprintable
from ..record.journal import Journal
from ..record.parity import UNPROVEN
from ..record.trial import IMAGES, SKIPPED, Epoch, TrialRecord
from ..report.numbers import format_count, format_rough_duration
from ..runs import Run
from ..spec.config import Config, PointKey, Trial
from ..spec.plan import LEAST_ROUNDS, Plan
from ..worker.type_aliases import JsonObject
from .parser import Parser

if TYPE_CHECKING:
    from rich.console import RenderableType

TEXT, QUIET, JSON = "text", "quiet", "json"
EVENTS_SCHEMA = 1
_LONG_RUN_SECONDS = 1200.0
_LEAST_SECONDS = 1.0  # between two events about the steps of a trial
_NOW_WIDTH, _LEAST_MODEL_WIDTH, _GAP = 22, 8, 2  # columns of the table
_EPOCH, _VALIDATION = "epoch", "validation"  # phases with a number (worker/training/loop.py)
_MOST_WARNINGS = 3  # under the table; the report has all
# For phases whose own name does not say what happens.
_PHASE_NAMES = {"resident": "on one batch", "exchange": "exchange alone", "batches": "other batches"}


def add_view_flags(parser: Parser) -> None:
    events = "print events as JSON, one per line, for other programs"
    abouts = {JSON: events, QUIET: "print only the directory of the results, and errors"}
    add = parser.add_mutually_exclusive_group().add_argument
    for style, about in abouts.items():
        add(f"--{style}", dest="style", action="store_const", const=style, default=TEXT, help=about)


# ---- the state behind every display


class RunProgress(RunListener):
    """``remote_job`` names the job that measures the run, if not this process."""

    def __init__(self, plan: Plan, journal: Journal, remote_job: str = "") -> None:
        self.plan = plan
        self.measurement = plan.experiment.measurement
        self.journal = journal
        self.remote_job = remote_job
        self.current: NextTrial | None = None
        self.phase = ""
        self.step = 0  # within the phase
        self.epochs: list[Epoch] = []  # of the current trial
        self.new_epochs: list[Epoch] = []
        self.warnings: list[str] = []  # of all trials since the display began
        self.new_warnings: list[str] = []  # of the last trial
        self.began = time.monotonic()
        # Read once: photographs are counted on the disk.
        self.facts = plan.dataset.facts if plan.dataset.is_real else None
        self._estimates = {point: plan.estimate_seconds(*point) for point in plan.points}
        for point in plan.further_points:
            self._estimates[point.point] = plan.estimate_seconds(*point.point, point.measure)

        # Of a network: the strategy, and the batch if it has several.
        self._names = self.labels = make_strategy_labels(plan.configs)
        networks = {config.model for config in plan.configs}
        if len({(config.model, config.batch) for config in plan.configs}) > len(networks):
            self.labels = {config: f"{label} b{config.batch}" for config, label in self.labels.items()}

    def name_config(self, config: Config) -> str:
        """The strategy comes with the other settings in which configs differ."""
        traits = self._names.get(config, config.strategy_label)
        return f"{config.framework} {config.model} b{config.batch} {traits}"

    def name_trial(self, trial: Trial) -> str:
        return f"{self.name_config(trial.config)} · {trial.label.partition(' · ')[2]}"

    # ---- the events of a run

    def trial_begins(self, trial: NextTrial) -> None:
        self.current, self.epochs = trial, []
        self.phase, self.step = "under way" if self.remote_job else "start", 0

    def expectation_begins(self, line: str) -> None:
        self.phase = "reference"

    def trial_moves(self, state: TrialState) -> None:
        self.phase, self.step = state.slowest_worker.phase, state.slowest_worker.step
        self.new_epochs = state.epochs[len(self.epochs) :]
        self.epochs = [*state.epochs]

    def trial_ends(self, record: TrialRecord) -> None:
        """Note what a person may want to act on now."""
        self.current = None
        warnings, name = [], self.name_trial(record.trial)
        if not record.ok and record.status != SKIPPED:
            reason = find_first_line(record.failure.message) if record.failure else ""
            warnings.append(f"{name}: {record.status}: {reason}".removesuffix(": "))
        cores = record.machine.other_cores or 0.0
        if record.ok and cores > OTHER_CORES:
            warnings.append(f"other programs used {cores:.1f} cores during {name}")
        if record.ok and record.witness and record.witness.state == UNPROVEN:
            warnings.append(f"it is not proven that the trials did their work: {record.witness.reason}")
        warnings += map(remove_unprintable, record.notes)
        self.new_warnings = [line for line in warnings if line not in self.warnings]
        self.warnings += self.new_warnings

    # ---- what has been measured

    def select_records(self, config: Config, devices: int) -> list[TrialRecord]:
        return [record for record in self.journal.records if record.trial.point == (config, devices)]

    def compute_speed(self, records: Sequence[TrialRecord]) -> Interval | None:
        """Return samples per second of all devices; None if no trial has a result."""
        speeds = list_speeds(records)
        return mean_interval(speeds, self.measurement.is_sequential) if speeds else None

    @property
    def is_search(self) -> bool:
        return self.measurement.search is not None

    def find_departures(self) -> dict[PointKey, str]:
        """Return the points that left a search so far, and why."""
        if not self.is_search:
            return {}
        from ..report.run_tables import describe_departure

        reasons = {}
        for race in replay_races_of_plan(self.plan, self.journal.records):
            for departure in race.departures:
                reasons[departure.key, race.devices] = describe_departure(departure)
        return reasons

    # ---- what is left

    @property
    def planned_trials(self) -> int | None:
        """Trials on the ladders; None where the results decide the number."""
        if self.measurement.is_sequential or self.is_search:
            return None
        return self.measurement.repeats * len(self.plan.points)

    @property
    def finished_trials(self) -> int:
        """Those beside the ladders count only where no number is planned."""
        points, counts_all = set(self.plan.points), self.planned_trials is None
        return sum(counts_all or record.trial.point in points for record in self.journal.records)

    @property
    def trials(self) -> str:
        """``12 of 40 trials``, or ``12 trials`` where the results decide the number."""
        done, planned = self.finished_trials, self.planned_trials
        return format_count(done, "trial") if planned is None else f"{done} of {planned} trials"

    def estimate_remaining_seconds(self) -> float:
        """Estimate by what each point has taken, else by the plan and its error so far."""
        measurement, records, total = self.measurement, self.journal.records, 0.0
        if self.is_search:  # if no further candidate leaves
            durations = [record.seconds for record in records if record.ok]
            done = Counter(record.trial.point for record in records if record.trial.short)
            for race in replay_races_of_plan(self.plan, records):
                points = [(config, race.devices) for config in race.running]
                usual = max((self._estimates[point] for point in points), default=0.0)
                usual = fmean(durations) if durations else usual
                if race.waiting:
                    rounds = count_most_rounds(measurement.repeats)
                    total += usual * sum(max(0, rounds - done[point]) for point in points)
                total += usual * measurement.repeats
            return max(0.0, total - sum(record.seconds for record in records if not record.trial.short))
        further = {point.point: point.repeats for point in self.plan.further_points}
        least = measurement.repeats if measurement.until_interval is None else LEAST_ROUNDS
        repeats = {**dict.fromkeys(self.plan.points, least), **further}
        if measurement.budget is not None:
            ladder = [record.seconds for record in records if record.trial.point not in further]
            repeats, total = further, max(0.0, measurement.budget - sum(ladder))
        hopeless = find_hopeless_points(records)
        good = [record for record in records if record.ok and record.trial.point in self._estimates]
        planned = sum(self._estimates[record.trial.point] for record in good)
        scale = sum(record.seconds for record in good) / planned if planned else 1.0
        for point, count in repeats.items():
            seconds = [record.seconds for record in self.select_records(*point)]
            missing = 0 if point in hopeless else max(0, count - len(seconds))
            total += missing * (fmean(seconds) if seconds else scale * self._estimates[point])
        return total


# ---- for people


def make_progress_table(progress: RunProgress, width: int) -> RenderableType:
    """Return the table that fills up on a terminal, and the lines under it."""
    from rich.console import Group  # here, because the help of a command is shown without it
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from .tables import make_table, number, text

    plan, measurement = progress.plan, progress.measurement
    has_epochs = any(config.epochs for config in plan.configs)
    units = {record.unit for record in progress.journal.records} or {IMAGES}
    unit = units.pop() if len(units) == 1 else "samples"
    spread = {"valid": 6} if has_epochs else {"±": 5}  # training is seldom repeated
    numbers = {"devices": 7, f"{unit}/s": 8, **spread, "trials": 6}
    further = [point.config.strategy_label for point in plan.further_points]
    strategy = max(map(len, (*progress.labels.values(), *further)))
    # The model's name gets the width that the others leave.
    taken = sum(least + _GAP for least in (max(strategy, 8), *numbers.values(), _NOW_WIDTH))
    widest = max(_LEAST_MODEL_WIDTH, width - taken - _GAP)
    table = make_table(
        text("model", max_width=widest),
        text("strategy", min_width=strategy),
        *(number(name, min_width=least) for name, least in numbers.items()),
        text("now", min_width=_NOW_WIDTH),
        gap=_GAP,
    )

    departures = progress.find_departures()
    repeats = "" if measurement.is_sequential or progress.is_search else f"/{measurement.repeats}"
    rows = [(config, devices, repeats) for config, devices in plan.points]
    rows += [(*point.point, f"/{point.repeats}") for point in plan.further_points]
    for config, devices, planned in rows:
        records = progress.select_records(config, devices)
        interval = progress.compute_speed(drop_superseded(records))
        cells = [f"{interval.mean:,.4g}" if interval else "", ""]
        current = progress.current
        if current and current.trial.point != (config, devices):
            current = None
        accuracies = [record.epochs[-1].valid_accuracy for record in records if record.epochs]
        if current and progress.epochs:
            cells[1] = f"{progress.epochs[-1].valid_accuracy:.4f}"
        elif accuracies:
            cells[1] = f"{fmean(accuracies):.4f}"
        elif not has_epochs and interval and interval.relative is not None:
            cells[1] = f"±{interval.relative:.0%}"
        failed = [record for record in records if not record.ok]
        now: RenderableType
        if current and progress.phase == "measure" and current.measure.seconds is None:
            steps = current.measure.steps
            now = Table.grid(padding=(0, 1))
            bar = ProgressBar(total=steps, completed=progress.step, width=10)
            now.add_row(bar, f"{progress.step}/{steps}")
        elif current:
            now = Text(f"● {describe_phase(progress)}", style="green")
        elif failed:
            now = Text(failed[-1].status, style="red")
        else:
            now = Text("left" if (config, devices) in departures else "", style="dim")
        label = progress.labels.get(config, config.strategy_label)
        table.add_row(config.model, label, str(devices), *cells, f"{len(records)}{planned}", now)
    passed, remaining = time.monotonic() - progress.began, progress.estimate_remaining_seconds()
    leave = "Ctrl-C stops, nothing is lost"
    if progress.remote_job:
        leave = f"Ctrl-C leaves, {progress.remote_job} goes on"
    times = f"{format_rough_duration(passed)} passed, about {format_rough_duration(remaining)} to go"
    warnings = [Text(f"warning: {text}", style="yellow") for text in progress.warnings[-_MOST_WARNINGS:]]
    return Group(table, *warnings, Text(f"{progress.trials} · {times} · {leave}", style="dim"))


def describe_phase(progress: RunProgress) -> str:
    """Return where the current trial is, such as ``epoch 3/10 · 120/390``."""
    assert progress.current is not None
    trial = progress.current.trial
    kind, _, number = progress.phase.partition(" ")
    if kind not in (_EPOCH, _VALIDATION) or progress.facts is None:
        name = _PHASE_NAMES.get(progress.phase, progress.phase)
        return f"{name} {progress.step}" if progress.step else name
    text = f"{kind} {number}/{trial.config.epochs}"
    if kind == _VALIDATION:
        return text
    # The steps of a rank in an epoch, as worker/data/loader.py counts them.
    steps = progress.facts.train // trial.config.global_batch(trial.devices)
    return f"{text} · {progress.step}/{steps}"


class LinePrinter(RunProgress):
    def __init__(self, plan: Plan, journal: Journal, remote_job: str = "") -> None:
        super().__init__(plan, journal, remote_job)
        self._departed = set(self.find_departures())

    def expectation_begins(self, line: str) -> None:
        print(line, flush=True)

    def trial_moves(self, state: TrialState) -> None:
        super().trial_moves(state)
        for epoch in self.new_epochs:
            number = f"epoch {epoch.epoch}/{state.trial.config.epochs}"
            accuracies = f"train {epoch.train_accuracy:.4f}, valid {epoch.valid_accuracy:.4f}"
            name = f"{self.name_trial(state.trial)} · {number}"
            print(f"{name}: {accuracies} ({epoch.seconds:.1f} s)", flush=True)

    def trial_ends(self, record: TrialRecord) -> None:
        super().trial_ends(record)
        if record.ok:
            outcome = f"{compute_samples_per_second(record):,.4g} {record.unit}/s"
            if record.epochs:
                outcome += f", valid {record.epochs[-1].valid_accuracy:.4f}"
        else:
            outcome = f"{record.status}: {record.failure.message if record.failure else ''}"
        print(f"{self.name_trial(record.trial)}: {outcome} ({record.seconds:.0f} s)", flush=True)
        for warning in self.new_warnings if record.ok else ():  # the line above has a failure
            print(f"  warning: {warning}", flush=True)
        for point, reason in self.find_departures().items():
            if point not in self._departed:
                self._departed.add(point)
                print(f"  left: {self.name_config(point[0])}: {reason}", flush=True)


# ---- for programs


class EventPrinter(RunProgress):
    """Prints every event as a line of JSON, as docs/running.md describes it."""

    def __init__(self, plan: Plan, journal: Journal, location: str, remote_job: str = "") -> None:
        super().__init__(plan, journal, remote_job)
        self._last_phase, self._last_time = "", 0.0
        points = [
            {
                "config_key": config.key,
                "config": config.to_dict(),
                "devices": devices,
                "trials": len(self.select_records(config, devices)),
            }
            for config, devices in plan.points
        ]
        print_event(
            "run-begins",
            schema=EVENTS_SCHEMA,
            directory=location,
            points=points,
            trials=self.finished_trials,
            planned_trials=self.planned_trials,
        )

    def expectation_begins(self, line: str) -> None:
        print_event("message", message=line)

    def trial_begins(self, trial: NextTrial) -> None:
        super().trial_begins(trial)
        self._last_phase = ""
        print_event("trial-begins", **_identify(trial.trial))

    def trial_moves(self, state: TrialState) -> None:
        super().trial_moves(state)
        now = time.monotonic()
        if self.phase != self._last_phase or now - self._last_time >= _LEAST_SECONDS:
            self._last_phase, self._last_time = self.phase, now
            print_event("trial-moves", **_identify(state.trial), phase=self.phase, step=self.step)

    def trial_ends(self, record: TrialRecord) -> None:
        super().trial_ends(record)
        of_point = self.select_records(*record.trial.point)
        trials = [each for each in of_point if each.trial.short == record.trial.short]
        interval, repeats = self.compute_speed(trials), sum(map(is_measured, trials))
        point = {"mean": interval.mean, "low": interval.low, "high": interval.high} if interval else None
        print_event(
            "trial-ends",
            **_identify(record.trial),
            status=record.status,
            failure=record.failure.message if record.failure else None,
            seconds=record.seconds,
            unit=record.unit,
            samples_per_second=compute_samples_per_second(record) if is_measured(record) else None,
            point={**point, "repeats": repeats} if point else None,
            trials=self.finished_trials,
            planned_trials=self.planned_trials,
            seconds_left=self.estimate_remaining_seconds(),
        )
        for warning in self.new_warnings:
            print_event("warning", message=warning)


def print_event(event: str, **values: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    document = {"event": event, "time": now, **values}
    print(json.dumps(document, allow_nan=False, ensure_ascii=False), flush=True)


def _identify(trial: Trial) -> JsonObject:
    return {
        "trial": trial.key,
        "config_key": trial.config.key,
        "devices": trial.devices,
        "repeat": trial.repeat,
        "short": trial.short,
        "label": trial.label,
    }


# ---- what the commands show


def describe_kept(count: int) -> str:
    return f"{count} finished trial{'s are' if count != 1 else ' is'} kept"


@dataclass
class CommandView(RunView):
    style: str = TEXT
    location: str = ""  # where the journal of a watched run is
    remote_job: str = ""  # the name of what measures it
    explains: bool = False  # whether the tables are followed by where the efficiency went
    prints_summary: bool = False  # whether to print the lines of --summary-line
    exit_code: int = 0

    def show_message(self, line: str) -> None:
        if self.style == JSON:
            print_event("message", message=line)
        elif self.style == TEXT:
            print(line, flush=True)

    @contextmanager
    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool = False) -> Iterator[RunListener]:
        if self.style == QUIET:
            yield RunListener()
            return
        if self.style == JSON:
            yield EventPrinter(plan, journal, self.location or str(journal.directory), self.remote_job)
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        kind = RunProgress if console.is_terminal else LinePrinter
        progress = kind(plan, journal, self.remote_job)
        if self.location:
            print(f"watching {self.location}: {progress.trials} in the journal", flush=True)
        elif not self.remote_job:
            lines = f"[bold]trainscale[/] on {plan.available.description}, results in {journal.directory}/"
            recorded = [record for record in journal.records if record.ok or not retry_failed]
            remaining = progress.estimate_remaining_seconds()
            if choose_next_trial(plan, recorded) is None:
                count = len(journal.records)
                lines += f"\nall {count} trials are in the journal already; --fresh measures anew"
            else:
                if recorded:
                    lines += f"\ncontinuing: {len(recorded)} trials are in the journal"
                if plan.experiment.measurement.budget is None and remaining > _LONG_RUN_SECONDS:
                    duration = format_rough_duration(remaining)
                    advice = "--budget 5m gives a first answer in five minutes"
                    lines += f"\nvery roughly {duration} to go; {advice}"
            console.print(lines, soft_wrap=True)
        if not console.is_terminal:
            yield progress
            return
        with Live(
            get_renderable=lambda: make_progress_table(progress, console.width),
            console=console,
            refresh_per_second=4,
            transient=True,
        ):
            yield progress

    def end(self, run: Run, interruption: str | None, exit_code: int) -> None:
        from .report import print_results, print_summary_lines

        self.exit_code = exit_code
        location = self.location or str(run.directory)
        if self.style == TEXT:
            print_results([run], location)
        if interruption is not None:
            reason = f": {interruption}" if interruption else ""
            kept = describe_kept(len(run.records))
            self.show_message(f"stopped{reason}; {kept}; the same command continues")
        elif self.style == TEXT and self.explains:
            from ..questions.explain.explain import explain_records, make_explaining_command
            from ..questions.explain.text import render_document

            if points := explain_records(run.records):
                print(render_document(points, make_explaining_command(run.info), "text"), end="")
        if self.prints_summary:
            print_summary_lines(run)
        if self.style == JSON:
            from ..questions.explain.text import list_closing_verdicts

            verdicts = list_closing_verdicts(run.info, run.records)
            print_event("run-ends", directory=location, verdicts=verdicts, exit_code=exit_code)
        elif self.style == QUIET:
            print(location)
