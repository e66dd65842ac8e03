"""The explanation of every synchronous point of a run: its parts, and the one cause that stands out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from ...analyse.columns import column
from ...analyse.statistics import LEAST_REPEATS, Interval
from ...analyse.throughput import is_measured, is_synchronous
from ...analyse.titles import make_series_titles
from ...errors import InputError
from ...record.run import RunInfo
from ...record.trial import TrialRecord
from ...spec.config import Config
from ..commands import change_command
from .causes import COMMUNICATION, SMALL_LOSS, STRAGGLERS, WORK, ExplainedPart, split_step, stands_out
from .exchange import (
    BatchAdvice,
    Exchange,
    advise_batch,
    average_by_batch,
    describe_exchange,
    find_equal_batch,
    group_one_device_times,
    is_too_small,
)
from .sources import ONE_DEVICE, Sources, find_sources, group_records

if TYPE_CHECKING:
    from ...runs import Run
    from .ranks import GpuClocks, LimitedGpu, SlowRank

# What stands out, besides a cause of causes.py.
NOTHING = "nothing"  # the loss is small
NOISE = "noise"  # the loss is not small, but no part is larger than chance
SLOW_RANK = "slow rank"
TOO_SMALL = "work too small"
TOGETHER = "not separated"  # the largest part has causes that the records do not separate
UNKNOWN = "unknown"  # there is no one-device point

_FLAG = "--explain"
_UNEXPLAINED = ("--epochs", "--until-accuracy", "--search")  # flags that exclude it


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
        from .text import render_markdown

        return render_markdown(self._points, self._command)

    def to_json(self) -> str:
        """Return the explanation as JSON, as ``trainscale explain --json`` prints it."""
        from .text import render_json

        return render_json(self._points, self._command)

    def _repr_html_(self) -> str:
        from .text import render_html

        return render_html(self._points)


def explain(run: Run) -> RunExplanation:
    """Say where the efficiency of a run went.

    Raises ``InputError`` if no point of the run can be explained.
    """
    from .text import render_text
    from .wording import describe_verdict

    check_can_explain(run)
    points, command = explain_records(run.records), make_explaining_command(run.info)
    return RunExplanation(
        verdicts=tuple(f"{point.title}: {describe_verdict(point)}." for point in points),
        parts=tuple(part for point in points for part in point.parts),
        text=render_text(points, command),
        _points=tuple(points),
        _command=command,
    )


def make_explaining_command(run: RunInfo) -> str:
    """Return the command of a run, with the flag that measures what an explanation needs.

    A training to an accuracy or a search cannot measure it. Their command becomes one that measures the steps of the
    same work; its results are in a directory of their own.
    """
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
        reason = (
            f"only synchronous strategies are explained, and this run has {strategies};"
            " valid: a run with allreduce, sharded or ps"
        )
    if reason:
        raise InputError(f"{run.directory}: {reason}")


def explain_records(records: Iterable[TrialRecord]) -> list[PointExplanation]:
    """Explain every synchronous point on more than one device, in order of first appearance."""
    points = group_records(records)
    counts: dict[Config, list[int]] = {}
    for config, devices in points:
        counts.setdefault(config, []).append(devices)
    titles = make_series_titles(list(counts))
    one_device = group_one_device_times(points)
    explanations = []
    for config, title in titles.items():
        for devices in sorted(count for count in counts[config] if count > 1 and is_synchronous(config)):
            sources = find_sources(points, config, devices)
            explanations.append(_explain(title, sources, average_by_batch(one_device, sources)))
    return explanations


def _explain(title: str, sources: Sources, one_device_times: Sequence[tuple[float, float]]) -> PointExplanation:
    parts = split_step(sources, title)
    exchange = describe_exchange(sources, parts)
    equal_batch = find_equal_batch(one_device_times, sources.batch)
    work = next((part for part in parts if part.causes == (WORK,)), None)
    others = [part for part in parts if WORK not in part.causes]
    main = max([part for part in others if stands_out(part)] or others, key=lambda part: part.share, default=None)
    loss = None
    if work:
        share = work.measured
        low, high = (None if limit is None else 1 - limit for limit in (share.high, share.low))
        loss = Interval(1 - share.mean, low, high)
    waits = [
        rank.waited_seconds / rank.window_seconds
        for record in sources.records
        for rank in record.ranks
        if rank.waited_seconds is not None
    ]
    windows = [rank.window_seconds for record in sources.compared_records for rank in record.ranks]
    core_share: float | None = None
    limited_gpus: tuple[LimitedGpu, ...] = ()
    gpu_clocks: GpuClocks | None = None
    if sources.apart_records or sources.config.device == "cuda":
        from .ranks import compare_clocks, compute_core_share, find_limited_gpus

        core_share = compute_core_share([rank for record in sources.apart_records for rank in record.ranks])
        limited_gpus = find_limited_gpus(sources.records)
        gpu_clocks = compare_clocks(sources.one_device_records, sources.apart_records)
    return PointExplanation(
        title=title,
        config=sources.config,
        devices=sources.devices,
        hosts=sources.hosts,
        repeats=len(sources.records),
        step_seconds=sum(part.seconds for part in parts),
        parts=parts,
        loss=loss,
        verdict=_decide_verdict(sources, main, work, loss, exchange),
        main=main,
        work_seconds=work.seconds if work else None,
        exchange=exchange,
        # A line through equal times would advise a batch of any size.
        advice=None if equal_batch else advise_batch(one_device_times, sources, parts),
        equal_batch=equal_batch,
        slow_ranks=sources.slow_ranks,
        core_share=core_share,
        waited_share=max(waits, default=None),
        limited_gpus=limited_gpus,
        gpu_clocks=gpu_clocks,
        missing=sources.list_missing(),
        has_few_repeats=min(map(len, sources.means.values())) < LEAST_REPEATS,
        other_cores=median(record.machine.other_cores or 0.0 for record in sources.compared_records),
        steps=max(record.steps for record in sources.records),
        shortest_window_seconds=min(windows, default=None),
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
    # With several parts, one of them may look large by chance where the whole loss may be nothing.
    if not stands_out(main) or (loss is not None and loss.low is not None and loss.low <= 0):
        return NOISE
    work_seconds = work.seconds if work else None
    if COMMUNICATION in main.causes and is_too_small(exchange, work_seconds, main.seconds, sources.devices):
        return TOO_SMALL
    if len(main.causes) > 1:
        return TOGETHER
    return SLOW_RANK if main.causes == (STRAGGLERS,) and sources.slow_ranks else main.causes[0]
