"""Published curves as series, so that the charts of a run can show them together with its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import InputError
from ...published.curve import PublishedCurve, PublishedPoint
from ...published.selection import SPEEDUP
from ...published.table import PREFIX
from ...record.run import RunInfo
from ...spec.config import STRONG, WEAK, Config
from ...worker import models
from ..series import Interval, Point, Series, find_common_unit
from .own_work import OwnWork, Trait, describe_work, list_traits


@dataclass(frozen=True)
class OverlaidCurve:
    """A curve as a series, the series of the run that is most like it, and in what the two differ."""

    curve: PublishedCurve
    series: Series
    own: OwnWork | None
    traits: tuple[Trait, ...]


@dataclass(frozen=True)
class PublishedOverlay:
    """Curves that are drawn with the series of a run. ``normalise`` says in which charts.

    All charts of speed-up and efficiency have them, each relative to its own 1-device point. ABSOLUTE shows them in the
    chart of throughput too; PER_DEVICE replaces that chart by one of the throughput of a device.
    """

    curves: tuple[OverlaidCurve, ...] = ()
    normalise: str = SPEEDUP

    @property
    def series(self) -> list[Series]:
        return [laid.series for laid in self.curves]


def overlay_curves(
    runs: Sequence[tuple[RunInfo, Sequence[Series]]], curves: Sequence[PublishedCurve], normalise: str = SPEEDUP
) -> PublishedOverlay:
    """Return curves for the charts of runs. An InputError says that one cannot be drawn, or not in this way."""
    all_series = [series for _, of_run in runs for series in of_run]
    unit = find_common_unit(all_series)
    works = [describe_work(series, run) for run, of_run in runs for series in of_run]
    laid: list[OverlaidCurve] = []
    for curve in dict.fromkeys(curves):
        if normalise != SPEEDUP and curve.unit != unit:
            raise InputError(
                f"--normalise {normalise}: {PREFIX}{curve.id} counts {curve.unit}, the run {unit}; valid: {SPEEDUP}"
            )
        series = make_curve_series(curve)
        taken = {each.title for each in (*all_series, *(other.series for other in laid))}
        series = replace(series, title=f"{PREFIX}{curve.id}") if series.title in taken else series
        candidates = [(work, list_traits(work, curve)) for work in works]
        own, traits = min(candidates, key=lambda each: len(each[1])) if candidates else (None, ())
        laid.append(OverlaidCurve(curve, series, own, traits))
    return PublishedOverlay(tuple(laid), normalise)


def make_curve_series(curve: PublishedCurve) -> Series:
    """Return a curve as a series. It has no intervals, and no speed-up without a 1-device point."""
    if not curve.has_speeds:
        raise InputError(f"{PREFIX}{curve.id}: its source states an efficiency but no speeds to draw")
    config = _make_config(curve)
    points = tuple(_make_point(curve, config, point) for point in curve.points)
    return Series(config=config, title=curve.title, points=points, versions={})


def _make_config(curve: PublishedCurve) -> Config:
    info = models.resolve(curve.network.name)
    is_strong = curve.scaling == STRONG
    batch = curve.baseline.global_batch if is_strong else curve.baseline.batch_per_device
    return Config(
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


def _make_point(curve: PublishedCurve, config: Config, point: PublishedPoint) -> Point:
    assert point.per_second is not None
    has_baseline = curve.baseline.devices == 1
    return Point(
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
