"""A scaling study for a proposal as blocks of text and tables. study_formats.py writes them in a format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..analyse.statistics import Interval
from ..analyse.study import Knee, Ladder, PredictedSize, Study, StudyPoint
from ..analyse.titles import find_model_title
from ..record.run import RunInfo
from ..spec.config import WEAK
from . import numbers, provenance_tables, wording
from .grid import Grid
from .numbers import THIN
from .study_method import list_extrapolation_sentences, list_method_sentences

_ENERGY_SOURCES = {
    "nvml": "of the GPUs, by their own counters (NVML), without the rest of the hosts",
    "rapl": "of the processors of all hosts, by their own counters (RAPL), with whatever else ran there",
}


@dataclass(frozen=True)
class Block:
    """A section: its heading, a table, and paragraphs after it. ``command`` is shown as it is, after the paragraphs."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    grid: Grid | None = None
    command: str = ""


def make_study_blocks(study: Study, run: RunInfo, command: str) -> Iterator[Block]:
    """Yield the sections. The first one has the title. ``command`` measures what is missing."""
    yield Block(_make_title(study), tuple(_describe_setup(study, run)))
    for ladder in study.ladders:
        yield Block(_make_ladder_title(ladder), tuple(_list_ladder_notes(ladder)), _make_ladder_grid(ladder))
    for scaling in study.missing:
        yield Block(f"{scaling.capitalize()} scaling", ("Not measured. This command measures it:",), command=command)
    size = wording.format_device_count(study.devices)
    yield Block(f"Efficiency on {size}", tuple(_describe_size(ladder, study.devices) for ladder in study.ladders))
    share = numbers.format_percent(study.efficiency)
    yield Block(
        f"Largest size with at least {share} efficiency",
        tuple(_describe_knee(ladder, study) for ladder in study.ladders),
    )
    if study.training:
        yield Block("Cost of the training", tuple(_describe_training(study)), _make_cost_grid(study))
    yield Block("Energy", (_describe_energy(study),))
    yield Block("Method", (" ".join(list_method_sentences(study, run)),))
    yield Block("What is extrapolated", (" ".join(list_extrapolation_sentences(study)),))


def _make_title(study: Study) -> str:
    config = study.config
    return f"Scaling of {find_model_title(config.model)} ({config.framework}, {config.strategy_label})"


def _describe_setup(study: Study, run: RunInfo) -> Iterator[str]:
    config, first = study.config, study.ladders[0].series
    yield f"Hardware: {provenance_tables.describe_hardware(run)}."
    software = provenance_tables.describe_software(run)
    if software != numbers.MISSING:
        yield f"Software: {software}."
    size = f"{config.image_size} × {config.image_size}"
    parts = [
        f"{numbers.format_integer(first.parameters)} parameters" if first.parameters else "",
        f"{size} {wording.format_data_name(config.data)} {first.unit}",
        f"{config.precision}{', compiled' if config.compile else ''}",
        f"a device is {_describe_device(study)}",
    ]
    yield f"Work: {', '.join(part for part in parts if part)}."


def _describe_device(study: Study) -> str:
    config = study.config
    if config.device != "cpu":
        return "a GPU" if config.ranks_per_gpu == 1 else f"one of {config.ranks_per_gpu} workers of a GPU"
    return f"{config.cores_per_device} core{'' if config.cores_per_device == 1 else 's'}"


def _make_ladder_title(ladder: Ladder) -> str:
    config = ladder.series.config
    scope = "per device" if config.scaling == WEAK else "over all devices"
    return f"{config.scaling.capitalize()} scaling: batch {numbers.format_integer(config.batch)} {scope}"


def _make_ladder_grid(ladder: Ladder) -> Grid:
    is_weak = ladder.scaling == WEAK
    batch = "global batch" if is_weak else "batch/device"
    header = ("devices", "nodes", batch, f"{ladder.series.unit}/s", "±", "speed-up", "efficiency")
    rows = []
    for point in (each.point for each in ladder.points):
        speed = point.samples_per_second
        rows.append(
            (
                numbers.format_integer(point.devices),
                numbers.format_integer(point.hosts),
                numbers.format_integer(point.global_batch if is_weak else point.batch_per_device),
                numbers.format_rate(speed.mean if speed else None),
                numbers.format_plus_minus(speed).removeprefix("±") or numbers.MISSING,
                numbers.format_times(point.speedup),
                numbers.format_efficiency(point.efficiency),
            )
        )
    return Grid(_make_ladder_title(ladder), header, tuple(rows), left=())


def _list_ladder_notes(ladder: Ladder) -> Iterator[str]:
    """Yield why points have no result, and what the sanity checks found."""
    for point in ladder.series.points:
        if not point.ok:
            devices = wording.format_device_count(point.devices).capitalize()
            yield f"{devices}: no result, {wording.describe_status_and_reason(point)}."
    for points, flag in wording.group_flags(ladder.series):
        yield f"{points.capitalize()}: {flag}."


def _describe_size(ladder: Ladder, devices: int) -> str:
    name, study_point = f"{ladder.scaling.capitalize()} scaling", ladder.find_point(devices)
    if isinstance(ladder.predicted, PredictedSize):
        return f"{name}: {_describe_predicted_size(ladder.predicted, ladder.series.unit)}"
    if study_point is None:
        guess = f", and a prediction would be a guess: {ladder.predicted.reason}" if ladder.predicted else ""
        return f"{name}: not measured on {wording.format_device_count(devices)}{guess}."
    point = study_point.point
    if point.samples_per_second is None:
        return (
            f"{name}: no result on {wording.format_device_count(devices)}, {wording.describe_status_and_reason(point)}."
        )
    speed = f"{numbers.format_rate(point.samples_per_second.mean)} {point.unit}/s"
    where = f" on {_format_nodes(point.hosts)}" if point.hosts > 1 else ""
    if point.efficiency is None:
        return f"{name}: {speed}{where}; no efficiency, because one device was not measured."
    speedup = numbers.format_times(point.speedup)
    return f"{name}: {numbers.format_efficiency(point.efficiency)} efficiency ({speed}, speed-up {speedup}){where}."


def _describe_predicted_size(size: PredictedSize, unit: str) -> str:
    prediction = size.prediction
    share = prediction.efficiency
    percents = f"{_format_with_limits(share.scaled(100), 2)}{THIN}% efficiency, " if share else ""
    speed = f"{_format_with_limits(prediction.samples_per_second)} {unit}/s"
    return f"PREDICTED, not measured: {percents}{speed} on {_format_nodes(size.nodes)}."


def _format_with_limits(interval: Interval, digits: int = 3) -> str:
    """Format a prediction, whose interval is lopsided: 2,842 (2,416–2,927)."""
    return f"{numbers.format_significant(interval.mean, digits)} ({numbers.format_limits(interval, digits)})"


def _format_nodes(count: int) -> str:
    return f"{numbers.format_integer(count)} node{'' if count == 1 else 's'}"


def _describe_knee(ladder: Ladder, study: Study) -> str:
    name, least, knee = f"{ladder.scaling.capitalize()} scaling", numbers.format_percent(study.efficiency), ladder.knee
    if knee is None:
        return f"{name}: unknown, because one device was not measured."
    shares = {point.devices: point.efficiency for point in ladder.series.good}
    if knee.devices is None:
        best = max((interval for count, interval in shares.items() if interval and count > 1), key=lambda i: i.mean)
        return (
            f"{name}: no measured size on several devices reaches it; the highest is {numbers.format_efficiency(best)}."
        )
    sentence = (
        f"{name}: {wording.format_device_count(knee.devices)} ({numbers.format_efficiency(shares[knee.devices])})"
    )
    return f"{sentence}{_describe_beyond(knee, shares, least)}.{_list_doubts(knee, least)}"


def _describe_beyond(knee: Knee, shares: dict[int, Interval | None], least: str) -> str:
    if knee.is_largest:
        return f", the largest size measured; where the efficiency falls below {least} was not measured"
    beyond = next(count for count in shares if knee.devices is not None and count > knee.devices)
    return f"; {wording.format_device_count(beyond)} have {numbers.format_efficiency(shares[beyond])}"


def _list_doubts(knee: Knee, least: str) -> str:
    uncertain = f" Its interval contains {least}, so more repeats may change the answer." if knee.is_uncertain else ""
    if not knee.below:
        return uncertain
    below = wording.join_names(map(str, knee.below))
    return f"{uncertain} On {below} devices the efficiency is below {least}."


def _describe_training(study: Study) -> Iterator[str]:
    training, unit = study.training, study.ladders[0].series.unit
    assert training is not None
    yield (
        f"The training: {numbers.format_integer(training.epochs)} epoch{'' if training.epochs == 1 else 's'} of"
        f" {numbers.format_integer(training.samples)} {unit}, {numbers.format_integer(training.total)} {unit} in all. A"
        " node that is used in part counts as a whole one."
    )
    for ladder in study.ladders:
        size = ladder.predicted if isinstance(ladder.predicted, PredictedSize) else ladder.find_point(study.devices)
        if size and size.cost:
            is_predicted = size is ladder.predicted
            kind = f"{ladder.scaling} scaling{', PREDICTED' if is_predicted else ''}"
            write = _format_with_limits if is_predicted else format_with_error
            yield (
                f"On {wording.format_device_count(study.devices)} ({kind}): {write(size.cost.hours)} hours,"
                f" {write(size.cost.node_hours)} node-hours."
            )


def _make_cost_grid(study: Study) -> Grid:
    header = ("scaling", "devices", "nodes", "hours", "±", "node-hours", "device-hours", "kWh")
    rows = [_make_cost_row(ladder, point) for ladder in study.ladders for point in ladder.points if point.cost]
    return Grid("Cost of the training", header, tuple(rows))


def _make_cost_row(ladder: Ladder, study_point: StudyPoint) -> tuple[str, ...]:
    point, cost = study_point.point, study_point.cost
    assert cost is not None
    energy = cost.kilowatt_hours
    return (
        ladder.scaling,
        numbers.format_integer(point.devices),
        numbers.format_integer(point.hosts),
        numbers.format_significant(cost.hours.mean, 3),
        numbers.format_plus_minus(cost.hours).removeprefix("±") or numbers.MISSING,
        numbers.format_significant(cost.node_hours.mean, 3),
        numbers.format_significant(cost.device_hours.mean, 3),
        numbers.format_significant(energy.mean, 3) if energy else numbers.MISSING,
    )


def format_with_error(interval: Interval) -> str:
    """Format a quantity with half its interval, in as many decimals as that has: 24.61 ± 0.12."""
    half = interval.half_width
    if half is None or not half:
        return numbers.format_significant(interval.mean, 3)
    error = numbers.format_significant(half, 2)
    decimals = len(error.partition(".")[2])
    return f"{interval.mean:,.{decimals}f}".replace(",", THIN) + f"{THIN}±{THIN}{error}"


def _describe_energy(study: Study) -> str:
    measured = [(ladder, p) for ladder in study.ladders for p in ladder.points if p.joules_per_sample]
    if not measured:
        return "Not measured: no energy counter of these devices could be read."
    unit = study.ladders[0].series.unit.removesuffix("s")
    what = " and ".join(_ENERGY_SOURCES.get(source, source) for source in study.energy_sources)
    sizes = [pair for pair in measured if pair[1].point.devices == study.devices] or measured[-1:]
    values = [
        f"{format_with_error(point.joules_per_sample)} J/{unit} on {wording.format_device_count(point.point.devices)}"
        f" ({ladder.scaling} scaling)"
        for ladder, point in sizes
        if point.joules_per_sample
    ]
    return f"{wording.join_names(values)}. It is the energy {what}, in the measured window."
