"""Reads logs of MXNet (ours are alike) and of tf_cnn_benchmarks, and the journal, into rows of tables.

No pattern goes back over what it has read, so the time is proportional to the length of a line.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from ..errors import InputError
from ..record.decoding import find_first_line, remove_unprintable
from ..record.trial import TrialRecord, decode_record
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
    """One epoch, over all workers."""

    epoch: int  # from 1
    train: Mapping[str, float] = field(default_factory=dict)  # by metric: accuracy, cross-entropy, …
    valid: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    samples_per_second: float | None = None  # cluster-wide


@dataclass(frozen=True)
class StepRow:
    """A line of tf_cnn_benchmarks."""

    step: int | None  # None: the total of the run
    workers: int  # over which speeds are added up
    images_per_second: float
    uncertainty: float | None = None
    jitter: float | None = None
    extras: dict[str, float] = field(default_factory=dict)  # total_loss, and accuracies if printed


@dataclass(frozen=True)
class Section:
    title: str = ""  # what was trained, if the log says it
    epochs: tuple[EpochRow, ...] = ()
    steps: tuple[StepRow, ...] = ()


def read_log(lines: Iterable[str], where: str, reduce: str = AVERAGE, one_run: bool = False) -> list[Section]:
    """Return the sections of a log. ``one_run``: the lines are of several workers, not runs."""
    pieces = iter(lines)
    first = next((piece for piece in pieces if remove_unprintable(piece).strip()), "")
    pieces = itertools.chain([first], pieces)
    if remove_unprintable(first).startswith('{"schema":'):
        return _read_journal(join_lines(pieces, LONGEST_RECORD), where)
    epochs: defaultdict[int, _Epoch] = defaultdict(_Epoch)
    runs = [_Run()]
    for number, line in enumerate(join_lines(pieces, LONGEST_LINE), 1):
        try:
            if "Epoch[" in line:
                _read_mxnet(line, epochs)
            else:
                _read_benchmarks(line, runs, one_run)
        except ValueError as error:
            raise InputError(f"{where}: {error}" if one_run else f"{where}:{number}: {error}") from None

    def combine(values: list[float]) -> float:
        # The NaN of one worker does not hide the values of the others.
        known = [value for value in values if not math.isnan(value)]
        return max(known) if reduce == MAXIMUM and known else fmean(values)

    try:
        rows = []
        for number, epoch in sorted(epochs.items()):
            # Seconds are averaged, speeds add up. All lines of a worker cover the same number of samples.
            speeds = [len(speeds) / sum(1 / speed for speed in speeds) for speeds in epoch.speeds.values()]
            row = EpochRow(
                epoch=number + 1,
                train={name: combine(values) for name, values in epoch.train.items()},
                valid={name: combine(values) for name, values in epoch.valid.items()},
                seconds=fmean(epoch.seconds) if epoch.seconds else None,
                samples_per_second=sum(speeds) or None,
            )
            rows.append(row)
        sections = [Section(epochs=tuple(rows))] if rows else []
        return [*sections, *(run.make_section() for run in runs if run.steps or run.totals)]
    except (ValueError, OverflowError):  # infinities of both signs, or too large numbers
        raise InputError(f"{where}: its values are infinite or too large to be added up") from None


# ---- MXNet and trainscale: Epoch[k] Train-…=, Validation-…=, Time cost= and Speedometer's lines


@dataclass
class _Epoch:
    """The values of one epoch. Each worker writes its own."""

    train: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    valid: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)
    speeds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by worker
    last_batches: dict[str, int] = field(default_factory=dict)  # of workers whose lines do not name them


def _read_mxnet(line: str, epochs: defaultdict[int, _Epoch]) -> None:
    # Two workers that wrote at the same time may share a line.
    for match in _EPOCH.finditer(line):
        epoch, value = epochs[_parse_whole_number(match[1])], float(match[4])
        if match[2] == "Time":
            epoch.seconds.append(value)
        else:
            metrics = epoch.train if match[2] == "Train" else epoch.valid
            metrics[(match[3] or "").strip() or "accuracy"].append(value)
    for match in _SPEED.finditer(line):
        epoch, batch = epochs[_parse_whole_number(match[1])], _parse_whole_number(match[2])
        if not 0 < float(match[3]) < math.inf:
            continue
        if prefix := _WORKER.search(line):
            worker = prefix[1] or prefix[2]
        else:  # the one whose last batch is nearest before this one
            last = epoch.last_batches
            candidates = [worker for worker in last if last[worker] < batch]
            worker = max(candidates, key=last.__getitem__, default=f"?{len(last)}")
            last.pop(worker, None)  # at the same batch, the next line is another worker's
            last[worker] = batch
        epoch.speeds[worker].append(float(match[3]))


# ---- tf_cnn_benchmarks


@dataclass
class _Run:
    facts: dict[str, str] = field(default_factory=dict)
    extras: list[str] = field(default_factory=lambda: ["total_loss"])
    steps: defaultdict[int, list[StepRow]] = field(default_factory=lambda: defaultdict(list))
    totals: list[float] = field(default_factory=list)

    def make_section(self) -> Section:
        """Return the rows of all workers: speeds add up, losses are averaged."""
        steps = []
        for step, rows in sorted(self.steps.items()):
            names = dict.fromkeys(name for row in rows for name in row.extras)
            extras = {name: [row.extras[name] for row in rows if name in row.extras] for name in names}
            combined = StepRow(
                step=step,
                workers=len(rows),
                images_per_second=math.fsum(row.images_per_second for row in rows),
                uncertainty=math.hypot(*(row.uncertainty or 0.0 for row in rows)),
                jitter=math.hypot(*(row.jitter or 0.0 for row in rows)),
                extras={name: fmean(values) for name, values in extras.items()},
            )
            steps.append(combined)
        if self.totals:
            # Every worker measures the total of the whole cluster, with its own clock.
            steps.append(StepRow(None, len(self.totals), fmean(self.totals)))
        scopes = [scope for scope in ("per device", "global") if scope in self.facts]
        sizes = [f"{self.facts[scope]} {scope}" for scope in scopes]
        if sizes:
            self.facts["Batch"] = f"batch {', '.join(sizes)}"
        order = ("Model", "Dataset", "Batch", "Data format", "Optimizer", "Variables")
        title = " · ".join(self.facts[name] for name in order if name in self.facts)
        return Section(title, steps=tuple(steps))


def _read_benchmarks(line: str, runs: list[_Run], one_run: bool) -> None:
    """Read a line. A heading after a total begins another run."""
    run = runs[-1]
    if match := _STEP.search(line):
        step, speed = _parse_whole_number(match[1]), _parse_finite(match[2], "images/sec")
        uncertainty, jitter = _parse_finite(match[3], "+/-"), _parse_finite(match[4], "jitter")
        extras = dict(zip(run.extras, map(float, match[5].split()), strict=False))
        run.steps[step].append(StepRow(step, 1, speed, uncertainty, jitter, extras))
    elif match := _TOTAL.search(line):
        run.totals.append(_parse_finite(match[1], "total images/sec"))
    elif match := _EXTRAS.search(line):
        run.extras = match[1].split()
    elif match := _FACT.search(line) or _BATCH.search(line):
        if run.totals and not one_run:
            runs.append(run := _Run())
        name, value = match.groups() if match.re is _FACT else (match[2], match[1])
        run.facts.setdefault(name, value.strip())


# ---- the journal


def _read_journal(lines: Iterable[str], where: str) -> list[Section]:
    records: dict[str, TrialRecord] = {}
    for number, line in enumerate(lines, 1):
        if line.endswith("\n") and line.strip():  # the last line may not have been written completely
            record = decode_record(line, f"{where}:{number}")
            records.pop(record.trial.key, None)
            records[record.trial.key] = record
    trained = [record for record in records.values() if record.epochs]
    if records and not trained:
        raise InputError(f"{where}: no trial of this run trained for epochs; trainscale run --epochs N does")
    titles = make_series_titles([record.trial.config for record in trained])
    sections = []
    for record in trained:
        trial, count = record.trial, record.trial.devices
        failed = f" · {record.status}: {find_first_line(record.failure.message)}" if record.failure else ""
        devices = f"{count} device{'s' if count > 1 else ''}"
        title = f"{titles[trial.config]} · {devices} · repeat {trial.repeat + 1}{failed}"
        rows = []
        for epoch in record.epochs:
            speed = epoch.samples / epoch.seconds if epoch.seconds else None
            train, valid = {"accuracy": epoch.train_accuracy}, {"accuracy": epoch.valid_accuracy}
            rows.append(EpochRow(epoch.epoch, train, valid, epoch.seconds, speed))
        sections.append(Section(title, tuple(rows)))
    return sections


# ---- lines of any length, and numbers of any number of digits


def join_lines(pieces: Iterable[str], longest: int) -> Iterator[str]:
    """Join the pieces of each line. Cut one longer than ``longest`` before the last word that fits."""
    parts: list[str] = []
    length = 0
    for piece in itertools.chain(pieces, [""]):
        if length <= longest:
            parts.append(piece)
        length += len(piece)
        if piece.endswith("\n") or (not piece and length):
            line = "".join(parts)
            if length > longest:
                start = line[:longest]
                line = start[: max(start.rfind(" "), start.rfind("\t"), 0)]
            yield remove_unprintable(line)
            parts, length = [], 0


def _parse_whole_number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; valid: at most {_MOST_DIGITS}")
    return int(text)


def _parse_finite(text: str, name: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{name} is infinite")
    return value
