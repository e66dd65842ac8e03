"""What logs say: lines in, tables' rows out. MXNet's logs, which ours are like, tf_cnn_benchmarks', and the journal.

Lines are looked at one by one and only sums are kept, so a log may be of any length. A line that none of this matches
is passed over: logs hold much else.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import InputError
from ..record.trial import TrialRecord, decode_record
from ..spec.config import Config
from .epochs import EpochRow, epoch_rows
from .text import first_line, printable
from .titles import series_titles

AVERAGE, MAXIMUM = "avg", "max"
REDUCERS = (AVERAGE, MAXIMUM)
UNDERSTOOD = (
    "logs of MXNet and of trainscale (Epoch[0] Train-accuracy=…, Validation-…=…, Time cost=…, Speed: … samples/sec)",
    "logs of tf_cnn_benchmarks (images/sec: … +/- … (jitter = …), total images/sec: …)",
    "the directory of a run, or its trials.jsonl",
)

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
_EPOCH = re.compile(rf"\bEpoch\[(\d+)\]\s+(Train|Valid|Time)(?:ation)?(?:[- ]([^=]*))?=\s*({_NUMBER})")
# The later form has a range, of which the end is the batch: Batch [20-30].
_SPEED = re.compile(rf"\bEpoch\[(\d+)\]\s+Batch\s*\[(?:\d+-)?(\d+)\]\s+Speed:\s*({_NUMBER})\s+samples/sec")
# Who says it: MXNet's logging head, or that of `trainscale launch`.
_WHO = re.compile(r"\bNode\[(\d+)\]|^\[worker (\d+)\b")

_STEP = re.compile(
    rf"(\d+)\s+images/sec:\s*({_NUMBER})\s*\+/-\s*({_NUMBER})\s*\(jitter = ({_NUMBER})\)((?:\s+(?:{_NUMBER}))*)"
)
_TOTAL = re.compile(rf"\btotal images/sec:\s*({_NUMBER})")
_EXTRAS = re.compile(r"\bStep\tImg/sec\t(.+)")
_FACT = re.compile(r"(?:^|\] )(TensorFlow|Model|Dataset|Mode|Data format|Optimizer|Variables):\s+(\S.*)")
_BATCH = re.compile(r"(?:^|\] )(?:Batch size:)?\s+(\d+) (global|per device)")


@dataclass(frozen=True)
class StepRow:
    """A line of tf_cnn_benchmarks. ``step`` None is the run's total. Speeds are of all ``workers`` together."""

    step: int | None
    workers: int
    images_per_second: float
    uncertainty: float | None = None
    jitter: float | None = None
    extras: dict[str, float] = field(default_factory=dict)  # total_loss, and accuracies where they were asked for


@dataclass(frozen=True)
class Section:
    """What makes one table: epochs or steps. The title says what was trained, where the log tells."""

    title: str = ""
    epochs: tuple[EpochRow, ...] = ()
    steps: tuple[StepRow, ...] = ()


def read_log(lines: Iterable[str], where: str, reduce: str = AVERAGE, one_run: bool = False) -> list[Section]:
    """The sections of a log, none if there is nothing to be understood.

    ``where`` is what messages call the log. ``one_run``: several workers' logs after one another, not several runs.
    """
    cleaned = (printable(line) for line in lines)
    first = next((line for line in cleaned if line.strip()), "")
    lines = itertools.chain([first], cleaned)
    if first.startswith('{"schema":'):
        return _journal(lines, where)
    mxnet, benchmarks = _MXNet(), _Benchmarks(one_run)
    for line in lines:
        if "Epoch[" in line:
            mxnet.line(line)
        else:
            benchmarks.line(line)
    rows = mxnet.rows(reduce)
    return [*([Section(epochs=rows)] if rows else []), *benchmarks.sections()]


# ---- MXNet and ourselves


class _Values:
    """All values of one quantity in one epoch: several workers say theirs."""

    def __init__(self) -> None:
        self.count, self.total, self.largest = 0, 0.0, -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        # A worker that says NaN does not hide what the others reached, unless all do.
        self.largest = max(self.largest, value) if not math.isnan(value) else self.largest

    def reduced(self, how: str) -> float:
        mean = self.total / self.count
        return mean if how == AVERAGE or math.isinf(self.largest) else self.largest


class _Speeds:
    """The Speedometer lines of one epoch. Each is of one worker, over the same number of samples as its others."""

    def __init__(self) -> None:
        self._seconds: dict[str, tuple[int, float]] = {}  # per worker: intervals, and the sum of their 1 / speed
        self._nameless: list[int] = []  # per worker that does not say who it is: the batch it was at

    def add(self, who: str | None, batch: int, speed: float) -> None:
        if not 0 < speed < math.inf:
            return
        name = who if who is not None else f"?{self._guess(batch)}"
        intervals, seconds = self._seconds.get(name, (0, 0.0))
        self._seconds[name] = intervals + 1, seconds + 1 / speed

    def _guess(self, batch: int) -> int:
        """A worker's batches only go up, so two that are at the same one are two workers: the one that was nearest."""
        before = [index for index, at in enumerate(self._nameless) if at < batch]
        if not before:
            self._nameless.append(batch)
            return len(self._nameless) - 1
        nearest = max(before, key=self._nameless.__getitem__)
        self._nameless[nearest] = batch
        return nearest

    def cluster(self) -> float | None:
        """The sum over workers of samples over time."""
        return sum(intervals / seconds for intervals, seconds in self._seconds.values()) or None


class _Epoch:
    def __init__(self) -> None:
        self.train: defaultdict[str, _Values] = defaultdict(_Values)
        self.valid: defaultdict[str, _Values] = defaultdict(_Values)
        self.time, self.speeds = _Values(), _Speeds()


class _MXNet:
    """``Epoch[k] Train-…=``, ``Validation-…=``, ``Time cost=``, and Speedometer's lines; of one worker or of many."""

    def __init__(self) -> None:
        self._epochs: defaultdict[int, _Epoch] = defaultdict(_Epoch)

    def line(self, line: str) -> None:
        # Two workers that wrote at once may share a line.
        for found in _EPOCH.finditer(line):
            epoch, value = self._epochs[int(found[1])], float(found[4])
            if found[2] == "Time":
                epoch.time.add(value)
            else:
                metrics = epoch.train if found[2] == "Train" else epoch.valid
                metrics[(found[3] or "").strip() or "accuracy"].add(value)
        for found in _SPEED.finditer(line):
            said = _WHO.search(line)
            who = (said[1] or said[2]) if said else None
            self._epochs[int(found[1])].speeds.add(who, int(found[2]), float(found[3]))

    def rows(self, reduce: str) -> tuple[EpochRow, ...]:
        """The epochs in order, numbered from 1. Seconds are averaged also where metrics are to be the largest."""
        return tuple(
            EpochRow(
                epoch=number + 1,
                train={name: values.reduced(reduce) for name, values in epoch.train.items()},
                valid={name: values.reduced(reduce) for name, values in epoch.valid.items()},
                seconds=epoch.time.reduced(AVERAGE) if epoch.time.count else None,
                samples_per_second=epoch.speeds.cluster(),
            )
            for number, epoch in sorted(self._epochs.items())
        )


# ---- tf_cnn_benchmarks


class _Run:
    """One run of tf_cnn_benchmarks, of one worker or of many whose lines are mixed."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.extras: list[str] = ["total_loss"]
        self.steps: defaultdict[int, list[StepRow]] = defaultdict(list)
        self.totals: list[float] = []

    def section(self) -> Section:
        steps = [_together(rows) for _, rows in sorted(self.steps.items())]
        if self.totals:
            # Every worker measures the whole cluster's total, each by its own clock.
            steps.append(StepRow(None, len(self.totals), math.fsum(self.totals) / len(self.totals)))
        return Section(self._title(), steps=tuple(steps))

    def _title(self) -> str:
        sizes = [f"{self.facts[which]} {which}" for which in ("per device", "global") if which in self.facts]
        names = ("Model", "Dataset", "", "Data format", "Optimizer", "Variables")
        parts = [self.facts.get(name, "") if name else f"batch {', '.join(sizes)}" * bool(sizes) for name in names]
        return " · ".join(part for part in parts if part)


class _Benchmarks:
    """The runs of a log: a heading that comes after a total begins another."""

    def __init__(self, one_run: bool) -> None:
        self._one_run = one_run
        self._runs = [_Run()]

    def line(self, line: str) -> None:
        run = self._runs[-1]
        if found := _STEP.search(line):
            step, speed, uncertainty, jitter = int(found[1]), float(found[2]), float(found[3]), float(found[4])
            extras = dict(zip(run.extras, map(float, found[5].split()), strict=False))
            run.steps[step].append(StepRow(step, 1, speed, uncertainty, jitter, extras))
        elif found := _TOTAL.search(line):
            run.totals.append(float(found[1]))
        elif found := _EXTRAS.search(line):
            run.extras = found[1].split()
        elif found := _FACT.search(line) or _BATCH.search(line):
            if run.totals and not self._one_run:
                self._runs.append(run := _Run())
            name, value = found.groups() if found.re is _FACT else (found[2], found[1])
            run.facts.setdefault(name, value.strip())

    def sections(self) -> list[Section]:
        return [run.section() for run in self._runs if run.steps or run.totals]


def _together(rows: list[StepRow]) -> StepRow:
    """One step of all workers: speeds add up, and errors as those of independent things do; a loss is averaged."""
    names = dict.fromkeys(name for row in rows for name in row.extras)
    return StepRow(
        step=rows[0].step,
        workers=len(rows),
        images_per_second=math.fsum(row.images_per_second for row in rows),
        uncertainty=math.hypot(*(row.uncertainty or 0.0 for row in rows)),
        jitter=math.hypot(*(row.jitter or 0.0 for row in rows)),
        extras={name: _mean(row.extras[name] for row in rows if name in row.extras) for name in names},
    )


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return math.fsum(kept) / len(kept)


# ---- the journal


def _journal(lines: Iterable[str], where: str) -> list[Section]:
    """A section per trial that trained for epochs. Of a trial measured again, the last counts."""
    records: dict[str, TrialRecord] = {}
    for record in _records(lines, where):
        records.pop(record.trial.key, None)
        records[record.trial.key] = record
    learned = [record for record in records.values() if record.epochs]
    if records and not learned:
        raise InputError(f"{where}: no trial of this run trained for epochs; trainscale run --epochs N does")
    titles = series_titles([record.trial.config for record in learned])
    return [Section(_trial_title(record, titles), tuple(epoch_rows(record.epochs))) for record in learned]


def _records(lines: Iterable[str], where: str) -> Iterator[TrialRecord]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if not line.endswith("\n"):
            return  # the last line, while it was being written
        yield decode_record(line, f"{where}:{number}")


def _trial_title(record: TrialRecord, titles: Mapping[Config, str]) -> str:
    trial = record.trial
    count = f"{trial.devices} device{'s' if trial.devices > 1 else ''}"
    failed = f" · {record.status}: {first_line(record.failure.message)}" if record.failure else ""
    return f"{titles[trial.config]} · {count} · repeat {trial.repeat + 1}{failed}"
