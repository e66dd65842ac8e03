"""The tables of training to an accuracy: every epoch, every device count, the system as a whole. Each is one grid.

Rows and columns are those of the older tools (Keras-MXNet's profile by device count, MXNet's tables by epoch and by
system), so that results can be laid side by side; what is counted differently is said under the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..analyse.learning import EpochMeans, ToAccuracy
from ..analyse.series import Point, Series
from ..analyse.titles import model_title
from ..record.run import RunInfo
from . import numbers, wording
from .grid import Grid
from .provenance_tables import cluster_name

MOST_IN_TERMINAL = 12  # rows; all are in report.md and report.html
_MIB = 1024**2

_COUNTED = (
    "Training time is that of all epochs and of the first step, in which frameworks compile; the average and images/s"
    " leave that step out, and validation is in none of them. Images processed per sec counts training images alone,"
    " where Keras-MXNet's profile counted the validation images too."
)
# The profile summed up what nvidia-smi said of the GPUs: the driver's count comes nearest.
_MEMORY: tuple[tuple[str, str], ...] = (
    ("nvml_peak_bytes_sum", "by the GPUs' driver"),
    ("device_peak_bytes_sum", "by the framework's allocator"),
    ("host_peak_bytes_sum", "by the kernel's count"),
)


def device_grids(series: Sequence[Series]) -> list[Grid]:
    """Of all series that learn; what is counted is said once, under the last."""
    grids = [device_grid(one) for one in series if one.learns]
    return [*grids[:-1], *(replace(last, note=f"{last.note} {_COUNTED}".strip()) for last in grids[-1:])]


def epoch_grids(series: Sequence[Series], most: int | None = None) -> list[Grid]:
    return [epoch_grid(one, point, most) for one in series for point in one.points if point.learning]


def epoch_grid(series: Series, point: Point, most: int | None = None) -> Grid:
    """Accuracies and time of every epoch, mean over repeats; at most ``most`` of them, spread over the training."""
    assert point.learning is not None
    shown = _spread(point.learning.epochs, most)
    rows = [
        (
            str(epoch.epoch),
            f"{epoch.train_accuracy.mean:.6f}",
            f"{epoch.valid_accuracy.mean:.6f}",
            f"{epoch.seconds.mean:.1f}",
        )
        for epoch in shown
    ]
    notes = ["Time: seconds of training; validation is not in it."]
    if point.repeats > 1:
        notes.append(f"Means of {point.repeats} repeats.")
    if point.learning.to_accuracy:
        notes.append(f"{reached(point.learning.to_accuracy)}.")
    if len(shown) < len(point.learning.epochs):
        notes.append(f"{len(shown)} of {len(point.learning.epochs)} epochs; all are in report.md.")
    title = f"{series.title} on {wording.devices_and_hosts(point)}"
    header = ("epoch", "train accuracy", "valid accuracy", "time")
    return Grid(title, header, tuple(rows), " ".join(notes), left=())


def device_grid(series: Series) -> Grid:
    """A column for every device count, the rows of Keras-MXNet's profile."""
    kind = "GPU" if series.config.device == "cuda" else "CPU"
    rows = [(name, *(_cell(point, cell) for point in series.points)) for name, cell in _ROWS]
    target = next((point.learning.to_accuracy for point in series.points if point.learning), None)
    if target:
        rows.append(
            (f"Time to accuracy {target.target:g} (secs)", *(_cell(point, _to_accuracy) for point in series.points))
        )
    repeats = max(point.repeats for point in series.points)
    means = [f"Means of {repeats} repeats."] if repeats > 1 else []
    sources = dict.fromkeys(source for point in series.good if (source := _most_memory(point)[1]))
    memory = [f"Memory: MiB of all workers together, {wording.join_names(sources)}."] if sources else []
    failed = [f"{kind} ({point.devices}): {wording.status(point)}." for point in series.points if not point.ok]
    return Grid(
        title=series.title,
        header=("", *(f"{kind} ({point.devices})" for point in series.points)),
        rows=tuple(rows),
        note=" ".join([*means, *memory, *failed]),
    )


def system_grids(run: RunInfo, series: Sequence[Series]) -> list[Grid]:
    """MXNet's table of systems: for every network, data set and framework, each way that it was trained."""
    groups: dict[tuple[str, str, str], list[Series]] = {}
    for one in series:
        if one.learns:
            groups.setdefault((one.config.model, one.config.data, one.config.framework), []).append(one)
    cluster = cluster_name(run)
    return [
        Grid(
            title=f"{model_title(model)} on {wording.data_name(data)} with {framework}",
            header=(
                "cluster",
                "# machines",
                "# GPUs" if all(one.config.device == "cuda" for one in found) else "# devices",
                "batch size / device",
                "strategy",
                "epoch time (sec)",
            ),
            rows=tuple(_system_row(cluster, one, point) for one in found for point in one.points),
            note="Epoch time: mean over the epochs, of training alone.",
            left=(0, 4),
        )
        for (model, data, framework), found in groups.items()
    ]


def reached(found: ToAccuracy) -> str:
    """When an accuracy was reached, in words."""
    if found.seconds is None or found.epochs is None:
        often = f" in {found.repeats - found.reached} of {found.repeats} repeats" if found.repeats > 1 else ""
        return f"An accuracy of {found.target:g} was not reached{often}"
    epochs = f"{found.epochs:g} epoch{'' if found.epochs == 1 else 's'}"
    return f"Time to accuracy {found.target:g}: {numbers.duration(found.seconds.mean)} of training, {epochs}"


def _system_row(cluster: str, series: Series, point: Point) -> tuple[str, ...]:
    time = f"{point.learning.epoch_seconds.mean:.1f}" if point.learning else wording.status(point)
    machines, devices, batch = map(str, (point.hosts, point.devices, point.batch_per_device))
    return cluster, machines, devices, batch, series.config.strategy_label, time


def _cell(point: Point, cell: Callable[[Point], str]) -> str:
    return cell(point) if point.ok and point.learning else numbers.MISSING


def _training_time(point: Point) -> str:
    return f"{point.learning.training_seconds.mean:.2f}" if point.learning else ""


def _epoch_time(point: Point) -> str:
    return f"{point.learning.epoch_seconds.mean:.2f}" if point.learning else ""


def _speed(point: Point) -> str:
    return f"{point.samples_per_second.mean:.2f}" if point.samples_per_second else ""


def _memory(point: Point) -> str:
    found, _ = _most_memory(point)
    return numbers.MISSING if found is None else f"{found / _MIB:.0f}"


def _most_memory(point: Point) -> tuple[int | None, str]:
    """Bytes of all workers together, and by whose count."""
    for name, source in _MEMORY:
        if (found := getattr(point, name)) is not None:
            return found, source
    return None, ""


def _to_accuracy(point: Point) -> str:
    found = point.learning.to_accuracy if point.learning else None
    return f"{found.seconds.mean:.2f}" if found and found.seconds else "not reached"


_ROWS: tuple[tuple[str, Callable[[Point], str]], ...] = (
    ("Training time (secs)", _training_time),
    ("Average time per epoch (secs)", _epoch_time),
    ("Images processed per sec", _speed),
    ("Training accuracy", lambda point: numbers.accuracy(point.learning.train_accuracy if point.learning else None)),
    ("Test accuracy", lambda point: numbers.accuracy(point.learning.valid_accuracy if point.learning else None)),
    ("Maximum Memory Consumption", _memory),
)


def _spread(epochs: Sequence[EpochMeans], most: int | None) -> Sequence[EpochMeans]:
    """Every n-th, as the seeds have every 10th, and always the last."""
    if most is None or len(epochs) <= most:
        return epochs
    steps = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500)
    each = next((step for step in steps if len(epochs) / step <= most - 1), len(epochs))
    return [epoch for epoch in epochs if epoch.epoch % each == 0 or epoch is epochs[-1]]
