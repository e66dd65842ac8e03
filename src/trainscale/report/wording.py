"""Phrases and sentences about points and series, which all outputs take from here."""

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..analyse.series import Point, Series
from ..analyse.titles import find_model_title
from ..record.trial import CRASH, HANG, IMAGES, OUT_OF_MEMORY, TIMEOUT
from . import numbers

_STATUSES = {OUT_OF_MEMORY: "out of memory", CRASH: "crashed", TIMEOUT: "timed out", HANG: "hung"}


def name_status(kind: str) -> str:
    return _STATUSES.get(kind, kind)


def describe_status_and_reason(point: Point) -> str:
    return f"{name_status(point.status)}: {point.reason}".removesuffix(": ")


def make_title(all_series: Sequence[Series]) -> str:
    models = list(dict.fromkeys(find_model_title(series.config.model) for series in all_series))
    if not models:
        return "Nothing was measured"
    names = f"{len(models)} networks" if len(models) > 4 else join_names(models)
    if any(series.learns for series in all_series):
        datasets = dict.fromkeys(format_data_name(series.config.data) for series in all_series)
        return f"How {'does' if len(models) == 1 else 'do'} {names} learn {join_names(datasets)}?"
    return f"How does the training of {names} scale?"


def make_headline(series: Series) -> str:
    """Return what was found, as the end of a sentence."""
    parts = [describe_scaling(series), describe_learning(series), describe_failed_points(series)]
    return "; ".join(part for part in parts if part) or "nothing was measured"


def describe_scaling(series: Series) -> str:
    """Return what the largest good point reached. Empty without one."""
    if not series.good:
        return ""
    point = series.good[-1]
    rate = point.samples_per_second
    speed = f"{numbers.format_mean(rate)} {point.unit}/s"
    devices = format_devices_and_hosts(point)
    if point.devices > 1 and point.speedup:
        share = numbers.format_efficiency(point.efficiency)
        return f"{devices} give {numbers.format_times(point.speedup)} ({share} efficiency), {speed}"
    verb = "trains" if point.devices == 1 else "train"
    return f"{devices} {verb} {speed} {numbers.format_plus_minus(rate)}".rstrip()


def describe_learning(series: Series) -> str:
    """Return the accuracy that the largest point reached."""
    points = [point for point in series.good if point.learning]
    if not points or points[-1].learning is None:
        return ""
    point, learning = points[-1], points[-1].learning
    accuracy = numbers.format_accuracy(learning.valid_accuracy)
    epochs = numbers.format_count(learning.last.epoch, "epoch")
    parts = [f"{accuracy} of validation {point.unit} right after {epochs}"]
    target = learning.to_accuracy
    if target and target.seconds:
        duration = numbers.format_duration(target.seconds.mean)
        parts.append(f"{target.target:g} after {duration} of training")
    hardware = f" on {format_devices_and_hosts(point)}" if len(series.points) > 1 else ""
    return ", ".join(parts) + hardware


def describe_failed_points(series: Series) -> str:
    failed = [point for point in series.points if not point.ok]
    statuses = [(format_device_count(point.devices), name_status(point.status)) for point in failed]
    return "; ".join(f"{devices}: {status}" for devices, status in statuses)


def group_flags(series: Series) -> list[tuple[str, str]]:
    """Return (points, flag) pairs, a shared flag once."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for point in series.points:
        for flag in point.flags:
            counts[flag].append(point.devices)
    good = [point.devices for point in series.good]
    groups = []
    for flag, devices in counts.items():
        named = f"{join_names(map(str, devices))} device{'' if devices == [1] else 's'}"
        groups.append(("all points" if devices == good and len(good) > 1 else named, flag))
    return groups


def list_parts(macro: str, *about: object) -> list[str]:
    """Return the parts of a text of templates/series.j2."""
    from .documents import load_template, split_paragraphs  # they need tables, which need words

    template = load_template(__package__, "series.j2", (("integer", numbers.format_integer),))
    return split_paragraphs(getattr(template.module, macro)(*about))


def format_data_name(data: str) -> str:
    return data.removeprefix("imagefolder:")


def describe_device_kind(all_series: Sequence[Series]) -> str:
    """Return ``CPU, 2 cores each`` or ``GPUs``; ``devices`` if they differ."""
    kinds = set()
    for config in [series.config for series in all_series]:
        kinds.add((config.device, config.cores_per_device if config.device == "cpu" else 0))
    if len(kinds) != 1:
        return "devices"
    kind, cores = kinds.pop()
    if kind == "cpu":
        return f"CPU, {numbers.format_count(cores, 'core')} each"
    return "GPUs" if kind == "cuda" else kind


def format_device_count(count: int) -> str:
    return numbers.format_count(count, "device")


def format_host_count(count: int) -> str:
    return numbers.format_count(count, "host")


def format_devices_and_hosts(point: Point) -> str:
    hosts = f" on {format_host_count(point.hosts)}" if point.hosts > 1 else ""
    return format_device_count(point.devices) + hosts


def join_names(names: Iterable[str]) -> str:
    items = list(names)
    return f"{', '.join(items[:-1])} and {items[-1]}" if len(items) > 1 else "".join(items)


def name_few(names: Sequence[str]) -> str:
    return join_names(names) if len(names) < 3 else f"{len(names)} series"


def make_definitions(unit: str = IMAGES) -> dict[str, str]:
    path = Path(__file__).parent / "templates" / "definitions.toml"
    definitions = tomllib.loads(path.read_text(encoding="utf-8"))
    names = {"unit": unit, "Unit": unit.capitalize()}
    return {word.format(**names): meaning.format(**names) for word, meaning in definitions.items()}
