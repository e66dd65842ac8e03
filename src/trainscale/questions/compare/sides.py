"""One side of a comparison."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analyse.checks import OTHER_CORES, make_busy_flag
from ...analyse.series import Point, Series
from ...analyse.statistics import Estimate, Interval, make_estimate, quotient
from ...errors import InputError
from ...record.decoding import MOST_BYTES, DecodingError, check_schema, convert, decode_object
from ...record.run import RecordedMachine, RunInfo
from ...report.wording import format_device_count
from ...spec.config import STRONG, WEAK, Config
from ...worker import models
from ...worker.regular_files import read_regular
from ...worker.type_aliases import JsonObject
from ..predict import select_ladders

if TYPE_CHECKING:
    from ...runs import Run
    from ..published.curves import PublishedCurve

UNCHECKED = "not checked"
BY_BUDGET = "chosen by the time budget"
SPEED, EFFICIENCY = "speed", "efficiency"  # what a comparison compares
HOST_GPUS = "GPUs of a host"  # a key of Side.machine
RESULTS_SCHEMA = 1  # of results.json, the newest that is understood

_SPEED_KEY = "_per_second_cluster"  # of a point in results.json; the unit of the network precedes it
_POINT_KEYS = ("devices", "hosts", "batch_per_device", "global_batch", "repeats", "failures", "flags")
_SPEEDS = (1e-6, 1e15)  # per second; nothing trains slower or faster
_WIDEST = 10.0  # end of an interval over means; three positive values reach 7.3 at most
_BUSY = "the machine was busy"  # a results.json of version 0.1 has only this flag
_ACCELERATORS = {"Gaudi": "gaudi", "Ascend 910": "ascend"}  # every other published device is a CUDA GPU


@dataclass(frozen=True)
class Side:
    """A series with where and how it was measured, as far as its journal says."""

    source: str  # as the person named it
    title: str
    config: Config
    unit: str
    points: Mapping[int, Point]
    values: Mapping[int, Estimate | None]  # that are compared, by device count; None without a result
    parity: str = UNCHECKED
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # by name, as a message shows them
    machine: Mapping[str, str] = field(default_factory=dict)
    measurement: Mapping[str, str] = field(default_factory=dict)
    machines: tuple[RecordedMachine, ...] = ()
    other_cores: Mapping[int, Sequence[float]] = field(default_factory=dict)  # in the repeats, by device count
    quantity: str = SPEED  # EFFICIENCY beside a published curve
    baseline_lost: float = 0.0  # of efficiencies: that other programs may have taken
    citation: str = ""  # of a published curve, whose values are exact

    @property
    def has_efficiencies(self) -> bool:
        return self.quantity == EFFICIENCY

    @property
    def host_names(self) -> set[str]:
        return {machine.host for machine in self.machines if machine.host}

    @property
    def disturbance(self) -> str:
        """The first flag that other programs used the machine."""
        flags = list(map(make_busy_flag, self.other_cores.values()))
        flags += (flag for point in self.points.values() for flag in point.flags if flag.startswith(_BUSY))
        return next(filter(None, flags), "")

    def estimate_lost_share(self, devices: int) -> float:
        """Return the share of speed that other programs may have taken."""
        loads = self.other_cores.get(devices, ())
        busy = [cores for cores in loads if cores > OTHER_CORES]
        if not busy:
            return 0.0
        hosts = self.points[devices].hosts
        workers, servers = math.ceil(devices / hosts), math.ceil(self.config.count_servers(hosts) / hosts)
        used = workers * (max(1, self.config.cores_per_device) + self.config.loaders) + servers
        free = min((machine.cores for machine in self.machines if machine.cores), default=0) - used
        return min(1.0, max(0.0, max(busy) * len(busy) / len(loads) - max(0, free)))


# ---- sides of runs and of results.json


def read_sides(side: Run | str | Path, on_damage: Callable[[str], None] | None = None) -> tuple[Path, list[Side]]:
    """Return the path and the series of a run or a results.json."""
    from ...runs import Run

    if isinstance(side, Run):
        return side.directory, list_run_sides(str(side.directory), side)
    text = str(side)
    # The path ends at the first colon after a file or directory.
    ends = [len(text), *(match.start() for match in re.finditer("(?<=.):", text))]
    end = next((end for end in ends if Path(text[:end]).exists()), None)
    if end is None:
        raise InputError(f"{text}: there is no such run; valid: the directory of a run, a results.json, or DIR:SERIES")
    path, title = Path(text[:end]), text[end + 1 :]
    if path.is_dir():
        if not (path / "run.json").exists() and (sessions := sorted(path.glob("*/run.json"))):
            raise InputError(
                f"{path}: a folder of runs is not one side; valid: one run, such as {sessions[0].parent}."
                " Where the machine drifts, compare the runs of A and B in pairs, each two that were measured in turn"
            )
        sides = list_run_sides(str(path), Run.open(path, on_damage))
    else:
        try:
            sides = read_results(str(path), read_regular(path, MOST_BYTES, pipes=True))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return path, [select_series(sides, title)] if title else sides


def select_series(sides: Sequence[Side], text: str) -> Side:
    wanted = text.strip().casefold()
    parts = set(wanted.replace("·", " ").split())
    matching = [side for side in sides if side.title.casefold() == wanted] or [
        side for side in sides if parts and parts <= set(side.title.casefold().replace("·", " ").split())
    ]
    if len(matching) == 1:
        return matching[0]
    problem = f"{len(matching)} series match" if matching else "no such series"
    raise InputError(f"{sides[0].source}: {problem}: {text!r}{list_titles(sides)}")


def list_titles(sides: Sequence[Side], heading: str = "valid: ") -> str:
    return f"\n  {heading}" + f"\n  {' ' * len(heading)}".join(side.title for side in sides)


def join_counts(counts: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(counts))))


def list_run_sides(source: str, run: Run) -> list[Side]:
    chosen = select_ladders(run)  # other trials have other windows
    if not chosen.records:
        raise InputError(f"{source}: no trial of this run has finished; continue it with the command that began it")
    return [
        _make_side(source, run.info, series, {point.devices: point.other_cores for point in series.points})
        for series in chosen.series
    ]


@dataclass(frozen=True)
class _SavedSeries:
    title: str
    config: JsonObject
    points: tuple[JsonObject, ...]
    versions: dict[str, str]
    parity: JsonObject | None = None


@dataclass(frozen=True)
class _SavedResults:
    run: RunInfo
    series: tuple[_SavedSeries, ...]


def read_results(source: str, text: bytes) -> list[Side]:
    sides = []
    try:
        values = decode_object(text)
        check_schema(values, RESULTS_SCHEMA, source)
        results = convert(values, _SavedResults)
        for saved in results.series:
            config, points, loads = Config.from_dict(saved.config), [], {}
            for values in saved.points:
                keys = [key for key in values if key.endswith(_SPEED_KEY) and not key.startswith("jitter_")]
                known = {name: values[name] for name in _POINT_KEYS if name in values}
                known |= {"series": saved.title, "config": config, "verdict": values.get("witness")}
                if keys:
                    known["unit"] = keys[0].removesuffix(_SPEED_KEY)
                    known["samples_per_second"] = values[keys[0]]
                point = convert(known, Point)
                if min(point.devices, point.hosts, point.repeats + 1) < 1:
                    raise DecodingError(f"{saved.title}: a number of devices, hosts or repeats is too small")
                if speed := point.samples_per_second:
                    low, high = (speed.mean if end is None else end for end in (speed.low, speed.high))
                    least, most = (2 - _WIDEST) * speed.mean, _WIDEST * speed.mean
                    is_ordered = least <= low <= speed.mean <= high <= most
                    if not (is_ordered and _SPEEDS[0] <= speed.mean <= _SPEEDS[1]):
                        stated = f"{speed.mean:g} ({speed.low} to {speed.high})"
                        where = f"{saved.title}, {point.devices} devices"
                        raise DecodingError(f"{where}: {stated} is not the interval of a speed")
                points.append(point)
                other_cores = convert(values.get("other_cores", []), list[float])
                if point.ok:
                    loads[point.devices] = other_cores
            series = Series(title=saved.title, config=config, points=tuple(points), versions=saved.versions)
            parity = convert((saved.parity or {}).get("state", UNCHECKED), str)
            sides.append(replace(_make_side(source, results.run, series, loads), parity=parity))
    except (DecodingError, TypeError) as error:
        raise InputError(f"{source}: this is not a results.json of trainscale: {error}") from None
    if not sides:
        raise InputError(f"{source}: there is no series in it")
    return sides


def _make_side(source: str, run: RunInfo, series: Series, other_cores: Mapping[int, Sequence[float]]) -> Side:
    provenance, spec = run.read_provenance(), run.read_spec()
    machines = provenance.machines

    def join(texts: Sequence[str | None]) -> str:
        return ", ".join(sorted({text for text in texts if text}))

    # Names and numbers of hosts do not count: hosts of one kind are comparable.
    host_gpus = [
        " and ".join(f"{machine.gpus.count(name)} × {name}" for name in sorted(set(machine.gpus))) or "none"
        for machine in machines
        if machine.cpu
    ]
    machine = {
        "CPU": join([machine.cpu for machine in machines]),
        "cores": join([str(machine.cores) for machine in machines if machine.cores]),
        HOST_GPUS: join(host_gpus),
    }
    versions = {
        **series.versions,
        "gpu driver": join([machine.gpu_driver for machine in machines]),
        "system": join([machine.system for machine in machines]),
        "trainscale": str(provenance.trainscale or ""),
    }
    steps = spec.steps if spec.budget is None else BY_BUDGET
    measurement = {"warmup": spec.warmup, "steps": steps, "interface": spec.interface}
    return Side(
        source=source,
        title=series.title,
        config=series.config,
        unit=series.unit,
        points={point.devices: point for point in series.points},
        values={
            point.devices: make_estimate(speed, point.repeats, run.is_sequential)
            if (speed := point.samples_per_second)
            else None
            for point in series.points
        },
        parity=series.parity or UNCHECKED,
        date=provenance.date or "",
        versions={name: text for name, text in versions.items() if text},
        machine={name: text for name, text in machine.items() if text},
        measurement={name: str(value) for name, value in measurement.items() if value is not None},
        machines=machines,
        other_cores=other_cores,
    )


# ---- a published curve as A


def compare_with_published(curve: PublishedCurve, side: Side, quantity: str = EFFICIENCY) -> tuple[Side, Side]:
    """Return the curve as A and the series as B."""
    from ..published.curves import PREFIX, find_device_kind

    name, baseline, by_speed = f"{PREFIX}{curve.id}", curve.baseline.devices, quantity == SPEED
    own_baseline = side.values.get(baseline)
    if by_speed and not curve.has_speeds:
        raise InputError(f"{name}: the source states no speeds; valid: --by efficiency")
    if by_speed and curve.unit != side.unit:
        raise InputError(f"{name} counts {curve.unit}, {side.source} {side.unit}; valid: --by efficiency")
    if not by_speed and own_baseline is None:
        where = f"{format_device_count(baseline)}, for which {side.source} has no result"
        raise InputError(f"{name} is relative to {where}; valid: --by speed")
    values: dict[int, Estimate | None] = {}
    exact: dict[int, Estimate | None] = {}
    points: dict[int, Point] = {}
    for point in curve.points:
        count, speed = point.devices, point.per_second or 0.0
        if count in side.points and (by_speed or count != baseline):
            points[count] = replace(
                side.points[count],
                hosts=curve.count_hosts(point) or side.points[count].hosts,
                samples_per_second=Interval(speed),
                failures=(),
                flags=(),
            )
            exact[count] = Estimate(speed if by_speed else curve.compute_efficiency(point), None, 0.0)
            value = side.values[count]
            if value and own_baseline and not by_speed:
                value = quotient(value, own_baseline, baseline / count)
            values[count] = value
    if not points:
        published = f"{name} has {join_counts(point.devices for point in curve.points)}"
        own = f"{side.source} has {join_counts(side.points)}"
        raise InputError(f"no device count was measured in both: {published}; {own}")
    b = replace(
        side,
        points={count: side.points[count] for count in points},
        values=values,
        other_cores={count: side.other_cores.get(count, ()) for count in (*points, baseline)},
        quantity=quantity,
        baseline_lost=0.0 if by_speed else side.estimate_lost_share(baseline),
    )
    machine = {}
    if HOST_GPUS in side.machine and curve.device is not None:
        is_same = all(
            {find_device_kind(gpu) for gpu in host.gpus} == {curve.device}
            and curve.devices_per_host in (None, len(host.gpus))
            for host in side.machines
        )
        stated = f"{curve.devices_per_host or '?'} × {curve.hardware}"
        machine = {HOST_GPUS: side.machine[HOST_GPUS] if is_same else stated}
    a = Side(
        source=name,
        title=curve.title,
        config=_make_stated_config(curve, side.config),
        unit=side.unit,
        points=points,
        values=exact,
        machine=machine,
        quantity=quantity,
        citation=curve.source.citation,
    )
    return a, b


def _make_stated_config(curve: PublishedCurve, own: Config) -> Config:
    from ..published.near import OwnWork, is_same_network

    changes: dict[str, Any] = {"framework": curve.framework, "precision": curve.precision}
    if not is_same_network(OwnWork("", own), curve):
        info = models.resolve(curve.network.name)
        changes |= {"model": curve.network.name, "image_size": info.image_size if info else own.image_size}
    if curve.scaling == WEAK and curve.baseline.batch_per_device:
        changes |= {"batch": round(curve.baseline.batch_per_device), "scaling": WEAK}
    if curve.scaling == STRONG and curve.baseline.global_batch:
        changes |= {"batch": curve.baseline.global_batch, "scaling": STRONG}
    if curve.data == "synthetic" or own.data == "synthetic":
        changes["data"] = curve.data or own.data
    device = _ACCELERATORS.get(curve.device or "", "cuda")
    return replace(own, strategy=curve.strategy, device=device, **changes)
