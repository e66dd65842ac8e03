"""Scaling results that others have published: the table, read and selected from."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from ...errors import InputError, explain_unknown
from ...record.decoding import DecodingError, check_schema, convert, decode_object
from ...worker.type_aliases import JsonObject

FILE = "curves.json"
PREFIX = "published:"  # marks an ID where the directory of a run could stand
# Schema history
#     1  first version
SCHEMA = 1

WEAK, STRONG, MIXED = "weak", "strong", "mixed"  # scaling

# Beyond rounding or a slow baseline, the baseline was measured in another way.
HIGHEST_EFFICIENCY = 1.15

ABOVE_115 = "above-115-percent"
WEAK_LABELLED_STRONG = "weak-labelled-strong"
MIXED_BATCHES = "mixed-batches"

SENTENCES = {
    ABOVE_115: "an efficiency above 115\u202f% cannot be: the baseline was measured otherwise, or a figure is wrong",
    WEAK_LABELLED_STRONG: "the source calls it strong scaling, but its batch per device is constant: it is weak",
    MIXED_BATCHES: "neither the batch per device nor the global batch is constant, so the points are not the same work",
}

# The longer names first: "A100" must not be found inside another one.
_KINDS = (
    "GTX Titan X", "GTX 980", "Ascend 910", "GB200", "B200", "GH200", "H200", "H100", "A100", "V100", "P100", "P40",
    "K80", "K520", "M60", "M40", "L40S", "L40", "L4", "A10G", "A10", "T4", "Gaudi",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where and when a curve was published."""

    citation: str
    url: str
    year: int


@dataclass(frozen=True)
class Network:
    name: str  # that of trainscale's own network if there is one
    title: str
    parameters: int | None = None
    macs: int | None = None  # of a forward pass


@dataclass(frozen=True)
class PublishedPoint:
    devices: int
    per_second: float | None  # of all devices; None where the source states only an efficiency
    batch_per_device: float | None = None  # of one update, in the unit of the curve
    global_batch: int | None = None
    efficiency: float | None = None
    stated: str = ""  # the own figure of the source where that is no speed, such as the time of an epoch
    note: str = ""


@dataclass(frozen=True)
class PublishedCurve:
    """One network on one system, at two or more device counts.

    What ends in ``_stated`` is in the words of the source. What it does not state is None or empty.
    ``scaling`` follows from the batches. ``flags`` are keys of SENTENCES.
    """

    id: str
    source: Source
    network: Network
    network_stated: str
    framework: str
    framework_stated: str
    strategy: str
    strategy_stated: str
    device: str | None
    hardware: str
    devices_per_host: int | None
    interconnect: str
    precision: str
    precision_stated: str
    data: str
    unit: str
    stated_scaling: str | None
    scaling: str | None
    flags: tuple[str, ...]
    points: tuple[PublishedPoint, ...]
    note: str = ""

    @property
    def baseline(self) -> PublishedPoint:
        """The smallest point, to which speed-up and efficiency refer."""
        return self.points[0]

    @property
    def most_devices(self) -> int:
        return self.points[-1].devices

    @property
    def has_speeds(self) -> bool:
        return all(point.per_second is not None for point in self.points)

    @property
    def title(self) -> str:
        parts = (self.network.title, self.framework, self.device or self.hardware, f"published {self.source.year}")
        return " · ".join(parts)

    def compute_efficiency(self, point: PublishedPoint) -> float:
        if point.efficiency is not None:
            return point.efficiency
        if point.per_second is None or self.baseline.per_second is None:
            raise ValueError(f"{point.devices} devices: neither a speed nor an efficiency")
        return (point.per_second / point.devices) / (self.baseline.per_second / self.baseline.devices)

    def is_impossible(self, point: PublishedPoint) -> bool:
        return self.compute_efficiency(point) > HIGHEST_EFFICIENCY

    def compute_speedup(self, point: PublishedPoint) -> float:
        return self.compute_efficiency(point) * point.devices / self.baseline.devices

    def count_hosts(self, point: PublishedPoint) -> int | None:
        """Return the hosts if they are filled; None if not stated."""
        return math.ceil(point.devices / self.devices_per_host) if self.devices_per_host else None


def find_device_kind(name: str) -> str:
    """Return the kind of a device, or the name if none is known."""
    for kind in _KINDS:
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(kind)}(?![0-9A-Za-z])", name, re.IGNORECASE):
            return kind
    return name.removeprefix("NVIDIA ").strip()


# ---- reading the table


@dataclass(frozen=True)
class _Table:
    sources: dict[str, JsonObject]
    networks: dict[str, JsonObject]
    curves: tuple[JsonObject, ...]


@cache
def read_curves() -> tuple[PublishedCurve, ...]:
    return parse_curves(resources.files(__package__).joinpath(FILE).read_bytes(), FILE)


def parse_curves(text: bytes, where: str) -> tuple[PublishedCurve, ...]:
    try:
        values = decode_object(text)
        check_schema(values, SCHEMA, where)
        table = convert(values, _Table)
    except DecodingError as error:
        raise InputError(f"{where}: this is not a table of published curves: {error}") from None
    curves = []
    for number, row in enumerate(table.curves):
        field = f"{where}: curves[{number}]"
        try:
            source, network = (convert(row.get(name), str) for name in ("source", "network"))
            named = {"source": table.sources[source], "network": {"name": network, **table.networks[network]}}
            curves.append(convert({**row, **named}, PublishedCurve))
        except DecodingError as error:
            raise InputError(f"{field}.{error}") from None
        except KeyError as error:
            raise InputError(f"{field}: the table has no source or network {error}") from None
    return tuple(curves)


def find_curve(text: str, where: str = "") -> PublishedCurve:
    """Return the curve of an ID, with or without prefix."""
    name = text.removeprefix(PREFIX)
    curves = {curve.id: curve for curve in read_curves()}
    if name not in curves:
        raise explain_unknown("published curve", name, curves, where, see="trainscale published lists all IDs")
    return curves[name]


# ---- the curves that a person asks for


def select_curves(
    network: str | None = None,
    hardware: str | None = None,
    framework: str | None = None,
    years: tuple[int, int] | None = None,
    min_devices: int | None = None,
) -> list[PublishedCurve]:
    """Return the curves that have all of it; texts are parts of names."""

    def simplify(text: str) -> str:
        return re.sub(r"[\s_-]", "", text).casefold()

    texts: tuple[tuple[str, str | None, Callable[[PublishedCurve], tuple[str, ...]]], ...] = (
        ("network", network, lambda c: (c.network.name, c.network.title, c.network_stated)),
        ("hardware", hardware, lambda c: (c.device or "", c.hardware)),
        ("framework", framework, lambda c: (c.framework, c.framework_stated)),
    )
    curves = read_curves()
    chosen = list(curves)
    for name, text, names_of in texts:
        if text is not None:
            matching = {c.id for c in curves if any(simplify(text) in simplify(each) for each in names_of(c))}
            if not matching:
                valid = sorted({names_of(c)[0] for c in curves} - {""})
                raise explain_unknown(name, text, valid, f"--{name}")
            chosen = [curve for curve in chosen if curve.id in matching]
    if years:
        chosen = [curve for curve in chosen if years[0] <= curve.source.year <= years[1]]
    return [curve for curve in chosen if curve.most_devices >= (min_devices or 1)]


def parse_years(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*([12][0-9]{3})\s*(?:[-–]\s*([12][0-9]{3})\s*)?", text)
    years = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if years[0] > years[1]:
        raise InputError(f"--year {text}: valid: a year or a range of years, such as 2017 or 2015-2018")
    return years
