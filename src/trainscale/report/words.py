"""What the outputs say in words: what each statistic means, why a point has no result, what was measured.

Every output takes its sentences from here, so that the table, the report and results.json agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..analyse.boundary import Boundary
from ..analyse.series import Point, Series
from ..analyse.text import first_line
from ..analyse.titles import model_title
from ..record.parity import PROVEN
from ..record.run import RunInfo
from ..record.trial import CRASH, HANG, LOST, MISSING, OUT_OF_MEMORY, REFUSED, TIMEOUT
from ..spec.config import BESIDE, EACH_HOST, WEAK, Config
from . import numbers

DEFINITIONS: dict[str, str] = {
    "images per second": (
        "Cluster-wide: all workers together, unless a column says per device. Images trained in the measured"
        " window divided by its wall time, after warm-up, with the devices synchronised at both ends."
        " Synchronous workers share the longest window; the speeds of asynchronous ones add up."
    ),
    "point": ("All repeats of one configuration on one device count, each in fresh processes. The mean is shown."),
    "±": (
        "Half the 95 % interval of the mean over repeats (Student's t on run means, never on single steps):"
        " relative for images/s, percentage points for efficiency. A single repeat has none."
    ),
    "jitter": (
        "How much the speed changes from step to step within a run: 1.4826 · median absolute deviation of the"
        " per-step speeds, in cluster-wide images/s; the median over repeats."
    ),
    "speed-up": (
        "images/s divided by the images/s of the same series on 1 device. The interval combines both errors"
        " (Welch's t on the log scale)."
    ),
    "efficiency": "Speed-up divided by devices: 100 % is ideal.",
    "efficiency versus local": (
        "The same against the fastest 1-device run of the same work without distribution (strategy local)."
    ),
    "step": "Median step time. A synchronous step lasts as long as its slowest worker.",
    "batch": "Images per step: on each device, and globally over all devices.",
    "weak scaling": "The batch per device is fixed, so the global batch grows with the devices.",
    "strong scaling": "The global batch is fixed, so the batch per device shrinks with the devices.",
    "device": "What one worker trains on: a GPU, or a fixed set of CPU cores.",
    "host": (
        "A machine. The ladder fills one before it takes the next; a line in tables and charts marks where it leaves"
        " the first. Beyond it, what is exchanged goes over the network."
    ),
    "parity": (
        "Whether the frameworks that are compared train the same network: same parameter and operation counts, same"
        " initial weights, same logits, and in float64 the same losses and weights after three steps."
    ),
    "start-up, first step": (
        "Seconds from the start of the slowest worker's process to its first step, and of that first step, in which"
        " frameworks compile and tune. Neither is part of the measured window."
    ),
    "epoch": "One pass over the training images, in an order of its own. Its time is that of its steps alone.",
    "accuracy": (
        "The share of images that are labelled right. Training: of an epoch's images as they were trained on,"
        " augmented, each before its update. Validation, or test: of all validation images, after the epoch, by the"
        " network as it is used."
    ),
    "training time": "All epochs, and the first step, in which frameworks compile. Validation is not in it.",
    "time to accuracy": (
        "Training time to the end of the first epoch after which the validation accuracy is at least this. Where some"
        " repeats do not reach it, there is no mean."
    ),
    "input overhead": (
        "(synthetic - real) / synthetic: images/s on one batch that stays on the device, measured in the same"
        " processes after the window, against images/s on real images. The mean over repeats."
    ),
    "waiting": "The share of the window in which the worker that waited most had no images ready.",
    "memory": (
        "The largest peak over workers and repeats: on the device by the framework's allocator, on the host"
        " by the kernel's count for the process."
    ),
}

_FAILURES = {
    OUT_OF_MEMORY: "out of memory",
    CRASH: "crashed",
    TIMEOUT: "timed out",
    HANG: "hung",
    LOST: "lost",
    REFUSED: "refused",
    MISSING: "missing",
}


def status(point: Point) -> str:
    """``ok``, or why there is no result, in a word or three."""
    return _FAILURES.get(point.status, point.status)


def reason(point: Point) -> str:
    """Why a point has no result, on one line. Empty for a good point."""
    if point.ok or not point.failures:
        return ""
    return first_line(point.failures[-1].message)


def title(series: Sequence[Series]) -> str:
    """Of a whole report."""
    models = list(dict.fromkeys(model_title(one.config.model) for one in series))
    if not models:
        return "Nothing was measured"
    names = f"{len(models)} networks" if len(models) > 4 else listing(models)
    if any(one.learns for one in series):
        sets = dict.fromkeys(data_name(one.config.data) for one in series)
        return f"How {names} {'learns' if len(models) == 1 else 'learn'} {listing(sets)}"
    return f"How the training of {names} scales"


def summary(run: RunInfo, series: Sequence[Series]) -> list[str]:
    """The line under the title: what was varied, on what, when."""
    points = [point for one in series for point in one.points]
    counts = sorted({point.devices for point in points})
    date = run.provenance.get("date")
    facts = [
        listing(dict.fromkeys(one.config.framework for one in series)),
        listing(dict.fromkeys(one.config.strategy_label for one in series)),
        f"{', '.join(map(numbers.integer, counts))} device{'' if counts == [1] else 's'} ({device_kind(series)})"
        if counts
        else "",
        hosts(max((point.hosts for point in points), default=1)),
        date[:16].replace("T", " ") if isinstance(date, str) else "",
    ]
    return [fact for fact in facts if fact]


def headline(series: Series) -> str:
    """What a series found, as the end of a sentence that starts with its title."""
    parts = [achievement(series), learnt(series), shortfall(series)]
    return "; ".join(part for part in parts if part) or "nothing was measured"


def achievement(series: Series) -> str:
    """What the largest good point reached. Empty without one."""
    if not series.good:
        return ""
    point = series.good[-1]
    rate = point.images_per_second
    speed = f"{numbers.rate(rate.mean if rate else None)} images/s"
    if point.devices > 1 and point.speedup:
        share = numbers.efficiency(point.efficiency)
        return f"{place(point)} give {numbers.times(point.speedup)} ({share} efficiency), {speed}"
    verb = "trains" if point.devices == 1 else "train"
    return f"{place(point)} {verb} {speed} {numbers.plus_minus(rate)}".rstrip()


def learnt(series: Series) -> str:
    """What the largest point learnt. Empty where nothing was trained to an accuracy."""
    points = [point for point in series.good if point.learning]
    if not points or points[-1].learning is None:
        return ""
    point, found = points[-1], points[-1].learning
    many = "" if found.last.epoch == 1 else "s"
    parts = [
        f"{numbers.accuracy(found.valid_accuracy)} of validation images right after {found.last.epoch} epoch{many}"
    ]
    if found.to_accuracy and found.to_accuracy.seconds:
        parts.append(
            f"{found.to_accuracy.target:g} after {numbers.duration(found.to_accuracy.seconds.mean)} of training"
        )
    where = f" on {place(point)}" if len(series.points) > 1 else ""
    return ", ".join(parts) + where


def shortfall(series: Series) -> str:
    """Which points gave no result. Empty when all did."""
    failed = [point for point in series.points if not point.ok]
    return "; ".join(f"{devices(point.devices)}: {status(point)}" for point in failed)


def grouped_flags(series: Series) -> list[tuple[str, str]]:
    """(whom, flag): a flag that several points share is one line, not one a point."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for point in series.points:
        for flag in point.flags:
            counts[flag].append(point.devices)
    good = [point.devices for point in series.good]
    return [
        ("all points" if found == good and len(good) > 1 else _device_list(found), flag)
        for flag, found in counts.items()
    ]


def traits(series: Series) -> list[str]:
    """What was the same along the ladder, for the line under a series' title."""
    config = series.config
    scope = "per device" if config.scaling == WEAK else "over all devices"
    words = [
        f"batch {numbers.integer(config.batch)} {scope} ({config.scaling} scaling)",
        f"{config.precision}, {config.layout}{', compiled' if config.compile else ''}",
        f"{config.image_size}×{config.image_size} {data_name(config.data)} images",
        device_kind([series]),
    ]
    if config.epochs:
        words.insert(1, training(config))
        words.append(f"momentum {config.momentum:g}, weight decay {config.weight_decay:g}")
    if config.servers:
        count = f"{config.servers} server{'s' if config.servers > 1 else ''}"
        if config.servers == EACH_HOST:
            count = f"{config.servers_on(1)} server{'s' if config.servers_on(1) > 1 else ''} on each host,"
        own = "hosts" if any(point.hosts > 1 for point in series.points) else "devices"
        there = "beside the workers" if config.server_placement == BESIDE else f"on {own} of their own"
        words.append(f"{count} {there}")
    if series.parameters:
        words.append(f"{numbers.integer(series.parameters)} parameters")
    if series.parity and series.parity.state == PROVEN and not series.parity.is_reference:
        words.append(f"same work as {series.parity.reference}, proven")
    return words


def training(config: Config) -> str:
    """How a network is trained to an accuracy."""
    limit = f"until {config.until_accuracy:g}, at most {config.epochs}" if config.until_accuracy else str(config.epochs)
    schedule = "" if config.schedule == "constant" else f" {config.schedule}"
    warmup = f" after {config.warmup_epochs:g} of warm-up" if config.warmup_epochs else ""
    return f"{limit} epoch{'' if limit == '1' else 's'}, SGD {config.learning_rate:g}{schedule}{warmup}"


def data_name(data: str) -> str:
    """A folder of photographs goes by its name."""
    return data.removeprefix("imagefolder:")


def device_kind(series: Sequence[Series]) -> str:
    """What the devices are, where they are alike: ``CPU, 2 cores each``, ``GPUs``; else ``devices``."""
    configs = [one.config for one in series]
    kinds = {(config.device, config.cores_per_device if config.device == "cpu" else 0) for config in configs}
    if len(kinds) != 1:
        return "devices"
    kind, cores = kinds.pop()
    if kind == "cpu":
        return f"CPU, {cores} core{'' if cores == 1 else 's'} each"
    return "GPUs" if kind == "cuda" else kind


def devices(count: int) -> str:
    return f"{numbers.integer(count)} device{'' if count == 1 else 's'}"


def hosts(count: int) -> str:
    return f"{numbers.integer(count)} host{'' if count == 1 else 's'}"


def place(point: Point) -> str:
    """``4 devices``, ``8 devices on 2 hosts``."""
    return devices(point.devices) + (f" on {hosts(point.hosts)}" if point.hosts > 1 else "")


def hosts_beyond(edge: Boundary) -> str:
    """``2 hosts``, ``2–8 hosts``: those of the points beyond a host boundary."""
    fewest = f"{numbers.integer(edge.fewest_hosts)}–" if edge.fewest_hosts < edge.most_hosts else ""
    return fewest + hosts(edge.most_hosts)


def listing(items: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    words = list(items)
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _device_list(counts: Sequence[int]) -> str:
    return listing(map(str, counts)) + (" device" if counts == [1] else " devices")
