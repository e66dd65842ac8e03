"""A study for a proposal as sections: headings, tables and sentences. render.py writes them in a format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...analyse.series import Point
from ...analyse.statistics import Interval
from ...analyse.titles import find_model_title
from ...report import numbers, provenance_tables, wording
from ...report.numbers import THIN
from ...report.table import Grid
from ...spec.config import WEAK
from ...worker.data.facts import SYNTHETIC
from ..predict.text import describe_held_out, explain_method
from .study import Ladder, PredictedSize, Study, find_window_seconds

_ENERGY_SOURCES = {
    "nvml": "of the GPUs, by their own counters (NVML), without the rest of the hosts",
    "rapl": "of the processors of all hosts, by their own counters (RAPL), with whatever else ran there",
}


@dataclass(frozen=True)
class Section:
    """A heading, a table, and paragraphs after it. ``command`` is shown as it is, after the paragraphs."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    grid: Grid | None = None
    command: str = ""


def make_sections(study: Study, command: str) -> Iterator[Section]:
    """Yield the sections. The first one has the title. ``command`` measures what is missing."""
    config = study.config
    title = f"Scaling of {find_model_title(config.model)} ({config.framework}, {config.strategy_label})"
    yield Section(title, tuple(_describe_setup(study)))
    for ladder in study.ladders:
        yield _make_ladder_section(ladder)
    for scaling in study.missing:
        yield Section(f"{scaling.capitalize()} scaling", ("Not measured. This command measures it:",), command=command)
    size, share = wording.format_device_count(study.devices), numbers.format_percent(study.efficiency)
    yield Section(f"Efficiency on {size}", tuple(_describe_size(ladder, study.devices) for ladder in study.ladders))
    yield Section(
        f"Largest size with at least {share} efficiency",
        tuple(_describe_knee(ladder, share) for ladder in study.ladders),
    )
    if study.training:
        yield Section("Cost of the training", tuple(_describe_training(study)), _make_cost_grid(study))
    yield Section("Energy", (_describe_energy(study),))
    yield Section("Method", (" ".join(list_method_sentences(study)),))
    yield Section("What is extrapolated", (" ".join(list_extrapolation_sentences(study)),))


def _describe_setup(study: Study) -> Iterator[str]:
    config, first = study.config, study.ladders[0].series
    yield f"Hardware: {provenance_tables.describe_hardware(study.info)}."
    software = provenance_tables.describe_software(study.info)
    if software != numbers.MISSING:
        yield f"Software: {software}."
    device = f"{config.cores_per_device} core{'' if config.cores_per_device == 1 else 's'}"
    if config.device != "cpu":
        device = "a GPU" if config.ranks_per_gpu == 1 else f"one of {config.ranks_per_gpu} workers of a GPU"
    parameters = f"{numbers.format_integer(first.parameters)} parameters, " if first.parameters else ""
    size = f"{config.image_size} × {config.image_size}"
    yield (
        f"Work: {parameters}{size} {wording.format_data_name(config.data)} {first.unit},"
        f" {config.precision}{', compiled' if config.compile else ''}, a device is {device}."
    )


def _make_ladder_section(ladder: Ladder) -> Section:
    """Return the table of a ladder, and below it why points have no result, and what the sanity checks found."""
    config, is_weak = ladder.series.config, ladder.scaling == WEAK
    scope = "per device" if is_weak else "over all devices"
    title = f"{ladder.scaling.capitalize()} scaling: batch {numbers.format_integer(config.batch)} {scope}"
    batch = "global batch" if is_weak else "batch/device"
    header = ("devices", "nodes", batch, f"{ladder.series.unit}/s", "±", "speed-up", "efficiency")
    rows, notes = [], []
    for point in ladder.series.points:
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
        if not point.ok:
            devices = wording.format_device_count(point.devices).capitalize()
            notes.append(f"{devices}: no result, {wording.describe_status_and_reason(point)}.")
    notes += [f"{points.capitalize()}: {flag}." for points, flag in wording.group_flags(ladder.series)]
    return Section(title, tuple(notes), Grid(title, header, tuple(rows), left=()))


def _describe_size(ladder: Ladder, devices: int) -> str:
    name, size, point = f"{ladder.scaling.capitalize()} scaling", ladder.predicted, ladder.find_point(devices)
    if isinstance(size, PredictedSize):
        share = size.prediction.efficiency
        percents = f"{_format_with_limits(share.scaled(100), 2)}{THIN}% efficiency, " if share else ""
        speed = f"{_format_with_limits(size.prediction.samples_per_second)} {ladder.series.unit}/s"
        return f"{name}: PREDICTED, not measured: {percents}{speed} on {_format_nodes(size.nodes)}."
    if point is None:
        guess = f", and a prediction would be a guess: {size.reason}" if size else ""
        return f"{name}: not measured on {wording.format_device_count(devices)}{guess}."
    if point.samples_per_second is None:
        reason = wording.describe_status_and_reason(point)
        return f"{name}: no result on {wording.format_device_count(devices)}, {reason}."
    speed = f"{numbers.format_rate(point.samples_per_second.mean)} {point.unit}/s"
    where = f" on {_format_nodes(point.hosts)}" if point.hosts > 1 else ""
    if point.efficiency is None:
        return f"{name}: {speed}{where}; no efficiency, because one device was not measured."
    speedup = numbers.format_times(point.speedup)
    return f"{name}: {numbers.format_efficiency(point.efficiency)} efficiency ({speed}, speed-up {speedup}){where}."


def _describe_knee(ladder: Ladder, least: str) -> str:
    """Return the largest size that reaches an efficiency, what is known beyond it, and what is doubtful about it."""
    name, knee = f"{ladder.scaling.capitalize()} scaling", ladder.knee
    if knee is None:
        return f"{name}: unknown, because one device was not measured."
    shares = {point.devices: point.efficiency for point in ladder.series.good}
    if knee.devices is None:
        best = max((share for count, share in shares.items() if share and count > 1), key=lambda share: share.mean)
        return (
            f"{name}: no measured size on several devices reaches it; the highest is {numbers.format_efficiency(best)}."
        )
    size = wording.format_device_count(knee.devices)
    text = f"{name}: {size} ({numbers.format_efficiency(shares[knee.devices])})"
    if knee.is_largest:
        text += f", the largest size measured; where the efficiency falls below {least} was not measured."
    else:
        beyond = next(count for count in shares if count > knee.devices)
        text += f"; {wording.format_device_count(beyond)} have {numbers.format_efficiency(shares[beyond])}."
    if knee.is_uncertain:
        text += f" Its interval contains {least}, so more repeats may change the answer."
    if knee.below:
        text += f" On {wording.join_names(map(str, knee.below))} devices the efficiency is below {least}."
    return text


def _describe_training(study: Study) -> Iterator[str]:
    training = study.training
    assert training is not None
    yield (
        f"The training: {numbers.format_integer(training.epochs)} epoch{'' if training.epochs == 1 else 's'} of"
        f" {numbers.format_integer(training.samples)} {study.unit}, {numbers.format_integer(training.total)}"
        f" {study.unit} in all. A node that is used in part counts as a whole one."
    )
    for ladder in study.ladders:
        predicted, point = ladder.predicted, ladder.find_point(study.devices)
        is_predicted = isinstance(predicted, PredictedSize)
        cost = predicted.cost if isinstance(predicted, PredictedSize) else point and study.compute_cost(point)
        if cost:
            kind = f"{ladder.scaling} scaling{', PREDICTED' if is_predicted else ''}"
            write = _format_with_limits if is_predicted else format_with_error
            yield (
                f"On {wording.format_device_count(study.devices)} ({kind}): {write(cost.hours)} hours,"
                f" {write(cost.node_hours)} node-hours."
            )


def _make_cost_grid(study: Study) -> Grid:
    header = ("scaling", "devices", "nodes", "hours", "±", "node-hours", "device-hours", "kWh")
    rows = []
    for ladder in study.ladders:
        for point in ladder.series.points:
            if cost := study.compute_cost(point):
                energy = cost.kilowatt_hours
                rows.append(
                    (
                        ladder.scaling,
                        numbers.format_integer(point.devices),
                        numbers.format_integer(point.hosts),
                        numbers.format_significant(cost.hours.mean, 3),
                        numbers.format_plus_minus(cost.hours).removeprefix("±") or numbers.MISSING,
                        numbers.format_significant(cost.node_hours.mean, 3),
                        numbers.format_significant(cost.device_hours.mean, 3),
                        numbers.format_significant(energy.mean, 3) if energy else numbers.MISSING,
                    )
                )
    return Grid("Cost of the training", header, tuple(rows))


def _describe_energy(study: Study) -> str:
    """Return the energy of a sample at the size that is asked for, or at the last point where it was measured."""
    measured: list[tuple[Ladder, Point, Interval]] = [
        (ladder, point, energy)
        for ladder in study.ladders
        for point in ladder.series.points
        if (energy := study.measure_energy(point))
    ]
    if not measured:
        return "Not measured: no energy counter of these devices could be read."
    what = " and ".join(_ENERGY_SOURCES.get(source, source) for source in study.energy_sources)
    sizes = [entry for entry in measured if entry[1].devices == study.devices] or measured[-1:]
    values = [
        f"{format_with_error(energy)} J/{study.unit.removesuffix('s')} on {wording.format_device_count(point.devices)}"
        f" ({ladder.scaling} scaling)"
        for ladder, point, energy in sizes
    ]
    return f"{wording.join_names(values)}. It is the energy {what}, in the measured window."


# ---- method


def list_method_sentences(study: Study) -> tuple[str, str, str, str, str]:
    """Return how the study was measured in five sentences: trials, order, speed, efficiency, proof."""
    run, unit = study.info, study.unit
    provenance, spec = run.read_provenance(), run.read_spec()
    counts = sorted({point.repeats for ladder in study.ladders for point in ladder.series.good})
    often = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    tool = f"trainscale {provenance.trainscale}" if provenance.trainscale else "trainscale"
    when = f" on {provenance.date[:10]}" if provenance.date else ""
    most = "at most " if run.is_sequential else ""
    steps = f", with {most}{spec.warmup} warm-up steps and {most}{spec.steps} measured steps" if spec.steps else ""
    factor = ", wider by 1 + 0.8/√repeats because the results decided their number" if run.is_sequential else ""
    proof = "It was not proven for every trial that it computes what one device would compute."
    if all(ladder.series.work_is_proven for ladder in study.ladders):
        proof = (
            "The first steps of every trial were compared with what one device computes with the samples of all, and"
            " they agreed."
        )
    return (
        f"{tool} measured every point {often} time{'' if counts == [1] else 's'} in fresh processes{when}{steps}.",
        "The repeats of all device counts were interleaved, so that a drift of the machine does not look like scaling.",
        f"Speed is the number of {unit} that all devices trained in a window after the warm-up, divided by its time;"
        f" ± is half a 95 % interval over repeats{factor}.",
        "Speed-up is the speed divided by that of one device in the same ladder, and efficiency is speed-up divided by"
        " devices, with the errors of both in the interval.",
        proof,
    )


def list_extrapolation_sentences(study: Study) -> list[str]:
    """Return on what basis anything is said that was not measured."""
    predicted = [(ladder, ladder.predicted) for ladder in study.ladders if isinstance(ladder.predicted, PredictedSize)]
    sentences = ["Every speed and efficiency above was measured on the stated devices; none is extrapolated to others."]
    if predicted:
        ladders = " and ".join(
            f"{ladder.scaling} scaling, from {wording.join_names(map(str, size.prediction.given))} devices"
            for ladder, size in predicted
        )
        sentences = [
            f"The figures for {wording.format_device_count(study.devices)} are predicted ({ladders}); all others were"
            " measured on the stated devices.",
            explain_method(),
        ]
        for ladder, size in predicted:
            if held_out := size.prediction.held_out:
                test = describe_held_out(held_out, ladder.series.unit)
                sentences.append(f"{ladder.scaling.capitalize()} scaling: {test}")
    if study.training:
        windows = [find_window_seconds(point) for ladder in study.ladders for point in ladder.series.points]
        seconds = [window for window in windows if window]
        ends = dict.fromkeys(numbers.format_duration(end) for end in (min(seconds), max(seconds)))
        sentences.append(
            f"The cost of the training is {numbers.format_integer(study.training.total)} {study.unit} divided by the"
            f" {'measured or predicted' if predicted else 'measured'} speed: this assumes that the speed of the"
            f" measured windows ({' to '.join(ends)}) lasts, and that every batch needs the same number of epochs."
        )
        sentences.append("Start-up, validation and saving are not included.")
    if study.config.data == SYNTHETIC:
        sentences.append(
            "The input was random and stayed on the devices, so reading and preparing data is not included."
        )
    return sentences


# ---- numbers


def format_with_error(interval: Interval) -> str:
    """Format a quantity with half its interval, in as many decimals as that has: 24.61 ± 0.12."""
    half = interval.half_width
    if not half:
        return numbers.format_significant(interval.mean, 3)
    error = numbers.format_significant(half, 2)
    decimals = len(error.partition(".")[2])
    return f"{interval.mean:,.{decimals}f}{THIN}±{THIN}{error}"


def _format_with_limits(interval: Interval, digits: int = 3) -> str:
    """Format a prediction, whose interval is lopsided: 2,842 (2,416–2,927)."""
    return f"{numbers.format_significant(interval.mean, digits)} ({numbers.format_limits(interval, digits)})"


def _format_nodes(count: int) -> str:
    return f"{numbers.format_integer(count)} node{'' if count == 1 else 's'}"
