"""The sides of a comparison from a results.json, for those who keep the results of a run but not its journal."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from ...record.decoding import DecodingError, check_schema, convert, decode_object
from ...record.run import RunInfo
from ...record.trial import IMAGES, Failure
from ...record.witness import REFUTED
from ...spec.config import Config
from ...worker.type_aliases import JsonObject
from ..estimates import make_estimate
from ..statistics import Interval
from ..text import find_first_line
from .sides import UNCHECKED, Side, SidePoint, find_disturbance, make_side

SCHEMA = 1  # of results.json, the newest that is understood
_SPEED = "_per_second_cluster"


@dataclass(frozen=True)
class _State:
    state: str


@dataclass(frozen=True)
class _SavedPoint:
    """What a comparison reads of a point. In the file, the name of ``speed`` begins with the unit of the network."""

    devices: int
    hosts: int
    status: str
    repeats: int
    speed: Interval | None = None
    witness: _State | None = None
    failures: tuple[Failure, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class _SavedSeries:
    title: str
    config: JsonObject
    points: tuple[JsonObject, ...]
    versions: dict[str, str]
    parity: _State | None = None


@dataclass(frozen=True)
class _SavedResults:
    run: RunInfo
    series: tuple[_SavedSeries, ...]


def read_results(source: str, text: bytes) -> list[Side]:
    """Return a side for each series of a results.json. An InputError says why it cannot be read."""
    try:
        values = decode_object(text)
        check_schema(values, SCHEMA, source)
        saved = convert(values, _SavedResults)
        return [_make_side(source, saved.run, series) for series in saved.series]
    except (DecodingError, TypeError) as error:
        raise InputError(f"{source}: this is not a results.json of trainscale: {error}") from None


def _make_side(source: str, run: RunInfo, series: _SavedSeries) -> Side:
    points = [_make_point(values, run.is_sequential) for values in series.points]
    side = Side(
        source=source,
        title=series.title,
        config=Config.from_dict(series.config),
        unit=_find_unit(series),
        points={point.devices: point for point in points},
        parity=series.parity.state if series.parity else UNCHECKED,
    )
    return make_side(side, run, series.versions)


def _find_unit(series: _SavedSeries) -> str:
    names = [name for point in series.points for name in point if _is_speed(name)]
    return names[0].removesuffix(_SPEED) if names else IMAGES


def _make_point(values: JsonObject, is_sequential: bool) -> SidePoint:
    speed = next((value for name, value in values.items() if _is_speed(name)), None)
    point = convert({**values, "speed": speed}, _SavedPoint)
    was_refuted = any(failure.kind == REFUTED for failure in point.failures)
    return SidePoint(
        devices=point.devices,
        hosts=point.hosts,
        speed=make_estimate(point.speed, point.repeats, is_sequential) if point.speed else None,
        status=point.status,
        reason=find_first_line(point.failures[-1].message) if point.failures and not point.speed else "",
        witness=REFUTED if was_refuted else point.witness.state if point.witness else UNCHECKED,
        disturbance=find_disturbance(point.flags),
    )


def _is_speed(name: str) -> bool:
    return name.endswith(_SPEED) and not name.startswith("jitter_")
