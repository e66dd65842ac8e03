"""Reading the logs of MXNet (ours have the same format) and of tf_cnn_benchmarks, and the journal, into rows of tables.

Lines are read one by one and only sums are stored, so a log may have any length. Other lines are ignored. No pattern
goes back over what it has read, so that reading a line takes time in proportion to its length, whatever it holds.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from ..errors import InputError
from ..record.decoding import find_first_line, remove_unprintable
from ..record.trial import Epoch, TrialRecord, decode_record
from ..spec.config import Config
from .titles import make_series_titles

AVERAGE, MAXIMUM = "avg", "max"
REDUCERS = (AVERAGE, MAXIMUM)
SUPPORTED = (
    "logs of MXNet and of trainscale (Epoch[0] Train-accuracy=…, Validation-…=…, Time cost=…, Speed: … samples/sec)",
    "logs of tf_cnn_benchmarks (images/sec: … +/- … (jitter = …), total images/sec: …)",
    "the directory of a run, or its trials.jsonl",
)

# Groups (?>…) and signs ++ and *+ keep what they have matched.
_NUMBER = r"(?>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b)"
_EPOCH = re.compile(rf"\bEpoch\[(\d++)\]\s++(Train|Valid|Time)(?:ation)?(?:[- ]([^=]{{0,200}}))?=\s*+({_NUMBER})")
# Later versions of MXNet write a range, which ends with the batch: Batch [20-30].
_SPEED = re.compile(rf"\bEpoch\[(\d++)\]\s++Batch\s*+\[(?:\d++-)?(\d++)\]\s++Speed:\s*+({_NUMBER})\s++samples/sec")
# The worker that wrote the line: as MXNet writes it, or `trainscale launch`.
_WORKER = re.compile(r"\bNode\[(\d++)\]|^\[worker (\d++)\b")

_STEP = re.compile(
    rf"(?<!\d)(\d++)\s++images/sec:\s*+({_NUMBER})\s*+\+/-\s*+({_NUMBER})\s*+\(jitter = ({_NUMBER})\)"
    rf"((?:\s++{_NUMBER})*+)"
)
_TOTAL = re.compile(rf"\btotal images/sec:\s*+({_NUMBER})")
_EXTRAS = re.compile(r"\bStep\tImg/sec\t(.+)")
_FACT = re.compile(r"(?:^|\] )(TensorFlow|Model|Dataset|Mode|Data format|Optimizer|Variables):\s++(\S.*)")
_BATCH = re.compile(r"(?:^|\] )(?:Batch size:)?\s++(\d++) (global|per device)")


LONGEST_LINE = 1 << 20  # characters of a line of a log; a longer one is cut
LONGEST_RECORD = 1 << 28  # characters of a line of a journal
_MOST_DIGITS = 18  # of an epoch, a batch or a step


@dataclass(frozen=True)
class EpochRow:
    """One epoch, over all workers. Values that a log does not contain are absent or None."""

    epoch: int  # from 1
    train: Mapping[str, float] = field(default_factory=dict)  # by the metric's name: accuracy, cross-entropy, …
    valid: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    samples_per_second: float | None = None  # cluster-wide


@dataclass(frozen=True)
class StepRow:
    """A line of tf_cnn_benchmarks. ``step`` is None for the total of the run. Speeds are sums over ``workers``."""

    step: int | None
    workers: int
    images_per_second: float
    uncertainty: float | None = None
    jitter: float | None = None
    extras: dict[str, float] = field(default_factory=dict)  # total_loss, and accuracies if the run printed them


@dataclass(frozen=True)
class Section:
    """The rows of one table: epochs or steps. The title says what was trained, if the log contains it."""

    title: str = ""
    epochs: tuple[EpochRow, ...] = ()
    steps: tuple[StepRow, ...] = ()


def read_log(lines: Iterable[str], where: str, reduce: str = AVERAGE, one_run: bool = False) -> list[Section]:
    """Return the sections of a log; none if it has no line that is understood.

    ``where`` is the name of the log in messages. ``one_run``: the lines are the logs of several workers, not runs.
    """
    pieces = iter(lines)
    first = next((piece for piece in pieces if remove_unprintable(piece).strip()), "")
    pieces = itertools.chain([first], pieces)
    if remove_unprintable(first).startswith('{"schema":'):
        return _read_journal(join_lines(pieces, LONGEST_RECORD), where)
    mxnet, benchmarks = _MXNet(), _Benchmarks(one_run)
    for number, line in enumerate(join_lines(pieces, LONGEST_LINE), 1):
        try:
            if "Epoch[" in line:
                mxnet.read_line(line)
            else:
                benchmarks.read_line(line)
        except ValueError as error:
            raise InputError(f"{where}: {error}" if one_run else f"{where}:{number}: {error}") from None
    try:
        rows = mxnet.make_rows(reduce)
        return [*([Section(epochs=rows)] if rows else []), *benchmarks.make_sections()]
    except (ValueError, OverflowError):  # of infinities with different signs, or of numbers beyond the largest
        raise InputError(f"{where}: its values are infinite or too large to be added up") from None


# ---- MXNet and trainscale


class _Values:
    """All values of one quantity in one epoch. Each worker writes its own."""

    def __init__(self) -> None:
        self.count, self.total, self.largest = 0, 0.0, -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        # The NaN of one worker does not hide the values of the others.
        self.largest = max(self.largest, value) if not math.isnan(value) else self.largest

    def reduce(self, reducer: str) -> float:
        mean = self.total / self.count
        return mean if reducer == AVERAGE or math.isinf(self.largest) else self.largest


class _Speeds:
    """The Speedometer lines of one epoch. All lines of a worker cover the same number of samples."""

    def __init__(self) -> None:
        self._seconds: dict[str, tuple[int, float]] = {}  # by worker: intervals, and the sum of their 1 / speed
        # The last batch of each worker whose lines do not name it, in increasing order, and the workers in that order.
        self._last_batches: list[int] = []
        self._guessed: list[int] = []

    def add(self, worker: str | None, batch: int, speed: float) -> None:
        if not 0 < speed < math.inf:
            return
        name = worker if worker is not None else f"?{self._guess_worker(batch)}"
        intervals, seconds = self._seconds.get(name, (0, 0.0))
        self._seconds[name] = intervals + 1, seconds + 1 / speed

    def _guess_worker(self, batch: int) -> int:
        """Return the worker whose last batch is nearest before ``batch``: the batches of a worker only increase."""
        end = bisect_left(self._last_batches, batch)
        worker = len(self._guessed)
        if end:
            start = bisect_left(self._last_batches, self._last_batches[end - 1])  # the first of equal ones
            del self._last_batches[start]
            worker = self._guessed.pop(start)
        place = bisect_right(self._last_batches, batch)
        self._last_batches.insert(place, batch)
        self._guessed.insert(place, worker)
        return worker

    def compute_cluster_speed(self) -> float | None:
        """Return the sum of the workers' speeds."""
        return sum(intervals / seconds for intervals, seconds in self._seconds.values()) or None


class _Epoch:
    def __init__(self) -> None:
        self.train: defaultdict[str, _Values] = defaultdict(_Values)
        self.valid: defaultdict[str, _Values] = defaultdict(_Values)
        self.time, self.speeds = _Values(), _Speeds()


class _MXNet:
    """Reads ``Epoch[k] Train-…=``, ``Validation-…=``, ``Time cost=`` and Speedometer's lines of one or many workers."""

    def __init__(self) -> None:
        self._epochs: defaultdict[int, _Epoch] = defaultdict(_Epoch)

    def read_line(self, line: str) -> None:
        # Two workers that wrote at the same time may share a line.
        for match in _EPOCH.finditer(line):
            epoch, value = self._epochs[parse_whole_number(match[1])], float(match[4])
            if match[2] == "Time":
                epoch.time.add(value)
            else:
                metrics = epoch.train if match[2] == "Train" else epoch.valid
                metrics[(match[3] or "").strip() or "accuracy"].add(value)
        for match in _SPEED.finditer(line):
            prefix = _WORKER.search(line)
            worker = (prefix[1] or prefix[2]) if prefix else None
            speeds = self._epochs[parse_whole_number(match[1])].speeds
            speeds.add(worker, parse_whole_number(match[2]), float(match[3]))

    def make_rows(self, reduce: str) -> tuple[EpochRow, ...]:
        """Return the epochs in order, numbered from 1. Seconds are always averaged over workers."""
        return tuple(
            EpochRow(
                epoch=number + 1,
                train={name: values.reduce(reduce) for name, values in epoch.train.items()},
                valid={name: values.reduce(reduce) for name, values in epoch.valid.items()},
                seconds=epoch.time.reduce(AVERAGE) if epoch.time.count else None,
                samples_per_second=epoch.speeds.compute_cluster_speed(),
            )
            for number, epoch in sorted(self._epochs.items())
        )


# ---- tf_cnn_benchmarks


class _Run:
    """One run of tf_cnn_benchmarks, of one worker or of several whose lines are mixed."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.extras: list[str] = ["total_loss"]
        self.steps: defaultdict[int, list[StepRow]] = defaultdict(list)
        self.totals: list[float] = []

    def make_section(self) -> Section:
        steps = [_combine(rows) for _, rows in sorted(self.steps.items())]
        if self.totals:
            # Every worker measures the total of the whole cluster, with its own clock.
            steps.append(StepRow(None, len(self.totals), math.fsum(self.totals) / len(self.totals)))
        return Section(self._make_title(), steps=tuple(steps))

    def _make_title(self) -> str:
        sizes = [f"{self.facts[scope]} {scope}" for scope in ("per device", "global") if scope in self.facts]
        names = ("Model", "Dataset", "", "Data format", "Optimizer", "Variables")
        parts = [self.facts.get(name, "") if name else f"batch {', '.join(sizes)}" * bool(sizes) for name in names]
        return " · ".join(part for part in parts if part)


class _Benchmarks:
    """The runs of a log. A heading after a total begins another run."""

    def __init__(self, one_run: bool) -> None:
        self._one_run = one_run
        self._runs = [_Run()]

    def read_line(self, line: str) -> None:
        run = self._runs[-1]
        if match := _STEP.search(line):
            step, speed = parse_whole_number(match[1]), parse_finite(match[2], "images/sec")
            uncertainty, jitter = parse_finite(match[3], "+/-"), parse_finite(match[4], "jitter")
            extras = dict(zip(run.extras, map(float, match[5].split()), strict=False))
            run.steps[step].append(StepRow(step, 1, speed, uncertainty, jitter, extras))
        elif match := _TOTAL.search(line):
            run.totals.append(parse_finite(match[1], "total images/sec"))
        elif match := _EXTRAS.search(line):
            run.extras = match[1].split()
        elif match := _FACT.search(line) or _BATCH.search(line):
            if run.totals and not self._one_run:
                self._runs.append(run := _Run())
            name, value = match.groups() if match.re is _FACT else (match[2], match[1])
            run.facts.setdefault(name, value.strip())

    def make_sections(self) -> list[Section]:
        return [run.make_section() for run in self._runs if run.steps or run.totals]


def _combine(rows: list[StepRow]) -> StepRow:
    """Return one step of all workers: speeds add up, errors add in quadrature, losses are averaged."""
    names = dict.fromkeys(name for row in rows for name in row.extras)
    return StepRow(
        step=rows[0].step,
        workers=len(rows),
        images_per_second=math.fsum(row.images_per_second for row in rows),
        uncertainty=math.hypot(*(row.uncertainty or 0.0 for row in rows)),
        jitter=math.hypot(*(row.jitter or 0.0 for row in rows)),
        extras={name: fmean(row.extras[name] for row in rows if name in row.extras) for name in names},
    )


# ---- the journal


def _read_journal(lines: Iterable[str], where: str) -> list[Section]:
    """Return a section per trial that trained for epochs. If a trial was measured again, the last record counts."""
    records: dict[str, TrialRecord] = {}
    for record in _read_records(lines, where):
        records.pop(record.trial.key, None)
        records[record.trial.key] = record
    trained = [record for record in records.values() if record.epochs]
    if records and not trained:
        raise InputError(f"{where}: no trial of this run trained for epochs; trainscale run --epochs N does")
    titles = make_series_titles([record.trial.config for record in trained])
    return [Section(_make_trial_title(record, titles), tuple(make_epoch_rows(record.epochs))) for record in trained]


def _read_records(lines: Iterable[str], where: str) -> Iterator[TrialRecord]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if not line.endswith("\n"):
            return  # the last line, which was not written completely
        yield decode_record(line, f"{where}:{number}")


def _make_trial_title(record: TrialRecord, titles: Mapping[Config, str]) -> str:
    trial = record.trial
    count = f"{trial.devices} device{'s' if trial.devices > 1 else ''}"
    failed = f" · {record.status}: {find_first_line(record.failure.message)}" if record.failure else ""
    return f"{titles[trial.config]} · {count} · repeat {trial.repeat + 1}{failed}"


def make_epoch_rows(epochs: Iterable[Epoch]) -> list[EpochRow]:
    return [
        EpochRow(
            epoch=epoch.epoch,
            train={"accuracy": epoch.train_accuracy},
            valid={"accuracy": epoch.valid_accuracy},
            seconds=epoch.seconds,
            samples_per_second=epoch.samples / epoch.seconds if epoch.seconds else None,
        )
        for epoch in epochs
    ]


# ---- lines of any length, and numbers of any number of digits


def join_lines(pieces: Iterable[str], longest: int) -> Iterator[str]:
    """Join the pieces of each line. A line is cut where it becomes longer than ``longest``, before the last word that
    fits, because half a number would be another number.
    """
    parts: list[str] = []
    length = 0
    for piece in pieces:
        if length <= longest:
            parts.append(piece)
        length += len(piece)
        if piece.endswith("\n"):
            yield _cut("".join(parts), length, longest)
            parts, length = [], 0
    if parts:
        yield _cut("".join(parts), length, longest)


def _cut(line: str, length: int, longest: int) -> str:
    if length <= longest:
        return remove_unprintable(line)
    start = line[:longest]
    return remove_unprintable(start[: max(start.rfind(" "), start.rfind("\t"), 0)])


def parse_whole_number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; valid: at most {_MOST_DIGITS}")
    return int(text)


def parse_finite(text: str, name: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{name} is infinite")
    return value
