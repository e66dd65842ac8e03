"""The table on a terminal that fills up while a run goes on."""

import time
from statistics import fmean

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..analyse.series import drop_superseded
from ..record.trial import IMAGES
from ..report.numbers import format_rough_duration
from .tables import make_table, number, text
from .views import RunProgress

_NOW_WIDTH, _LEAST_MODEL_WIDTH, _GAP = 22, 8, 2  # columns
_EPOCH, _VALIDATION = "epoch", "validation"  # phases with a number (worker/training/loop.py)
_MOST_WARNINGS = 3  # under the table; the report has all
# For phases whose own name does not say what happens.
_PHASE_NAMES = {"resident": "on one batch", "exchange": "exchange alone", "batches": "other batches"}


def make_progress_table(progress: RunProgress, width: int) -> RenderableType:
    """Return the table of all points and the lines under it."""
    plan, measurement = progress.plan, progress.plan.experiment.measurement
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
            now.add_row(ProgressBar(total=steps, completed=progress.step, width=10), f"{progress.step}/{steps}")
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
