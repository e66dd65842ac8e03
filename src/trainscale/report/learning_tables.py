"""The tables of training to an accuracy: every epoch, every device count, whole systems. Each is one grid.

Rows and columns are those of the older tools (Keras-MXNet's profile by device count, MXNet's tables by epoch and by
system), so that results can be compared. A note under the table says what is counted differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..analyse.series import EpochMeans, Point, Series, ToAccuracy
from ..analyse.titles import find_model_title
from ..record.run import RunInfo
from . import numbers, wording
from .provenance_tables import name_cluster
from .table import Grid

MOST_IN_TERMINAL = 12  # rows; all are in report.md and report.html
_MIB = 1024**2

_COUNTED = (
    "Training time is that of all epochs and of the first step, in which frameworks compile. The average and images/s"
    " leave out that step, and all leave out validation. Images processed per sec counts training images only;"
    " Keras-MXNet's profile also counted the validation images."
)
# The profile summed up what nvidia-smi reported for the GPUs: the driver's count is nearest to that.
_MEMORY: tuple[tuple[str, str], ...] = (
    ("nvml_peak_bytes_sum", "by the GPUs' driver"),
    ("device_peak_bytes_sum", "by the framework's allocator"),
    ("host_peak_bytes_sum", "by the kernel's count"),
)


def make_device_grids(all_series: Sequence[Series]) -> list[Grid]:
    """Return a grid for each series that learns. The last has the note on what is counted."""
    grids = [make_device_grid(series) for series in all_series if series.learns]
    return [*grids[:-1], *(replace(last, note=f"{last.note} {_COUNTED}".strip()) for last in grids[-1:])]


def make_epoch_grids(all_series: Sequence[Series], most: int | None = None) -> list[Grid]:
    return [make_epoch_grid(series, point, most) for series in all_series for point in series.points if point.learning]


def make_epoch_grid(series: Series, point: Point, most: int | None = None) -> Grid:
    """Return accuracies and time of every epoch, mean over repeats; at most ``most`` epochs, evenly spread."""
    assert point.learning is not None
    shown = _choose_epochs(point.learning.epochs, most)
    rows = [
        (
            str(epoch.epoch),
            f"{epoch.train_accuracy.mean:.6f}",
            f"{epoch.valid_accuracy.mean:.6f}",
            f"{epoch.seconds.mean:.1f}",
        )
        for epoch in shown
    ]
    notes = ["Time: seconds of training, without validation."]
    if point.repeats > 1:
        notes.append(f"Means of {point.repeats} repeats.")
    if point.learning.to_accuracy:
        notes.append(f"{describe_target(point.learning.to_accuracy)}.")
    if len(shown) < len(point.learning.epochs):
        notes.append(f"{len(shown)} of {len(point.learning.epochs)} epochs; all are in report.md.")
    title = f"{series.title} on {wording.format_devices_and_hosts(point)}"
    header = ("epoch", "train accuracy", "valid accuracy", "time")
    return Grid(title, header, tuple(rows), " ".join(notes), left=())


def make_device_grid(series: Series) -> Grid:
    """Return the rows of Keras-MXNet's profile, with a column for every device count."""
    kind = "GPU" if series.config.device == "cuda" else "CPU"
    rows = [(name, *(_format_cell(point, cell) for point in series.points)) for name, cell in _ROWS]
    target = next((point.learning.to_accuracy for point in series.points if point.learning), None)
    if target:
        rows.append(
            (
                f"Time to accuracy {target.target:g} (secs)",
                *(_format_cell(point, _format_time_to_accuracy) for point in series.points),
            )
        )
    repeats = max(point.repeats for point in series.points)
    means = [f"Means of {repeats} repeats."] if repeats > 1 else []
    sources = dict.fromkeys(source for point in series.good if (source := _find_total_memory(point)[1]))
    memory = [f"Memory: MiB of all workers together, {wording.join_names(sources)}."] if sources else []
    failed = [f"{kind} ({point.devices}): {wording.describe_status(point)}." for point in series.points if not point.ok]
    return Grid(
        title=series.title,
        header=("", *(f"{kind} ({point.devices})" for point in series.points)),
        rows=tuple(rows),
        note=" ".join([*means, *memory, *failed]),
    )


def make_system_grids(run: RunInfo, all_series: Sequence[Series]) -> list[Grid]:
    """Return MXNet's table of systems, one for each network, data set and framework."""
    groups: dict[tuple[str, str, str], list[Series]] = {}
    for series in all_series:
        if series.learns:
            groups.setdefault((series.config.model, series.config.data, series.config.framework), []).append(series)
    cluster = name_cluster(run)
    return [
        Grid(
            title=f"{find_model_title(model)} on {wording.format_data_name(data)} with {framework}",
            header=(
                "cluster",
                "# machines",
                "# GPUs" if all(series.config.device == "cuda" for series in group) else "# devices",
                "batch size / device",
                "strategy",
                "epoch time (sec)",
            ),
            rows=tuple(_make_system_row(cluster, series, point) for series in group for point in series.points),
            note="Epoch time: mean over the epochs, without validation.",
            left=(0, 4),
        )
        for (model, data, framework), group in groups.items()
    ]


def describe_target(target: ToAccuracy) -> str:
    """Return a sentence on whether and when an accuracy was reached."""
    if target.seconds is None or target.epochs is None:
        missed = target.repeats - target.reached
        often = f" in {missed} of {target.repeats} repeats" if target.repeats > 1 else ""
        return f"An accuracy of {target.target:g} was not reached{often}"
    epochs = f"{target.epochs:g} epoch{'' if target.epochs == 1 else 's'}"
    return f"Time to accuracy {target.target:g}: {numbers.format_duration(target.seconds.mean)} of training, {epochs}"


def _make_system_row(cluster: str, series: Series, point: Point) -> tuple[str, ...]:
    time = f"{point.learning.epoch_seconds.mean:.1f}" if point.learning else wording.describe_status(point)
    machines, devices, batch = map(str, (point.hosts, point.devices, point.batch_per_device))
    return cluster, machines, devices, batch, series.config.strategy_label, time


def _format_cell(point: Point, cell: Callable[[Point], str]) -> str:
    return cell(point) if point.ok and point.learning else numbers.MISSING


def _format_training_time(point: Point) -> str:
    return f"{point.learning.training_seconds.mean:.2f}" if point.learning else ""


def _format_epoch_time(point: Point) -> str:
    return f"{point.learning.epoch_seconds.mean:.2f}" if point.learning else ""


def _format_speed(point: Point) -> str:
    return f"{point.samples_per_second.mean:.2f}" if point.samples_per_second else ""


def _format_memory(point: Point) -> str:
    size, _ = _find_total_memory(point)
    return numbers.MISSING if size is None else f"{size / _MIB:.0f}"


def _find_total_memory(point: Point) -> tuple[int | None, str]:
    """Return the bytes of all workers together, and who counted them."""
    for name, source in _MEMORY:
        size: int | None = getattr(point, name)
        if size is not None:
            return size, source
    return None, ""


def _format_time_to_accuracy(point: Point) -> str:
    target = point.learning.to_accuracy if point.learning else None
    return f"{target.seconds.mean:.2f}" if target and target.seconds else "not reached"


_ROWS: tuple[tuple[str, Callable[[Point], str]], ...] = (
    ("Training time (secs)", _format_training_time),
    ("Average time per epoch (secs)", _format_epoch_time),
    ("Images processed per sec", _format_speed),
    (
        "Training accuracy",
        lambda point: numbers.format_accuracy(point.learning.train_accuracy if point.learning else None),
    ),
    ("Test accuracy", lambda point: numbers.format_accuracy(point.learning.valid_accuracy if point.learning else None)),
    ("Maximum Memory Consumption", _format_memory),
)


def _choose_epochs(epochs: Sequence[EpochMeans], most: int | None) -> Sequence[EpochMeans]:
    """Return every n-th epoch, and always the last."""
    if most is None or len(epochs) <= most:
        return epochs
    steps = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500)
    interval = next((step for step in steps if len(epochs) / step <= most - 1), len(epochs))
    return [epoch for epoch in epochs if epoch.epoch % interval == 0 or epoch is epochs[-1]]
