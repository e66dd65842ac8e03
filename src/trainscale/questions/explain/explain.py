"""The explanation of every synchronous point of a run."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from ...analyse.series import column
from ...analyse.statistics import LEAST_REPEATS, Interval
from ...analyse.throughput import is_measured, is_synchronous
from ...analyse.titles import make_series_titles
from ...errors import InputError
from ...record.run import RunInfo
from ...record.trial import TrialRecord
from ...spec.config import WEAK, Config, PointKey
from ..commands import change_command
from .causes import (
    COMMUNICATION,
    CONTENTION,
    EXCHANGE,
    ONE_DEVICE,
    SMALL_LOSS,
    STRAGGLERS,
    WORK,
    ExplainedPart,
    Sources,
    compute_run_mean,
    find_sources,
    split_step,
)
from .ranks import LimitedGpu, SlowRank, compute_core_share, compute_mean_clock, find_limited_gpus

if TYPE_CHECKING:
    from ...runs import Run

# What stands out, besides a cause of causes.py.
NOTHING = "nothing"  # the loss is small
NOISE = "noise"  # the loss is not small, but no part is larger than chance
SLOW_RANK = "slow rank"
TOO_SMALL = "work too small"
TOGETHER = "not separated"  # the largest part has causes that the records do not separate
UNKNOWN = "unknown"  # there is no one-device point

_FLAG = "--explain"
_UNEXPLAINED = ("--epochs", "--until-accuracy", "--search")  # flags that exclude it

_BYTES_PER_PARAMETER = {"fp64": 8}  # gradients are exchanged in fp32 under every other precision

# 10 Gbit/s, as many clusters have, and the cost of a collective call anywhere. Work that takes less than twice
# its exchange over that is too small to scale on any links.
_GOOD_BYTES_PER_SECOND = 1.25e9
_GOOD_LATENCY_SECONDS = 2e-4
_TOO_SMALL = 2.0

_TARGETS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)
_LEAST_GAIN = 0.04  # of efficiency, for a larger batch to be worth a sentence
_MOST_GROWTH = 16  # of the batch: farther away, a straight line predicts nothing
_MODEST = 0.8  # the efficiency that is named where no target is within that growth
_AS_LONG = 0.9  # of the time of a step

Times = Sequence[tuple[float, float]]  # batches with the seconds of a step on one device


@dataclass(frozen=True)
class Exchange:
    """The gradients of a rank and step."""

    bytes: int
    exposed_seconds: float | None  # the part of a step that nothing hides; None if it is unknown
    latency_seconds: float | None = None  # fitted to exchanges alone, of several sizes
    bytes_per_second: float | None = None
    servers: int = 0
    server_bytes: int | None = None  # held by the server that holds most
    alone_seconds: float | None = None  # how long the gradients of a step take if nothing else happens
    hidden_seconds: float | None = None  # how much of that hides behind computing

    def estimate_seconds_on_good_network(self, devices: int) -> float:
        # A ring sends 2(n - 1)/n of the gradients.
        return _GOOD_LATENCY_SECONDS + 2 * (devices - 1) / devices * self.bytes / _GOOD_BYTES_PER_SECOND


@dataclass(frozen=True)
class BatchAdvice:
    batch: int  # per device
    efficiency: float  # that the point would reach with it, by the same exchange
    measured_batches: int  # on one device; 1: step times are taken to be proportional


@dataclass(frozen=True)
class PointExplanation:
    """Shares are those of the point's step time."""

    title: str
    config: Config
    devices: int
    hosts: int
    repeats: int
    step_seconds: float
    parts: tuple[ExplainedPart, ...]
    loss: Interval | None  # the share of the step that is not work; None without a one-device point
    verdict: str
    main: ExplainedPart | None  # the largest part that is not work
    work_seconds: float | None
    exchange: Exchange | None
    advice: BatchAdvice | None
    equal_batch: int | None  # at most half as large, and takes as long on one device
    slow_ranks: tuple[SlowRank, ...]
    core_share: float | None  # CPU seconds per second of a rank that exchanges nothing
    waited_share: float | None  # of the window, of the rank that waited most for samples
    limited_gpus: tuple[LimitedGpu, ...] = ()  # of the point's own trials
    gpu_clocks: Mapping[str, float] | None = None  # mean MHz of one alone, and of the ranks together
    missing: tuple[str, ...] = ()
    has_few_repeats: bool = False
    other_cores: float = 0.0  # of other programs on the busiest host, in the median trial
    steps: int = 0  # of the windows of the point's own trials
    shortest_window_seconds: float | None = None  # of all trials that were compared


@dataclass(frozen=True, kw_only=True)
class RunExplanation:
    """Where the efficiency of a run went."""

    verdicts: tuple[str, ...] = column("a sentence for each point")
    parts: tuple[ExplainedPart, ...] = column("the parts of the step of every point")
    text: str = field(repr=False, metadata={"meaning": "what `trainscale explain` prints", "unit": ""})
    _points: tuple[PointExplanation, ...] = field(repr=False, compare=False)
    _command: str = field(repr=False, compare=False)  # measures what is missing

    def to_markdown(self) -> str:
        """Return the explanation as Markdown, as ``trainscale explain --markdown`` prints it."""
        from .text import render_document

        return render_document(self._points, self._command, "markdown").rstrip("\n")

    def to_json(self) -> str:
        """Return the explanation as JSON, as ``trainscale explain --json`` prints it."""
        from .text import render_json

        return render_json(self._points, self._command)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def explain(run: Run) -> RunExplanation:
    from .text import describe_verdict, render_document

    check_can_explain(run)
    points, command = explain_records(run.records), make_explaining_command(run.info)
    return RunExplanation(
        verdicts=tuple(f"{point.title}: {describe_verdict(point)}." for point in points),
        parts=tuple(part for point in points for part in point.parts),
        text=render_document(points, command, "text"),
        _points=tuple(points),
        _command=command,
    )


def make_explaining_command(run: RunInfo) -> str:
    """Return the command of a run with --explain; that of a search or a training measures steps instead."""
    command = run.read_provenance().command or "trainscale run"
    words = shlex.split(command)
    if run.is_search or any(series.get("epochs") for series in run.read_spec().series):
        has_flag = any(word.partition("=")[0] in _UNEXPLAINED for word in words)
        changed = change_command(run, (*_UNEXPLAINED, "--warmup-epochs", "-o", "--output"), _FLAG)
        return changed if has_flag else f"{changed}  # without epochs, until_accuracy and search in its file"
    return command if _FLAG in words else f"{command} {_FLAG}"


def check_can_explain(run: Run) -> None:
    measured = [record for record in run.records if is_measured(record)]
    several = [record for record in measured if record.trial.devices > 1]
    reason = ""
    if not run.records:
        reason = "no trial of this run has finished; continue it with the command that began it"
    elif not measured:
        reason = "every trial of this run failed; its report says why"
    elif not several:
        reason = "this run has one device only, so there is no efficiency to explain"
    elif not any(is_synchronous(record.trial.config) for record in several):
        strategies = ", ".join(dict.fromkeys(record.trial.config.strategy_label for record in measured))
        reason = f"only synchronous strategies are explained, not {strategies}; valid: allreduce, sharded, ps"
    if reason:
        raise InputError(f"{run.directory}: {reason}")


def explain_records(records: Iterable[TrialRecord]) -> list[PointExplanation]:
    points: dict[PointKey, list[TrialRecord]] = {}
    for record in {record.trial: record for record in records}.values():  # the last one of a trial counts
        if is_measured(record) and not record.trial.short:
            points.setdefault(record.trial.point, []).append(record)
    counts: dict[Config, list[int]] = {}
    # Seconds of a step of every one-device trial, by the config without batch, then by batch.
    one_device: defaultdict[Config, dict[int, list[float]]] = defaultdict(dict)
    for (config, devices), of_point in points.items():
        counts.setdefault(config, []).append(devices)
        if devices == 1:
            seconds = [compute_run_mean(record).compute for record in of_point]
            one_device[replace(config, batch=0)][config.batch] = seconds
    explanations = []
    for config, title in make_series_titles(list(counts)).items():
        for devices in sorted(count for count in counts[config] if count > 1 and is_synchronous(config)):
            sources = find_sources(points, config, devices)
            times: Times = ()
            if sources.one_device:
                alone = sources.one_device[0].trial.config
                by_batch = one_device[replace(alone, batch=0)]
                seconds_by_batch = {alone.batch_per_device(1): list(by_batch[alone.batch])}
                ranks = [rank for record in sources.one_device for rank in record.ranks]
                for entry in (entry for rank in ranks for entry in rank.further_batches if entry.steps):
                    seconds_by_batch.setdefault(entry.batch, []).append(entry.seconds / entry.steps)
                if config.scaling == WEAK:
                    for batch, seconds in by_batch.items():
                        if batch != alone.batch:
                            seconds_by_batch.setdefault(batch, []).extend(seconds)
                by_size = sorted(seconds_by_batch.items())
                times = [(float(batch), fmean(seconds)) for batch, seconds in by_size]
            explanations.append(_explain(title, sources, times))
    return explanations


def _explain(title: str, sources: Sources, times: Times) -> PointExplanation:
    config, devices, records = sources.config, sources.devices, sources.records
    parts = split_step(sources, title)
    work = next((part for part in parts if part.causes == (WORK,)), None)
    others = [part for part in parts if WORK not in part.causes]
    candidates = [part for part in others if part.stands_out] or others
    main = max(candidates, key=lambda part: part.share, default=None)
    loss = None
    if work:
        limits = (work.measured.high, work.measured.low)
        low, high = (None if limit is None else 1 - limit for limit in limits)
        loss = Interval(1 - work.measured.mean, low, high)
    exchange = describe_exchange(sources, parts)
    batch = config.batch_per_device(devices)

    # If half the batch takes as long, starting the operations takes the time.
    least = _AS_LONG * dict(times).get(batch, math.inf)
    as_long = [int(other) for other, seconds in times if seconds >= least and 2 * other <= batch]
    equal_batch = min(as_long, default=None)

    missing = []  # what would have to be measured to separate all causes
    if not sources.one_device:
        missing.append("the same work on one device")
    elif sources.one_device_exchanges and sources.has_servers:
        missing.append("the strategy independent on 1 device")
    if not sources.apart:
        missing.append(f"the strategy independent on {devices} devices")

    apart_ranks = [rank for record in sources.apart for rank in record.ranks]
    alone = compute_mean_clock([rank for record in sources.one_device for rank in record.ranks])
    together = compute_mean_clock(apart_ranks)
    gpu_clocks = None
    if alone is not None and together is not None:
        gpu_clocks = {"alone_mhz": alone, "together_mhz": together}
    ranks = [rank for record in records for rank in record.ranks]
    compared = (*records, *sources.apart, *sources.one_device)
    waits = [rank.waited_seconds / rank.window_seconds for rank in ranks if rank.waited_seconds is not None]
    return PointExplanation(
        title=title,
        config=config,
        devices=devices,
        hosts=sources.hosts,
        repeats=len(records),
        step_seconds=sum(part.seconds for part in parts),
        parts=parts,
        loss=loss,
        verdict=_decide_verdict(sources, main, work, loss, exchange),
        main=main,
        work_seconds=work.seconds if work else None,
        exchange=exchange,
        # A line through equal times would advise a batch of any size.
        advice=None if equal_batch else advise_batch(times, batch, parts),
        equal_batch=equal_batch,
        slow_ranks=sources.slow_ranks,
        core_share=compute_core_share(apart_ranks),
        waited_share=max(waits, default=None),
        limited_gpus=find_limited_gpus(records),
        gpu_clocks=gpu_clocks,
        missing=tuple(missing),
        has_few_repeats=min(map(len, sources.means.values())) < LEAST_REPEATS,
        other_cores=median(record.machine.other_cores or 0.0 for record in compared),
        steps=max(record.steps for record in records),
        shortest_window_seconds=min(rank.window_seconds for record in compared for rank in record.ranks),
    )


def _decide_verdict(
    sources: Sources,
    main: ExplainedPart | None,
    work: ExplainedPart | None,
    loss: Interval | None,
    exchange: Exchange | None,
) -> str:
    if main is None or (work is None and ONE_DEVICE not in sources.means and len(main.causes) > 1):
        return UNKNOWN
    if work is not None and 1 - work.share < SMALL_LOSS:
        return NOTHING
    # One of several parts may look large by chance where the whole loss may be nothing.
    if not main.stands_out or (loss is not None and loss.low is not None and loss.low <= 0):
        return NOISE
    if COMMUNICATION in main.causes and exchange is not None and work is not None:
        least = min(main.seconds, exchange.estimate_seconds_on_good_network(sources.devices))
        if work.seconds < _TOO_SMALL * least:
            return TOO_SMALL
    if len(main.causes) > 1:
        return TOGETHER
    return SLOW_RANK if main.causes == (STRAGGLERS,) and sources.slow_ranks else main.causes[0]


# ---- the exchange of gradients


def describe_exchange(sources: Sources, parts: Sequence[ExplainedPart]) -> Exchange | None:
    parameters = next((r.parameters for r in sources.records if r.parameters), None)
    if parameters is None:
        return None
    size = parameters * _BYTES_PER_PARAMETER.get(sources.config.precision, 4)
    of_exchange = [part.seconds for part in parts if set(part.causes) <= EXCHANGE]
    exposed = math.fsum(of_exchange) if of_exchange else None
    # Latency and rate, by the slowest ranks.
    times: defaultdict[int, list[float]] = defaultdict(list)
    for record in sources.records:
        slowest: dict[int, float] = {}
        for entry in (entry for rank in record.ranks for entry in rank.exchanges if entry.count):
            slowest[entry.bytes] = max(slowest.get(entry.bytes, 0.0), entry.seconds / entry.count)
        for count, seconds in slowest.items():
            times[count].append(seconds)
    points = [(float(count), fmean(values)) for count, values in times.items() if min(values) > 0]
    latency = rate = None
    if len(points) == 1:  # parameter servers of PyTorch take all gradients at once
        latency, rate = 0.0, points[0][0] / points[0][1]
    elif points:
        intercept, slope = fit_line(points)
        if slope > 0:
            latency, rate = intercept, 1 / slope
    alone = None if latency is None or not rate else latency + size / rate
    held = [server.bytes for record in sources.records for server in record.servers if server.bytes]
    return Exchange(
        bytes=size,
        exposed_seconds=exposed,
        latency_seconds=latency,
        bytes_per_second=rate,
        servers=sources.config.count_servers(sources.hosts),
        server_bytes=max(held, default=None),
        alone_seconds=alone,
        hidden_seconds=None if alone is None or exposed is None else max(0.0, alone - exposed),
    )


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope, neither negative, by relative errors."""
    import numpy as np

    x, y = np.array(points).T
    terms, ones = np.column_stack([1 / y, x / y]), np.ones(len(y))

    def solve(columns: list[int]) -> list[float]:
        return list(map(float, np.linalg.lstsq(terms[:, columns], ones)[0]))

    intercept, slope = solve([0, 1])
    if slope <= 0:
        return solve([0])[0], 0.0
    return (intercept, slope) if intercept >= 0 else (0.0, solve([1])[0])


# ---- other batches


def advise_batch(times: Times, batch: int, parts: Sequence[ExplainedPart]) -> BatchAdvice | None:
    """Return the batch that would help by more work per exchange."""
    seconds = {part.causes[0]: part.seconds for part in parts if len(part.causes) == 1}
    exposed = math.fsum(part.seconds for part in parts if set(part.causes) <= EXCHANGE)
    if not {WORK, CONTENTION, STRAGGLERS} <= seconds.keys() or exposed <= 0:
        return None
    work = seconds[WORK]
    growth = (work + seconds[CONTENTION] + seconds[STRAGGLERS]) / work
    intercept, slope = fit_line(times) if len(times) > 1 else (0.0, work / batch)
    if slope <= 0:
        return None
    current = work / (work * growth + exposed)
    needed = {}  # the batch by the efficiency that it would reach
    for target in _TARGETS:
        if target * growth < 1 and target > current + _LEAST_GAIN:
            needed[target] = (target * exposed / (1 - target * growth) - intercept) / slope
    near = [target for target, other in needed.items() if other <= _MOST_GROWTH * batch]
    target = near[0] if near else _MODEST
    if target not in needed:
        return None
    step = 10 ** max(0, math.floor(math.log10(max(needed[target], 1))) - 1)  # two significant digits
    return BatchAdvice(max(batch + 1, math.ceil(needed[target] / step) * step), target, max(1, len(times)))
