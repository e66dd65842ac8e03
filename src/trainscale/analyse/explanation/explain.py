"""The explanation of every synchronous point of a run: its parts, and the one cause that stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from ...record.trial import TrialRecord
from ...spec.config import Config
from ..statistics import LEAST_REPEATS, Interval
from ..throughput import is_synchronous
from ..titles import make_series_titles
from .batches import BatchAdvice, OneDeviceTimes, advise_batch, find_equal_batch
from .causes import COMMUNICATION, STRAGGLERS, WORK
from .cores import compute_core_share
from .exchange import Exchange, describe_exchange, is_too_small
from .gpus import GpuClocks, LimitedGpu, compare_clocks, find_limited_gpus
from .parts import SMALL_WITHOUT_INTERVAL, Part, split_step
from .ranks import SlowRank
from .runs import group_records
from .sources import ONE_DEVICE, Sources, find_sources

# What stands out, besides a cause of causes.py.
NOTHING = "nothing"  # the loss is small
NOISE = "noise"  # the loss is not small, but no part is larger than chance
SLOW_RANK = "slow rank"
TOO_SMALL = "work too small"
TOGETHER = "not separated"  # the largest part has causes that the records do not separate
UNKNOWN = "unknown"  # there is no one-device point

# Losses below 5 % are those of a curve that scales well; repeats on a quiet machine differ by 2 %.
SMALL_LOSS = 0.05


@dataclass(frozen=True)
class PointExplanation:
    """Shares are those of the point's step time."""

    title: str
    config: Config
    devices: int
    hosts: int
    repeats: int
    step_seconds: float
    parts: tuple[Part, ...]
    loss: Interval | None  # the share of the step that is not work; None without a one-device point
    verdict: str
    main: Part | None  # the largest part that is not work
    work_seconds: float | None
    exchange: Exchange | None
    advice: BatchAdvice | None
    equal_batch: int | None  # the smallest that takes as long on one device, if any of at most half the size does
    slow_ranks: tuple[SlowRank, ...]
    core_share: float | None  # CPU seconds per second of a rank that exchanges nothing
    waited_share: float | None  # of the window, of the rank that waited most for samples
    limited_gpus: tuple[LimitedGpu, ...] = ()  # of the point's own trials
    gpu_clocks: GpuClocks | None = None
    missing: tuple[str, ...] = ()
    has_few_repeats: bool = False
    other_cores: float = 0.0  # that other programs used on the busiest host, in the median trial that was compared
    steps: int = 0  # of the windows of the point's own trials
    shortest_window_seconds: float | None = None  # of all trials that were compared


def explain_records(records: Sequence[TrialRecord]) -> list[PointExplanation]:
    """Explain every synchronous point on more than one device, in order of first appearance."""
    points = group_records(records)
    counts: dict[Config, list[int]] = {}
    for config, devices in points:
        counts.setdefault(config, []).append(devices)
    titles = make_series_titles(list(counts))
    one_device = OneDeviceTimes(points)
    explanations = []
    for config in titles:
        for devices in sorted(count for count in counts[config] if count > 1):
            if is_synchronous(config):
                sources = find_sources(points, config, devices)
                parts = split_step(sources)
                point = _explain(titles[config], sources, parts)
                equal_batch = find_equal_batch(one_device, sources)
                # A line through equal times would advise a batch of any size.
                advice = None if equal_batch else advise_batch(one_device, sources, parts)
                explanations.append(replace(point, advice=advice, equal_batch=equal_batch))
    return explanations


def _explain(title: str, sources: Sources, parts: tuple[Part, ...]) -> PointExplanation:
    """Explain a point from what was measured with its own batch."""
    exchange = describe_exchange(sources, parts)
    work = next((part for part in parts if part.causes == (WORK,)), None)
    others = [part for part in parts if not part.is_work]
    main = _choose_main_part(others)
    work_seconds = work.seconds if work else None
    too_small = main is not None and is_too_small(exchange, work_seconds, main.seconds, sources.devices)
    verdict = _decide_verdict(sources, main, work, too_small)
    return PointExplanation(
        title=title,
        config=sources.config,
        devices=sources.devices,
        hosts=sources.hosts,
        repeats=sources.repeats,
        step_seconds=sum(part.seconds for part in parts),
        parts=parts,
        loss=_compute_loss(work) if work else None,
        verdict=verdict,
        main=main,
        work_seconds=work_seconds,
        exchange=exchange,
        advice=None,
        equal_batch=None,
        slow_ranks=sources.slow_ranks,
        core_share=compute_core_share([rank for record in sources.apart_records for rank in record.ranks]),
        waited_share=_find_waited_share(sources.records),
        limited_gpus=find_limited_gpus(sources.records),
        gpu_clocks=compare_clocks(sources.one_device_records, sources.apart_records),
        missing=sources.missing,
        has_few_repeats=min(map(len, sources.runs.values())) < LEAST_REPEATS,
        other_cores=median(record.machine.other_cores or 0.0 for record in sources.compared_records),
        steps=max(record.steps for record in sources.records),
        shortest_window_seconds=min(
            (rank.window_seconds for record in sources.compared_records for rank in record.ranks), default=None
        ),
    )


def _choose_main_part(parts: Sequence[Part]) -> Part | None:
    """Return the largest part that stands out, or else the largest."""
    return max([part for part in parts if stands_out(part)] or parts, key=lambda part: part.share, default=None)


def _compute_loss(work: Part) -> Interval:
    share = work.measured
    low, high = (None if limit is None else 1 - limit for limit in (share.high, share.low))
    return Interval(1 - share.mean, low, high)


def _decide_verdict(sources: Sources, main: Part | None, work: Part | None, too_small: bool) -> str:
    if main is None or (work is None and not sources.has(ONE_DEVICE) and len(main.causes) > 1):
        return UNKNOWN
    if work is not None and 1 - work.share < SMALL_LOSS:
        return NOTHING
    if not stands_out(main) or (work is not None and _is_explained_by_chance(_compute_loss(work))):
        return NOISE
    if COMMUNICATION in main.causes and too_small:
        return TOO_SMALL
    if len(main.causes) > 1:
        return TOGETHER
    return SLOW_RANK if main.causes == (STRAGGLERS,) and sources.slow_ranks else main.causes[0]


def _is_explained_by_chance(loss: Interval) -> bool:
    """Whether chance alone explains the loss. With several parts, one of them may look large by chance."""
    return loss.low is not None and loss.low <= 0


def stands_out(part: Part) -> bool:
    """Whether a part is large, and larger than chance."""
    if part.measured.low is None:
        return part.share > SMALL_WITHOUT_INTERVAL
    return part.share > SMALL_LOSS and part.measured.low > 0


def _find_waited_share(records: Sequence[TrialRecord]) -> float | None:
    shares = [
        rank.waited_seconds / rank.window_seconds
        for record in records
        for rank in record.ranks
        if rank.waited_seconds is not None
    ]
    return max(shares, default=None)
