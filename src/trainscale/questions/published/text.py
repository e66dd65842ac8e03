"""Published curves as tables, JSON, charts, and beside a run."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import wrap

from rich.cells import cell_len

from ...analyse.series import Point, Series, find_common_unit
from ...analyse.statistics import Interval
from ...errors import InputError
from ...record.run import RunInfo
from ...report import numbers, wording
from ...report.documents import Grid, encode_json, load_template
from ...report.options import SPEEDUP, Overlay
from ...spec.config import STRONG, WEAK, Config
from ...worker import models
from .curves import PREFIX, SENTENCES, PublishedCurve
from .near import describe_work, list_traits

# Schema history
#     1  first version
PUBLISHED_SCHEMA = 1
_BAR_WIDTH = 10  # cells of 100 %
_FEWEST = 3  # columns of the list that every terminal shows
FLAG = "⚑"
_LETTER = 6  # pixels of an average letter
_SCALE = 2.0  # pixels of a PNG per pixel of the chart, for sharp screens


def make_list_grid(curves: Sequence[PublishedCurve], width: int) -> Grid:
    header = ("ID", "devices", "efficiency", "network", "device", "scaling", "precision")
    rows = [
        (
            f"{curve.id}{f' {FLAG}' if curve.flags else ''}",
            f"{curve.baseline.devices}–{curve.most_devices}",
            numbers.format_percent(curve.compute_efficiency(curve.points[-1])),
            curve.network.title,
            curve.device or curve.hardware,
            curve.scaling or "not stated",
            curve.precision,
        )
        for curve in curves
    ]
    sources = len({curve.source for curve in curves})
    note = (
        f"{numbers.format_count(len(curves), 'curve')} of {numbers.format_count(sources, 'source')}."
        f" Efficiency: that of the largest point, relative to the smallest. {FLAG}: a figure is impossible,"
        " or is not what its source says it is; trainscale published ID explains it."
    )
    widths = [max(map(cell_len, cells)) + 2 for cells in zip(header, *rows, strict=True)]
    fitting = [count for count in range(_FEWEST, len(header) + 1) if sum(widths[:count]) <= width]
    kept = max(fitting, default=_FEWEST)
    return Grid("Published scaling results", header, tuple(rows), note, left=(0, 3, 4, 5, 6)).select(range(kept))


def make_curve_grid(curve: PublishedCurve) -> Grid:
    header = ("devices", "hosts", "batch", "global", f"{curve.unit}/s", "speed-up", "efficiency", "")
    rows = [
        (
            numbers.format_integer(point.devices),
            numbers.format_integer(curve.count_hosts(point)),
            numbers.MISSING if point.batch_per_device is None else f"{point.batch_per_device:g}",
            numbers.format_integer(point.global_batch),
            numbers.format_number(point.per_second),
            f"{curve.compute_speedup(point):.2f}×",
            f"{curve.compute_efficiency(point) * 100:.1f}{numbers.THIN}%",
            "━" * round(min(1.0, curve.compute_efficiency(point)) * _BAR_WIDTH),
        )
        for point in curve.points
    ]
    baseline = wording.format_device_count(curve.baseline.devices)
    note = f"Speed-up and efficiency are relative to {baseline}; the batch is that of a device. There are no intervals."
    return Grid(curve.title, header, tuple(rows), note, left=(len(header) - 1,)).drop_empty_columns()


def describe(curve: PublishedCurve) -> list[tuple[str, str]]:
    """Return what the source states, then the flags."""
    words = {"FLAG": FLAG, "PREFIX": PREFIX, "SENTENCES": SENTENCES}
    lines = load_template(__package__, "curve.j2").render(curve=curve, **words).splitlines()
    return [(name, text) for name, _, text in (line.partition("\t") for line in lines)]


def render_published_json(curves: Sequence[PublishedCurve]) -> str:
    encoded = []
    for curve in curves:
        points = [
            {
                **asdict(point),
                "hosts": curve.count_hosts(point),
                "speedup": curve.compute_speedup(point),
                "efficiency": curve.compute_efficiency(point),
            }
            for point in curve.points
        ]
        flags = [{"name": flag, "sentence": SENTENCES[flag]} for flag in curve.flags]
        encoded.append({**asdict(curve), "title": curve.title, "flags": flags, "points": points})
    return encode_json({"schema": PUBLISHED_SCHEMA, "curves": encoded})


# ---- curves as series, for charts


def make_curve_series(curve: PublishedCurve) -> Series:
    """Return a curve as a series without intervals."""
    if not curve.has_speeds:
        raise InputError(f"{PREFIX}{curve.id}: its source states an efficiency but no speeds to draw")
    info = models.resolve(curve.network.name)
    is_strong = curve.scaling == STRONG
    batch = curve.baseline.global_batch if is_strong else curve.baseline.batch_per_device
    config = Config(
        framework=curve.framework,
        model=curve.network.title,
        batch=round(batch or 0),
        strategy=curve.strategy,
        image_size=info.image_size if info else 0,
        classes=info.classes if info else 0,
        precision=curve.precision,
        scaling=STRONG if is_strong else WEAK,
        data=curve.data,
        device="cuda",
    )
    has_baseline = curve.baseline.devices == 1
    points = tuple(
        Point(
            config=config,
            series=curve.title,
            devices=point.devices,
            hosts=curve.count_hosts(point) or 1,
            batch_per_device=round(point.batch_per_device or 0),
            global_batch=point.global_batch or 0,
            repeats=1,
            unit=curve.unit,
            samples_per_second=Interval(point.per_second),
            speedup=Interval(curve.compute_speedup(point)) if has_baseline else None,
            efficiency=Interval(curve.compute_efficiency(point)) if has_baseline else None,
        )
        for point in curve.points
        if point.per_second is not None
    )
    return Series(config=config, title=curve.title, points=points, versions={})


def overlay_curves(
    runs: Sequence[tuple[RunInfo, Sequence[Series]]], curves: Sequence[PublishedCurve], normalise: str = SPEEDUP
) -> Overlay:
    """Return curves, and how each differs from a series."""
    works = [describe_work(series, info) for info, of_run in runs for series in of_run]
    unit = find_common_unit([series for _, of_run in runs for series in of_run])
    titles = {work.title for work in works}
    laid, sentences = [], []
    for curve in dict.fromkeys(curves):
        name = f"{PREFIX}{curve.id}"
        if normalise != SPEEDUP and curve.unit != unit:
            problem = f"{name} counts {curve.unit}, the run {unit}"
            raise InputError(f"--normalise {normalise}: {problem}; valid: {SPEEDUP}")
        series = make_curve_series(curve)
        laid.append(replace(series, title=name) if series.title in titles else series)
        titles.add(laid[-1].title)
        candidates = [(work.title, list_traits(work, curve)) for work in works]
        own, traits = min(candidates, key=lambda each: len(each[1])) if candidates else ("the run", ())
        differing = "; ".join(f"{trait.name}: {trait.published}, not {trait.own}" for trait in traits)
        text = f"{name} differs from {own} in {differing or 'nothing that its source states'}."
        text += " It has no intervals."
        if curve.baseline.devices > 1:
            baseline = wording.format_device_count(curve.baseline.devices)
            text += f" It begins at {baseline}, so it has no speed-up over 1 device."
        text += "".join(f" Flag: {SENTENCES[flag]}." for flag in curve.flags)
        sentences.append((text, curve.source.citation, curve.source.url))
    return Overlay(tuple(laid), tuple(sentences), normalise)


def write_curve_chart(curve: PublishedCurve, path: Path) -> None:
    from ...record.files import write_output
    from ...report import charts
    from ...report.drawing import Frame, call_vl_convert, to_svg

    series = make_curve_series(curve)
    draw = charts.draw_speedup if series.has_baseline else charts.draw_throughput
    spec = draw([series])
    source = f"Source: {curve.source.citation}. It states no intervals."
    spec["title"]["subtitle"] = [*spec["title"]["subtitle"], *wrap(source, Frame().width // _LETTER)]
    svg = to_svg(spec, standalone=True)
    write_output(path, call_vl_convert("svg_to_png", svg, _SCALE) if path.suffix == ".png" else svg)
