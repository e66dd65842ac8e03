"""Tables of training to an accuracy, as Keras-MXNet and MXNet have them."""

from collections.abc import Sequence
from dataclasses import replace

from ..analyse.series import Point, Series
from ..analyse.titles import find_model_title
from ..runs import Run
from . import numbers, wording
from .documents import Grid
from .provenance_tables import make_machines_grid

MOST_IN_TERMINAL = 12  # rows; all are in report.md and report.html

_COUNTED = (
    "Training time is that of all epochs and of the first step, in which frameworks compile. The average and images/s"
    " leave out that step, and all leave out validation. Images processed per sec counts training images only;"
    " Keras-MXNet's profile also counted the validation images."
)
_ROWS = (
    "Training time (secs)", "Average time per epoch (secs)", "Images processed per sec",
    "Training accuracy", "Test accuracy", "Maximum Memory Consumption",
)  # fmt: skip
# The profile summed up what nvidia-smi reported for the GPUs: the driver's count is nearest to that.
_MEMORY = {
    "nvml_peak_bytes_sum": "by the GPUs' driver",
    "device_peak_bytes_sum": "by the framework's allocator",
    "host_peak_bytes_sum": "by the kernel's count",
}


def make_epoch_grids(all_series: Sequence[Series], most: int | None = None) -> list[Grid]:
    return [make_epoch_grid(series, point, most) for series in all_series for point in series.points if point.learning]


def make_epoch_grid(series: Series, point: Point, most: int | None = None) -> Grid:
    assert point.learning is not None
    shown = epochs = point.learning.epochs
    if most is not None and len(epochs) > most:
        steps = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500)
        interval = next((step for step in steps if len(epochs) / step <= most - 1), len(epochs))
        shown = tuple(epoch for epoch in epochs if epoch.epoch % interval == 0 or epoch is epochs[-1])
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
    if target := point.learning.to_accuracy:
        missed = target.repeats - target.reached
        often = f" in {missed} of {target.repeats} repeats" if target.repeats > 1 else ""
        text = f"An accuracy of {target.target:g} was not reached{often}."
        if target.seconds and target.epochs is not None:
            seconds = numbers.format_duration(target.seconds.mean)
            epochs_to = f"{target.epochs:g} epoch{'' if target.epochs == 1 else 's'}"
            text = f"Time to accuracy {target.target:g}: {seconds} of training, {epochs_to}."
        notes.append(text)
    if len(shown) < len(epochs):
        notes.append(f"{len(shown)} of {len(epochs)} epochs; all are in report.md.")
    title = f"{series.title} on {wording.format_devices_and_hosts(point)}"
    return Grid(title, ("epoch", "train accuracy", "valid accuracy", "time"), tuple(rows), " ".join(notes), left=())


def make_device_grids(all_series: Sequence[Series]) -> list[Grid]:
    """Return a grid for each series that learns."""
    grids = [make_device_grid(series) for series in all_series if series.learns]
    return [*grids[:-1], *(replace(last, note=f"{last.note} {_COUNTED}".strip()) for last in grids[-1:])]


def make_device_grid(series: Series) -> Grid:
    kind = "GPU" if series.config.device == "cuda" else "CPU"
    target = next((point.learning.to_accuracy for point in series.points if point.learning), None)
    names = [*_ROWS, *([f"Time to accuracy {target.target:g} (secs)"] if target else [])]
    columns, memory_sources, failed = [], list[str](), []
    for point in series.points:
        learning = point.learning
        if not point.ok:
            failed.append(f"{kind} ({point.devices}): {wording.name_status(point.status)}.")
        if learning is None or point.samples_per_second is None:
            columns.append([numbers.MISSING] * len(names))
            continue
        counted = next((name for name in _MEMORY if getattr(point, name) is not None), None)
        if counted:
            memory_sources.append(_MEMORY[counted])
        columns.append(
            [
                f"{learning.training_seconds.mean:.2f}",
                f"{learning.epoch_seconds.mean:.2f}",
                f"{point.samples_per_second.mean:.2f}",
                numbers.format_accuracy(learning.train_accuracy),
                numbers.format_accuracy(learning.valid_accuracy),
                f"{getattr(point, counted) / 1024**2:.0f}" if counted else numbers.MISSING,
            ]
        )
        if target:
            seconds = point.seconds_to_accuracy
            columns[-1].append(f"{seconds.mean:.2f}" if seconds else "not reached")
    repeats = max(point.repeats for point in series.points)
    notes = [f"Means of {repeats} repeats."] if repeats > 1 else []
    if memory_sources:
        sources = wording.join_names(dict.fromkeys(memory_sources))
        notes.append(f"Memory: MiB of all workers together, {sources}.")
    header = ("", *(f"{kind} ({point.devices})" for point in series.points))
    return Grid(series.title, header, tuple(zip(names, *columns, strict=True)), " ".join([*notes, *failed]))


def make_system_grids(run: Run) -> list[Grid]:
    """Return MXNet's tables of systems."""
    groups: dict[tuple[str, str, str], list[Series]] = {}
    for series in run.series:
        if series.learns:
            groups.setdefault((series.config.model, series.config.data, series.config.framework), []).append(series)
    cluster = ", ".join(row[0] for row in make_machines_grid(run.info).rows)
    grids = []
    for (model, data, framework), group in groups.items():
        rows = []
        for series in group:
            for point in series.points:
                machines, devices, batch = str(point.hosts), str(point.devices), str(point.batch_per_device)
                learning = point.learning
                time = f"{learning.epoch_seconds.mean:.1f}" if learning else wording.name_status(point.status)
                rows.append((cluster, machines, devices, batch, series.config.strategy_label, time))
        kind = "# GPUs" if all(series.config.device == "cuda" for series in group) else "# devices"
        title = f"{find_model_title(model)} on {wording.format_data_name(data)} with {framework}"
        header = ("cluster", "# machines", kind, "batch size / device", "strategy", "epoch time (sec)")
        note = "Epoch time: mean over the epochs, without validation."
        grids.append(Grid(run.add_label(title), header, tuple(rows), note, left=(0, 4)))
    return grids
