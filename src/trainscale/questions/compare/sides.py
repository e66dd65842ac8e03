"""One side of a comparison: a series of a run, of a results.json, or a published curve.

A side has the points of its series, what is compared at each of them, and what was recorded about where and how they
were measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analyse.checks import OTHER_CORES, make_busy_flag
from ...analyse.series import Point, Series
from ...analyse.statistics import Estimate, Interval, make_estimate, make_exact, quotient
from ...errors import InputError
from ...record.decoding import MOST_BYTES, DecodingError, check_schema, convert, decode_object
from ...record.parity import REFUTED
from ...record.run import RecordedMachine, RunInfo
from ...record.trial import IMAGES, TrialRecord
from ...spec.config import STRONG, WEAK, Config
from ...worker import models
from ...worker.regular_files import read_regular
from ...worker.type_aliases import JsonObject

if TYPE_CHECKING:
    from ...runs import Run
    from ..published.curves import PublishedCurve

UNCHECKED = "not checked"
BY_BUDGET = "chosen by the time budget"
SPEED, EFFICIENCY = "speed", "efficiency"  # what a comparison compares
HOST_GPUS = "GPUs of a host"  # a key of Side.machine
RESULTS_SCHEMA = 1  # of results.json, the newest that is understood

_SPEED_KEY = "_per_second_cluster"  # of a point in results.json; the unit of the network precedes it
_SPEEDS = (1e-6, 1e15)  # per second; nothing trains slower or faster
_WIDEST = 10.0  # the upper end of an interval over means; positive values of three repeats reach 7.3 at most
# A results.json of version 0.1 has the load of other programs only in this flag.
_BUSY_FLAG = re.compile(r"the machine was busy with something else: up to ([0-9.]+) cores in ([0-9]+) of ([0-9]+) ")
_ACCELERATORS = {"Gaudi": "gaudi", "Ascend 910": "ascend"}  # every other published device is a CUDA GPU


@dataclass(frozen=True)
class Side:
    """``values`` are what is compared by device count: cluster-wide speeds or, with a published curve, efficiencies
    (``quantity``). None stands for a point without a result. ``versions``, ``machine`` and ``measurement`` are texts by
    name, as a message shows them. What an older journal did not record is empty.
    """

    source: str  # as the person named it
    title: str
    config: Config
    unit: str
    points: Mapping[int, Point]
    values: Mapping[int, Estimate | None]
    parity: str = UNCHECKED
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    measurement: Mapping[str, str] = field(default_factory=dict)
    machines: tuple[RecordedMachine, ...] = ()
    other_cores: Mapping[int, Sequence[float]] = field(default_factory=dict)  # in the repeats, by device count
    quantity: str = SPEED
    baseline_lost: float = 0.0  # of efficiencies: the share of the baseline's speed that other programs may have taken
    citation: str = ""  # of a published curve, whose values are exact

    @property
    def has_efficiencies(self) -> bool:
        return self.quantity == EFFICIENCY

    @property
    def is_published(self) -> bool:
        return bool(self.citation)

    @property
    def host_names(self) -> set[str]:
        return {machine.host for machine in self.machines if machine.host}

    @property
    def disturbance(self) -> str:
        """The first of its flags that other programs used the machine. Empty if none did."""
        return next((flag for loads in self.other_cores.values() if (flag := make_busy_flag(loads))), "")

    def find_witness(self, devices: int) -> str:
        """Return ``proven``, ``unproven``, ``refuted`` if any trial was, or ``not checked`` in older journals."""
        point = self.points[devices]
        return REFUTED if any(failure.kind == REFUTED for failure in point.failures) else point.witness or UNCHECKED

    def estimate_lost_share(self, devices: int) -> float:
        """Return the largest share of a point's speed that other programs may have taken.

        That is all that they computed beyond the cores that the trial left free, all of it from one worker: a
        synchronous step waits for the worker that lost its core.
        """
        loads = self.other_cores.get(devices, ())
        busy = [cores for cores in loads if cores > OTHER_CORES]
        if not busy:
            return 0.0
        hosts = self.points[devices].hosts
        workers, servers = math.ceil(devices / hosts), math.ceil(self.config.count_servers(hosts) / hosts)
        used = workers * (max(1, self.config.cores_per_device) + self.config.loaders) + servers
        free = min((machine.cores for machine in self.machines if machine.cores), default=0) - used
        return min(1.0, max(0.0, max(busy) * len(busy) / len(loads) - max(0, free)))


# ---- reading


def read_sides(side: Run | str | Path, on_damage: Callable[[str], None] | None = None) -> tuple[Path, list[Side]]:
    """Return where a side is and its series: those of a run, of a directory or of a results.json.

    A text may name one series after a colon.
    """
    from ...runs import Run

    if isinstance(side, Run):
        return side.directory, list_run_sides(str(side.directory), side)
    path, series = _split(str(side))
    if path.is_dir():
        sessions = sorted(run.parent for run in path.glob("*/run.json")) if not (path / "run.json").exists() else []
        if sessions:
            raise InputError(
                f"{path}: a folder of runs is no longer compared as one side; valid: one run, such as {sessions[0]}."
                " Where the machine drifts, compare the runs of A and B in pairs, each two that were measured in turn"
            )
        sides = list_run_sides(str(path), Run.open(path, on_damage))
    else:
        try:
            sides = read_results(str(path), read_regular(path, MOST_BYTES, pipes=True))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return path, [select_series(sides, series)] if series else sides


def _split(text: str) -> tuple[Path, str]:
    """Split at the first colon that ends the path of a file or directory: both paths and titles may have colons."""
    if Path(text).exists():
        return Path(text), ""
    for index, letter in enumerate(text):
        if letter == ":" and index and Path(text[:index]).exists():
            return Path(text[:index]), text[index + 1 :]
    raise InputError(f"{text}: there is no such run; valid: the directory of a run, a results.json, or DIR:SERIES")


def select_series(sides: Sequence[Side], text: str) -> Side:
    """Return the series whose title a person typed, in full or so much of it that only one series has it."""
    wanted = text.strip().casefold()
    exact = [side for side in sides if side.title.casefold() == wanted]
    parts = wanted.replace("·", " ").split()
    matching = exact or [
        side for side in sides if set(parts) <= set(side.title.casefold().replace("·", " ").split()) and parts
    ]
    if len(matching) == 1:
        return matching[0]
    problem = "no such series" if not matching else f"{len(matching)} series match"
    raise InputError(f"{sides[0].source}: {problem}: {text!r}{list_titles(sides)}")


def list_titles(sides: Sequence[Side], heading: str = "valid: ") -> str:
    return f"\n  {heading}" + f"\n  {' ' * len(heading)}".join(side.title for side in sides)


def list_run_sides(source: str, run: Run) -> list[Side]:
    """Return the series of a run. Short trials of a search and trials beside an explained ladder have other windows, so
    they are not compared.
    """
    asked = run.info.read_spec().strategies

    def is_compared(record: TrialRecord) -> bool:
        strategy = record.trial.config.strategy
        return not record.trial.short and not (strategy == "independent" and asked and "independent" not in asked)

    chosen = run.select(is_compared)
    if not chosen.records:
        raise InputError(f"{source}: no trial of this run has finished; continue it with the command that began it")
    return [_make_side(source, run.info, series) for series in chosen.series]


@dataclass(frozen=True)
class _State:
    state: str


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
    """Return the series of a results.json, for those who keep the results of a run but not its journal."""
    try:
        values = decode_object(text)
        check_schema(values, RESULTS_SCHEMA, source)
        saved = convert(values, _SavedResults)
        sides = [_read_series(source, saved.run, series) for series in saved.series]
    except (DecodingError, TypeError) as error:
        raise InputError(f"{source}: this is not a results.json of trainscale: {error}") from None
    if not sides:
        raise InputError(f"{source}: there is no series in it")
    return sides


def _read_series(source: str, run: RunInfo, saved: _SavedSeries) -> Side:
    keys = [key for values in saved.points for key in values if _is_speed(key)]
    unit, config = keys[0].removesuffix(_SPEED_KEY) if keys else IMAGES, Config.from_dict(saved.config)
    points = tuple(_read_point(saved.title, config, unit, values) for values in saved.points)
    loads = {
        point.devices: _read_other_cores(values) for point, values in zip(points, saved.points, strict=True) if point.ok
    }
    series = Series(title=saved.title, config=config, points=points, versions=saved.versions)
    parity = saved.parity.state if saved.parity else UNCHECKED
    return replace(_make_side(source, run, series, loads), unit=unit, parity=parity)


def _is_speed(key: str) -> bool:
    return key.endswith(_SPEED_KEY) and not key.startswith("jitter_")


def _read_point(title: str, config: Config, unit: str, values: JsonObject) -> Point:
    speed = next((value for key, value in values.items() if _is_speed(key)), None)
    names = ("devices", "hosts", "batch_per_device", "global_batch", "repeats", "failures", "flags")
    known = {name: values[name] for name in names if name in values}
    point = convert(
        {
            **known,
            "series": title,
            "config": config,
            "unit": unit,
            "samples_per_second": speed,
            "verdict": values.get("witness"),
        },
        Point,
    )
    interval = point.samples_per_second
    if min(point.devices, point.hosts, point.repeats + 1) < 1:
        raise DecodingError(f"{title}: a number of devices, hosts or repeats is too small")
    if interval and not (_SPEEDS[0] <= interval.mean <= _SPEEDS[1] and _is_plausible(interval)):
        raise DecodingError(
            f"{title}, {point.devices} devices: {interval.mean:g} ({interval.low} to {interval.high})"
            " is not the interval of a speed"
        )
    return point


def _is_plausible(interval: Interval) -> bool:
    if interval.low is None or interval.high is None:
        return True
    reach = (_WIDEST - 1) * interval.mean
    return interval.mean - reach <= interval.low <= interval.mean <= interval.high <= interval.mean + reach


def _read_other_cores(values: JsonObject) -> list[float]:
    """Return how many cores other programs used in each repeat."""
    if "other_cores" in values:
        return convert(values["other_cores"], list[float])
    for flag in convert(values.get("flags", []), list[str]):
        if match := _BUSY_FLAG.match(flag):
            busy, repeats = int(match[2]), int(match[3])
            most = max(float(match[1]), math.nextafter(OTHER_CORES, 1.0))  # the flag rounds
            return [most] * busy + [0.0] * (repeats - busy)
    return []


# ---- making


def _make_side(
    source: str, run: RunInfo, series: Series, other_cores: Mapping[int, Sequence[float]] | None = None
) -> Side:
    """Return a series with what its run recorded: versions, machines, warm-up and steps."""
    if other_cores is None:
        other_cores = {point.devices: point.other_cores for point in series.points}
    provenance, spec = run.read_provenance(), run.read_spec()
    machines = list((provenance.hosts or {}).values()) or ([provenance.machine] if provenance.machine else [])
    versions = {
        **series.versions,
        "gpu driver": _join(machine.gpu_driver for machine in machines),
        "system": _join(machine.system for machine in machines),
        "trainscale": str(provenance.trainscale or ""),
    }
    # Names and numbers of hosts are no part of what is compared: hosts of one kind are comparable.
    machine = {
        "CPU": _join(machine.cpu for machine in machines),
        "cores": _join(str(machine.cores) if machine.cores else None for machine in machines),
        HOST_GPUS: _join(_describe_gpus(machine.gpus) if machine.cpu else None for machine in machines),
    }
    steps = spec.steps if spec.budget is None else BY_BUDGET
    measurement = {"warmup": spec.warmup, "steps": steps, "interface": spec.interface}
    return Side(
        source=source,
        title=series.title,
        config=series.config,
        unit=series.unit,
        points={point.devices: point for point in series.points},
        values={point.devices: _estimate_speed(point, run.is_sequential) for point in series.points},
        parity=series.parity or UNCHECKED,
        date=provenance.date or "",
        versions={name: text for name, text in versions.items() if text},
        machine={name: text for name, text in machine.items() if text},
        measurement={name: str(value) for name, value in measurement.items() if value is not None},
        machines=tuple(machines),
        other_cores=other_cores,
    )


def _estimate_speed(point: Point, is_sequential: bool) -> Estimate | None:
    speed = point.samples_per_second
    return make_estimate(speed, point.repeats, is_sequential) if speed else None


def _describe_gpus(gpus: Sequence[str]) -> str:
    return " and ".join(f"{gpus.count(name)} × {name}" for name in sorted(set(gpus))) or "none"


def _join(texts: Iterable[str | None]) -> str:
    return ", ".join(sorted({text for text in texts if text}))


# ---- a published curve as A


def compare_with_published(curve: PublishedCurve, side: Side, quantity: str = EFFICIENCY) -> tuple[Side, Side]:
    """Return the curve as A and the series as B, at the device counts that both have.

    The figures of a curve have no interval and are taken as exact. The efficiency is compared by default, because it
    depends less on the speed of the devices than the speed itself. An InputError says that no device count is in both,
    or that the source does not state what is to be compared.
    """
    from ..published.curves import PREFIX

    name, baseline = f"{PREFIX}{curve.id}", curve.baseline.devices
    if quantity == SPEED and not curve.has_speeds:
        raise InputError(f"{name}: the source states no speeds; valid: --by efficiency")
    if quantity == SPEED and curve.unit != side.unit:
        raise InputError(f"{name} counts {curve.unit}, {side.source} {side.unit}; valid: --by efficiency")
    of_baseline = side.values.get(baseline)
    if quantity == EFFICIENCY and of_baseline is None:
        raise InputError(
            f"{name}: its efficiency is relative to {baseline} device{'' if baseline == 1 else 's'}, for which"
            f" {side.source} has no result; measure it, or compare with --by speed"
        )
    published = {
        point.devices: point
        for point in curve.points
        if point.devices in side.points and (quantity == SPEED or point.devices != baseline)
    }
    if not published:
        counts = [", ".join(map(str, sorted(counts))) for counts in ({p.devices for p in curve.points}, side.points)]
        raise InputError(f"no device count was measured in both: {name} has {counts[0]}; {side.source} has {counts[1]}")
    exact: dict[int, Estimate | None]
    if of_baseline is None or quantity == SPEED:
        own = {count: side.values[count] for count in published}
        exact = {count: make_exact(point.per_second or 0.0) for count, point in published.items()}
    else:
        own = {
            count: quotient(value, of_baseline, baseline / count) if (value := side.values[count]) else None
            for count in published
        }
        exact = {count: make_exact(curve.compute_efficiency(point)) for count, point in published.items()}
    b = replace(
        side,
        points={count: side.points[count] for count in published},
        values=own,
        other_cores={count: side.other_cores.get(count, ()) for count in (*published, baseline)},
        quantity=quantity,
        baseline_lost=side.estimate_lost_share(baseline) if quantity == EFFICIENCY else 0.0,
    )
    a = replace(
        b,
        source=name,
        title=curve.title,
        config=_make_stated_config(curve, side.config),
        points={
            count: replace(
                side.points[count],
                hosts=curve.count_hosts(point) or side.points[count].hosts,
                samples_per_second=Interval(point.per_second or 0.0),
                failures=(),
            )
            for count, point in published.items()
        },
        values=exact,
        machine=_describe_stated_machine(curve, side),
        parity=UNCHECKED, date="", versions={}, measurement={}, machines=(), other_cores={}, baseline_lost=0.0,
        citation=curve.source.citation,
    )  # fmt: skip
    return a, b


def _make_stated_config(curve: PublishedCurve, own: Config) -> Config:
    """Return the config that the source states. What it does not state is taken to be the same."""
    from ..published.near import is_same_network, make_work

    changes: dict[str, Any] = {"framework": curve.framework, "precision": curve.precision}
    if not is_same_network(make_work("", own, curve.unit), curve):
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


def _describe_stated_machine(curve: PublishedCurve, side: Side) -> dict[str, str]:
    """Return the GPUs of a host as the source states them, or as the run wrote them where they are of the same kind."""
    from ..published.curves import find_device_kind

    if HOST_GPUS not in side.machine or curve.device is None:
        return {}
    is_same = all(
        {find_device_kind(name) for name in machine.gpus} == {curve.device}
        and curve.devices_per_host in (None, len(machine.gpus))
        for machine in side.machines
    )
    stated = f"{curve.devices_per_host or '?'} × {curve.hardware}"
    return {HOST_GPUS: side.machine[HOST_GPUS] if is_same else stated}
