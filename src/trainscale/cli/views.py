"""What a run shows: tables and lines for people, events for programs, or only its directory."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from ..analyse.checks import OTHER_CORES
from ..analyse.race import count_most_rounds
from ..analyse.statistics import Interval, mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured, list_speeds
from ..analyse.titles import make_strategy_labels
from ..launch.trial.state import TrialState
from ..measure.measure import RunListener, RunView
from ..measure.order import NextTrial, choose_next_trial, find_hopeless_points, replay_races_of_plan
from ..record.decoding import find_first_line, remove_unprintable
from ..record.journal import Journal
from ..record.parity import UNPROVEN
from ..record.trial import SKIPPED, Epoch, TrialRecord
from ..report.numbers import format_count, format_rough_duration
from ..runs import Run
from ..spec.config import Config, PointKey, Trial
from ..spec.plan import LEAST_ROUNDS, Plan
from ..worker.type_aliases import JsonObject
from .parser import Parser

TEXT, QUIET, JSON = "text", "quiet", "json"
EVENTS_SCHEMA = 1
_LONG_RUN_SECONDS = 1200.0
_LEAST_SECONDS = 1.0  # between two events about the steps of a trial


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
        """Return its framework, model, batch, strategy, and the other settings in which configs differ."""
        return f"{config.framework} {config.model} b{config.batch} {self._names.get(config, config.strategy_label)}"

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
        warnings = []
        if not record.ok and record.status != SKIPPED:
            reason = find_first_line(record.failure.message) if record.failure else ""
            warnings.append(f"{self.name_trial(record.trial)}: {record.status}: {reason}".removesuffix(": "))
        cores = record.machine.other_cores or 0.0
        if record.ok and cores > OTHER_CORES:
            warnings.append(f"other programs used {cores:.1f} cores during {self.name_trial(record.trial)}")
        if record.ok and record.witness and record.witness.state == UNPROVEN:
            warnings.append(f"it is not proven that the trials did their work: {record.witness.reason}")
        warnings += map(remove_unprintable, record.notes)
        self.new_warnings = [text for text in warnings if text not in self.warnings]
        self.warnings += self.new_warnings

    # ---- what has been measured

    def select_records(self, config: Config, devices: int) -> list[TrialRecord]:
        return [record for record in self.journal.records if record.trial.point == (config, devices)]

    def compute_speed(self, records: Sequence[TrialRecord]) -> Interval | None:
        """Return samples per second of all devices; None if no trial has a result."""
        speeds = list_speeds(records)
        return mean_interval(speeds, self.plan.experiment.measurement.is_sequential) if speeds else None

    @property
    def is_search(self) -> bool:
        return self.plan.experiment.measurement.search is not None

    def find_departures(self) -> dict[PointKey, str]:
        """Return the points that left a search so far, and why."""
        if not self.is_search:
            return {}
        from ..report.run_tables import describe_departure

        races = replay_races_of_plan(self.plan, self.journal.records)
        return {
            (departure.key, race.devices): describe_departure(departure)
            for race in races
            for departure in race.departures
        }

    # ---- what is left

    @property
    def planned_trials(self) -> int | None:
        """Trials on the ladders; None where the results decide the number."""
        measurement = self.plan.experiment.measurement
        if measurement.is_sequential or self.is_search:
            return None
        return measurement.repeats * len(self.plan.points)

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
        """Estimate by what each point has taken, else by the plan and how wrong it has been so far."""
        measurement, records, total = self.plan.experiment.measurement, self.journal.records, 0.0
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
            print(f"{self.name_trial(state.trial)} · {number}: {accuracies} ({epoch.seconds:.1f} s)", flush=True)

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
        trials = [r for r in self.select_records(*record.trial.point) if r.trial.short == record.trial.short]
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
    print(json.dumps({"event": event, "time": now, **values}, allow_nan=False, ensure_ascii=False), flush=True)


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

        from .live import make_progress_table

        console = Console(highlight=False)
        kind = RunProgress if console.is_terminal else LinePrinter
        progress = kind(plan, journal, self.remote_job)
        if self.location:
            print(f"watching {self.location}: {progress.trials} in the journal", flush=True)
        elif not self.remote_job:
            text = f"[bold]trainscale[/] on {plan.available.description}, results in {journal.directory}/"
            recorded = [record for record in journal.records if record.ok or not retry_failed]
            remaining = progress.estimate_remaining_seconds()
            if choose_next_trial(plan, recorded) is None:
                count = len(journal.records)
                text += f"\nall {count} trials are in the journal already; --fresh measures anew"
            else:
                if recorded:
                    text += f"\ncontinuing: {len(recorded)} trials are in the journal"
                if plan.experiment.measurement.budget is None and remaining > _LONG_RUN_SECONDS:
                    duration = format_rough_duration(remaining)
                    text += f"\nvery roughly {duration} to go; --budget 5m gives a first answer in five minutes"
            console.print(text, soft_wrap=True)
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
            self.show_message(f"stopped{reason}; {describe_kept(len(run.records))}; the same command continues")
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
