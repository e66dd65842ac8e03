"""Every quantity of a point, declared once for all tables and files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..analyse.series import Point, Series
from ..record.parity import REFUTED
from ..spec.config import Config
from ..worker.sample import NONE
from . import numbers
from .numbers import format_efficiency, format_integer, format_mean, format_size

_POINT = {item.name: item.metadata for item in fields(Point)}

TERMINAL, PAGE = "terminal", "page"  # tables of the terminal and report.md; of report.html


@dataclass(frozen=True)
class Column:
    name: str
    meaning: str
    unit: str = ""
    get: str | Callable[[Series, Point], Any] = ""  # a path from the point, by default ``name``
    in_files: str = ""  # the name in results.csv and results.json; by default ``name``
    in_csv: bool = True
    in_json: bool = True
    ends: bool = False  # an Interval, which is three columns of results.csv
    unusual: Callable[[Any], bool] | None = None  # in results.csv only where this holds for a value
    heading: tuple[str, str] | None = None  # two lines; without one, people do not see the column
    format: Callable[[Any], str] = str
    rank: int = 0  # a narrow terminal leaves out the highest first
    style: str = ""  # in the terminal
    where: tuple[str, ...] = (TERMINAL, PAGE)
    beside: str = ""  # the column in whose cell this one is on the page, small
    of_failed: bool = False  # points without a result fill it too

    def read(self, series: Series, point: Point) -> Any:
        if callable(self.get):
            return self.get(series, point)
        value: Any = point
        for name in (self.get or self.name).split("."):
            value = None if value is None else getattr(value, name)
        return value

    def name_in_files(self, unit: str) -> str:
        return (self.in_files or self.name).format(unit=unit)

    def format_cell(self, series: Series, point: Point) -> str:
        return self.format(self.read(series, point)) if point.ok or self.of_failed else ""

    def format_heading(self, unit: str) -> tuple[str, str]:
        first, second = self.heading or ("", "")
        return first.format(unit=unit), second.format(unit=unit)


def choose_shown(all_series: Sequence[Series], where: str) -> list[Column]:
    """Return the columns in which a good point has a value."""
    pairs = [(series, point) for series in all_series for point in series.points]
    shown = []
    for column in COLUMNS:
        if column.heading is None or where not in column.where:
            continue
        if column.name == "hosts":
            has_values = any(point.hosts > 1 for _, point in pairs)
        elif column.name == "efficiency_versus_local" and where == PAGE:
            # A local series is its own baseline: a column of 100 % would be useless.
            others = [point for series, point in pairs if series.config.strategy != "local"]
            has_values = any(point.efficiency_versus_local for point in others)
        else:
            cells = (column.format_cell(series, point) for series, point in pairs if point.ok)
            has_values = any(cell.strip() not in ("", numbers.MISSING) for cell in cells)
        if has_values or column.rank == 0 or column.name == "flagged":
            shown.append(column)
    return shown


def find_memory_peak(point: Point) -> int | None:
    if point.config.device == "cpu":
        return point.host_peak_bytes
    return point.nvml_peak_bytes if point.device_peak_bytes is None else point.device_peak_bytes


def _of_point(name: str, **others: Any) -> Column:
    return Column(name, _POINT[name]["meaning"], _POINT[name]["unit"], **others)


def _of_config(name: str, meaning: str, unit: str = "", **others: Any) -> Column:
    return Column(name, meaning, unit, f"config.{name}", in_json=False, **others)


def _of_learning(name: str, meaning: str, unit: str, get: str = "", **others: Any) -> Column:
    """results.json has these in an object of their own."""
    return Column(name, meaning, unit, f"learning.{get or name}", in_json=False, **others)


def _of_series(name: str, meaning: str, get: str, **others: Any) -> Column:
    return Column(name, meaning, "", lambda series, _: getattr(series, get), in_json=False, **others)


def _format_two_digits(value: float | None) -> str:
    return numbers.format_number(value, 2)  # more would be noise


COLUMNS: tuple[Column, ...] = (
    _of_config("framework", "framework"),
    _of_config("model", "network"),
    _of_series("series", "title of the series, unique within the run", "title", in_files="title"),
    _of_series("parameters", "trainable values of the network", "parameters"),
    _of_config("strategy", "how gradients are exchanged"),
    _of_config("image_size", "height and width of an image", "pixels"),
    _of_config("classes", "classes of the labels"),
    _of_config("channels", "channels of an image"),
    _of_config("servers", "parameter servers; -1: the same number on every host with workers"),
    _of_config("server_placement", "servers beside the workers or apart from them"),
    _of_config("precision", "number format of the arithmetic"),
    _of_config("layout", "order of the dimensions of images"),
    _of_config("compile", "whether the framework compiled the network"),
    _of_config("scaling", "weak: the batch per device is fixed; strong: the global batch is"),
    _of_config("data", "source of the samples"),
    _of_config("device", "cpu or cuda"),
    _of_config("cores_per_device", "cores of a CPU slot"),
    _of_config("ranks_per_gpu", "workers that share a GPU"),
    _of_config("servers_per_host", "servers on each host; 0: spread"),
    _of_config("placement", "how workers fill the hosts"),
    _of_config("augment", "whether training images were randomly changed"),
    _of_config("loaders", "loader processes of each rank; 0: chosen"),
    _of_config("deterministic", "whether deterministic operations were requested"),
    _of_config(
        "allocator", "setting of the C library's memory allocator", unusual=lambda it: it != Config.allocator
    ),
    _of_config("epochs", "epochs to train; 0: speed is measured in steps"),
    _of_config("until_accuracy", "validation accuracy at which training stops", "share"),
    _of_config("learning_rate", "learning rate at the start"),
    _of_config("momentum", "momentum of the optimizer"),
    _of_config("weight_decay", "weight decay of the optimizer"),
    _of_config("schedule", "how the learning rate changes"),
    _of_config("warmup_epochs", "epochs in which the learning rate rises", "epochs"),
    _of_point("devices", heading=("", "devices"), format=format_integer, style="bold", of_failed=True),
    _of_point("hosts", heading=("", "hosts"), format=format_integer, rank=2, of_failed=True),
    _of_point("batch_per_device", heading=("batch/", "device"), format=format_integer, rank=5, of_failed=True),
    _of_point("global_batch", heading=("global", "batch"), format=format_integer, rank=6, of_failed=True),
    _of_point("repeats"),
    _of_point("unit", in_csv=False, in_json=False),
    _of_point(
        "samples_per_second", in_files="{unit}_per_second_cluster", ends=True,
        heading=("{unit}/s", "cluster"), format=format_mean, style="bold",
    ),
    Column(
        "plus_minus", "half the interval of the throughput, relative to it", "share",
        "samples_per_second.relative", in_files="plus_minus_relative", heading=("", "±"),
        format=numbers.format_relative_error, rank=2, style="dim", beside="samples_per_second",
    ),
    Column(
        "samples_per_second_per_device", "throughput divided by devices", "samples/s",
        lambda _, point: point.samples_per_second.scaled(1 / point.devices) if point.samples_per_second else None,
        in_files="{unit}_per_second_per_device",
        heading=("{unit}/s", "per device"), format=format_mean, rank=7,
    ),
    _of_point(
        "jitter", in_files="jitter_{unit}_per_second_cluster",
        heading=("jitter", "{unit}/s"), format=_format_two_digits, rank=9,
    ),
    _of_point("speedup", ends=True, heading=("", "speed-up"), format=numbers.format_times, rank=1),
    _of_point("efficiency", ends=True, heading=("", "efficiency"), format=format_efficiency, rank=1, style="bold"),
    Column(
        "efficiency_bar", "the efficiency as a bar", get="efficiency", in_csv=False, in_json=False,
        heading=("", ""), rank=11, style="cyan", where=(TERMINAL,),
        format=lambda share: f"{'━' * round(min(1.0, share.mean) * 10) if share else '':10}",
    ),
    _of_point("efficiency_versus_local", ends=True, heading=("vs", "local"), format=format_efficiency, rank=10),
    _of_point(
        "step_seconds", in_files="step_seconds_median",
        heading=("step", "ms"), format=numbers.format_milliseconds, rank=4,
    ),
    _of_point("input_overhead", ends=True, heading=("input", "overhead"), format=numbers.format_overhead, rank=3),
    _of_point("waiting_share"),
    _of_learning("epochs_trained", "epochs trained", "epochs", "last.epoch"),
    _of_learning("training_seconds", "all epochs and the first step, without validation", "s", ends=True),
    _of_learning("epoch_seconds", "an epoch without validation, mean over epochs", "s", ends=True),
    _of_learning("train_accuracy", "accuracy of the last epoch on training samples", "share", ends=True),
    _of_learning(
        "valid_accuracy", "accuracy after the last epoch on validation samples", "share", ends=True,
        heading=("valid", "accuracy"), format=numbers.format_accuracy, rank=1, style="bold",
    ),
    _of_learning(
        "accuracy_target", "validation accuracy that was to be reached", "share", "to_accuracy.target"
    ),
    _of_learning("repeats_to_accuracy", "repeats that reached it", "", "to_accuracy.reached"),
    _of_learning("epochs_to_accuracy", "epochs until then, mean over repeats", "epochs", "to_accuracy.epochs"),
    _of_learning(
        "seconds_to_accuracy", "training time to the accuracy of the run", "s", "to_accuracy.seconds", ends=True
    ),
    _of_point("startup_seconds", heading=("start-up", "s"), format=_format_two_digits, rank=12),
    _of_point("first_step_seconds", heading=("1st step", "s"), format=_format_two_digits, rank=13),
    _of_point(
        "compilation", unusual=bool,  # empty in older journals
        heading=("compile", "cache"), format=lambda state: "" if state == NONE else state, rank=14,
        beside="first_step_seconds",
    ),
    _of_point("device_peak_bytes", heading=("memory", "device"), format=format_size, rank=8, where=(PAGE,)),
    _of_point("device_peak_bytes_sum"),
    _of_point("nvml_peak_bytes"),
    _of_point("nvml_peak_bytes_sum"),
    _of_point("host_peak_bytes", heading=("memory", "host"), format=format_size, rank=8, where=(PAGE,)),
    _of_point("host_peak_bytes_sum"),
    _of_point("loaders_peak_bytes"),
    Column(
        "peak_memory", "largest peak of a rank: on its GPU, or on CPUs of its host", "bytes",
        lambda _, point: find_memory_peak(point), in_csv=False, in_json=False,
        heading=("peak", "memory"), format=format_size, rank=8, where=(TERMINAL,),
    ),
    Column("status", "ok, or why there is no result"),
    Column("reason", "one line on why there is no result; empty for a good point", in_json=False),
    _of_point("flags"),
    Column(
        "framework_version", "version of the framework", in_json=False,
        get=lambda series, _: next(iter(series.versions.values()), None),  # the first one is its own
    ),
    _of_series("parity", "whether the framework trains the same network as the others", "parity"),
    Column(
        "witness", "whether its trials did their work: proven, unproven or refuted", in_json=False,
        get=lambda _, point: point.witness if point.ok else REFUTED if point.status == REFUTED else None,
    ),
    Column(
        "flagged", "whether a check found something",
        get=lambda _, point: bool(point.flags), in_csv=False, in_json=False,
        heading=("", "status"), format=lambda flagged: "ok ⚑" if flagged else "ok", rank=3, where=(TERMINAL,),
    ),
)  # fmt: skip
COLUMN = {column.name: column for column in COLUMNS}
