"""Reads the table of published curves, checks it, and finds a curve by its ID."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise

from ..errors import InputError, explain_unknown
from ..record.decoding import DecodingError, check_schema, convert, decode_object
from ..worker.type_aliases import JsonObject
from .curve import PublishedCurve
from .flags import find_flags, find_scaling

FILE = "curves.json"
PREFIX = "published:"  # marks an ID where the directory of a run could stand
# Schema history
#     1  first version
SCHEMA = 1
UNITS = ("images", "samples", "sequences", "tokens")
_NEEDED = ("network_stated", "framework", "strategy", "hardware", "interconnect", "precision")


@dataclass(frozen=True)
class _Table:
    sources: dict[str, JsonObject]
    networks: dict[str, JsonObject]
    curves: tuple[JsonObject, ...]


@dataclass(frozen=True)
class _RowNames:
    source: str
    network: str


@cache
def read_curves() -> tuple[PublishedCurve, ...]:
    """Return all curves, the oldest first."""
    return parse_curves(resources.files(__package__).joinpath(FILE).read_bytes(), FILE)


def parse_curves(text: bytes, where: str) -> tuple[PublishedCurve, ...]:
    """Return the curves of a table. An InputError says ``where`` and in which field it cannot be read."""
    try:
        values = decode_object(text)
        check_schema(values, SCHEMA, where)
        table = convert(values, _Table)
    except DecodingError as error:
        raise InputError(f"{where}: this is not a table of published curves: {error}") from None
    return tuple(_read_curve(number, row, table, where) for number, row in enumerate(table.curves))


def find_curve(text: str, where: str = "") -> PublishedCurve:
    """Return the curve of an ID, which may have the prefix. An unknown ID is an InputError with the nearest IDs."""
    name = text.removeprefix(PREFIX)
    curves = {curve.id: curve for curve in read_curves()}
    if name not in curves:
        raise explain_unknown("published curve", name, curves, where, see="trainscale published lists all IDs")
    return curves[name]


def find_problems(curves: Sequence[PublishedCurve]) -> list[str]:
    """Return what is wrong with a table, a sentence for each problem."""
    ids = [curve.id for curve in curves]
    problems = [f"{name}: the ID is there twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    return problems + [f"{curve.id}: {problem}" for curve in curves for problem in _find_curve_problems(curve)]


def _find_curve_problems(curve: PublishedCurve) -> Iterator[str]:
    source = curve.source
    if not (source.citation and source.url.startswith("https://") and 2010 <= source.year <= 2030):
        yield "the source lacks a citation, a URL or a year"
    if curve.unit not in UNITS:
        yield f"the unit {curve.unit!r} is none of {', '.join(UNITS)}"
    if missing := [name for name in _NEEDED if not getattr(curve, name)]:
        yield f"there is no {', '.join(missing)}"
    counts = [point.devices for point in curve.points]
    if len(counts) < 2 or counts[0] < 1 or any(second <= first for first, second in pairwise(counts)):
        yield f"the device counts {counts} do not increase, or there is no point beyond the baseline"
        return
    if speeds := [point for point in curve.points if (point.per_second is None) == (point.efficiency is None)]:
        yield f"{speeds[0].devices} devices: there is neither or both of a speed and an efficiency"
        return
    if any((point.per_second or point.efficiency or 0) <= 0 for point in curve.points):
        yield "a speed or an efficiency is not positive"
        return
    yield from _find_wrong_batches(curve)
    if curve.scaling != find_scaling(curve.points):
        yield f"scaling is {curve.scaling}, by the batches it is {find_scaling(curve.points)}"
    if curve.flags != find_flags(curve.points, curve.stated_scaling):
        yield f"flags are {curve.flags}, by the points they are {find_flags(curve.points, curve.stated_scaling)}"


def _find_wrong_batches(curve: PublishedCurve) -> Iterable[str]:
    for point in curve.points:
        if point.batch_per_device is not None and point.global_batch is not None:
            product = point.batch_per_device * point.devices
            if abs(product - point.global_batch) > 0.01 * point.global_batch:
                yield f"{point.devices} devices: the global batch is not that of all devices"


def _read_curve(number: int, row: JsonObject, table: _Table, where: str) -> PublishedCurve:
    try:
        row_names = convert(row, _RowNames)
        source, network = table.sources[row_names.source], table.networks[row_names.network]
        return convert({**row, "source": source, "network": {"name": row_names.network, **network}}, PublishedCurve)
    except DecodingError as error:
        raise InputError(f"{where}: curves[{number}].{error}") from None
    except KeyError as error:
        raise InputError(f"{where}: curves[{number}]: the table has no source or network {error}") from None
