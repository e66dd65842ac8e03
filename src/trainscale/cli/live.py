"""The view while a run goes on: a table that fills up on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..analyse.statistics import mean_interval
from ..analyse.throughput import images_per_second
from ..launch.observe import Observer
from ..record.journal import Journal
from ..record.trial import TrialRecord
from ..run.conduct import Listener
from ..run.order import Step, given_up, next_step
from ..spec.config import Config
from ..spec.plan import Plan
from .words import time_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LONG_RUN_SECONDS = 1200.0


@contextmanager
def live(plan: Plan, journal: Journal, retry_failed: bool = False, elsewhere: str = "") -> Iterator[Listener]:
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
    with Live(get_renderable=lambda: _table(progress), console=console, refresh_per_second=4, transient=True):
        yield Listener(progress.begins, progress.moves, progress.ends)


class Progress:
    """What has been measured and what is going on now."""

    def __init__(self, plan: Plan, journal: Journal, elsewhere: str = "") -> None:
        self.plan = plan
        self.journal = journal
        self.elsewhere = elsewhere
        self.step: Step | None = None
        self.phase = ""
        self.number = 0
        self.began = time.monotonic()

    def begins(self, step: Step) -> None:
        self.step, self.phase, self.number = step, "under way" if self.elsewhere else "start", 0

    def moves(self, observer: Observer) -> None:
        self.phase, self.number = observer.step

    def ends(self, record: TrialRecord) -> None:
        self.step = None

    def records(self, config: Config, devices: int) -> list[TrialRecord]:
        return [record for record in self.journal.records if record.trial.point == (config, devices)]

    def speed(self, config: Config, devices: int) -> tuple[str, str]:
        """Images per second of the cluster, and its ±."""
        good = [images_per_second(record) for record in self.records(config, devices) if record.ok]
        if not good:
            return "", ""
        interval = mean_interval(good)
        return f"{interval.mean:,.4g}", "" if interval.relative is None else f"±{interval.relative:.0%}"

    def seconds_left(self) -> float:
        """By what each point has taken so far, or else by the plan's guess."""
        budget = self.plan.experiment.budget
        if budget is not None:
            return max(0.0, budget - sum(record.seconds for record in self.journal.records))
        hopeless = given_up(self.journal.records)
        left = 0.0
        for config, n in self.plan.points:
            records = self.records(config, n)
            missing = 0 if (config, n) in hopeless else self.plan.experiment.repeats - len(records)
            taken = [record.seconds for record in records]
            left += missing * (sum(taken) / len(taken) if taken else self.plan.trial_seconds(config, n))
        return left


def _opening(plan: Plan, journal: Journal, progress: Progress, retry_failed: bool) -> str:
    words = f"[bold]trainscale[/] on {plan.supply.words}, results in {journal.directory}/"
    kept = [record for record in journal.records if record.ok or not retry_failed]
    if next_step(plan, kept) is None:
        return f"{words}\nall {len(journal.records)} trials are in the journal already; --fresh measures anew"
    if kept:
        words += f"\ncontinuing: {len(kept)} trials are in the journal"
    left = progress.seconds_left()
    if plan.experiment.budget is None and left > _LONG_RUN_SECONDS:
        words += f"\nvery roughly {time_words(left)} to go; --budget 5m gives a first answer in five minutes"
    return words


def _lines(console: Console, progress: Progress) -> Listener:
    """For a pipe or a log file."""

    def ends(record: TrialRecord) -> None:
        progress.ends(record)
        if record.ok:
            said = f"{images_per_second(record):,.4g} images/s"
        else:
            said = f"{record.status}: {record.failure.message if record.failure else ''}"
        console.print(f"{record.trial.label}: {said} ({record.seconds:.0f} s)", soft_wrap=True, markup=False)

    return Listener(progress.begins, progress.moves, ends)


def _table(progress: Progress) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("model", no_wrap=True)
    table.add_column("strategy", no_wrap=True, min_width=max(len(c.strategy_label) for c in progress.plan.configs))
    # On a narrow terminal only the names of models give way.
    for name, width in (("devices", 7), ("images/s", 8), ("±", 5), ("trials", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("now", min_width=18, no_wrap=True)
    for config, n in progress.plan.points:
        records = progress.records(config, n)
        failed = [record for record in records if not record.ok]
        wanted = "" if progress.plan.experiment.budget is not None else f"/{progress.plan.experiment.repeats}"
        now = _now(progress, config, n) or Text(failed[-1].status if failed else "", style="red")
        trials = f"{len(records)}{wanted}"
        table.add_row(config.model, config.strategy_label, str(n), *progress.speed(config, n), trials, now)
    passed = time.monotonic() - progress.began
    left = time_words(progress.seconds_left())
    leave = f"Ctrl-C leaves, {progress.elsewhere} goes on" if progress.elsewhere else "Ctrl-C stops, nothing is lost"
    foot = f"{time_words(passed)} passed, about {left} to go · {leave}"
    return Group(table, Text(foot, style="dim"))


def _now(progress: Progress, config: Config, devices: int) -> RenderableType | None:
    step = progress.step
    if step is None or step.trial.point != (config, devices):
        return None
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    if progress.phase != "measure" or step.measure.seconds is not None:
        from rich.text import Text

        count = f" {progress.number}" if progress.number else ""
        return Text(f"● {progress.phase}{count}", style="green")
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=step.measure.steps, completed=progress.number, width=10),
                 f"{progress.number}/{step.measure.steps}")  # fmt: skip
    return grid
