"""One side of a comparison: a series with what was recorded about where and how it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...record.run import RecordedMachine, RunInfo
from ...record.trial import OK
from ...record.witness import REFUTED
from ...spec.config import Config
from ..checks import MACHINE_BUSY, read_other_cores
from ..estimates import Estimate, make_estimate, make_exact
from ..series import Point, Series
from ..text import find_first_line

UNCHECKED = "not checked"
BY_BUDGET = "chosen by the time budget"
SPEED, EFFICIENCY = "speed", "efficiency"  # what a comparison compares
HOST_GPUS = "GPUs of a host"  # a key of Side.machine


@dataclass(frozen=True)
class SidePoint:
    """A point of one side. ``speed`` is cluster-wide, None if it has no result; then ``status`` and ``reason`` say why.
    Where efficiencies are compared (``Side.quantity``), it is the efficiency.

    ``witness`` is ``proven``, ``unproven`` or ``refuted`` (if any trial was), or ``not checked`` in older journals.
    """

    devices: int
    hosts: int
    speed: Estimate | None
    status: str = OK
    reason: str = ""
    witness: str = UNCHECKED
    disturbance: str = ""  # what else the machine did meanwhile, if anything
    baseline_lost: float = 0.0  # of an efficiency: the share of its baseline's speed that other programs may have taken


@dataclass(frozen=True)
class Side:
    """``versions``, ``machine`` and ``measurement`` are texts by name, as a message shows them."""

    source: str  # as the person named it
    title: str
    config: Config
    unit: str
    points: Mapping[int, SidePoint]
    parity: str = UNCHECKED
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    measurement: Mapping[str, str] = field(default_factory=dict)
    host_names: tuple[str, ...] = ()
    sessions: int = 1  # runs that alternate with those of the other side
    quantity: str = SPEED  # what ``SidePoint.speed`` is
    citation: str = ""  # of a published curve

    @property
    def has_efficiencies(self) -> bool:
        """Whether efficiencies are compared, not speeds."""
        return self.quantity == EFFICIENCY

    def estimate_lost_share(self, devices: int) -> float:
        """Return the largest share of a point's speed that other programs may have taken.

        That is all that they computed beyond the cores that the trial left free, all of it from one worker: a
        synchronous step waits for the worker that lost its core. Sessions that alternate need no allowance, because
        what other programs did is part of their spread.
        """
        point = self.points[devices]
        others = 0.0 if self.sessions > 1 else read_other_cores([point.disturbance])
        return min(1.0, max(0.0, others - self._count_free_cores(point)))

    def _count_free_cores(self, point: SidePoint) -> int:
        """Return the cores of the smallest host that no worker, loader or server needs; 0 if they are not known."""
        cores = [int(text) for text in self.machine.get("cores", "").split(", ") if text.isdecimal()]
        workers = math.ceil(point.devices / point.hosts)
        servers = math.ceil(self.config.count_servers(point.hosts) / point.hosts)
        used = workers * (max(1, self.config.cores_per_device) + self.config.loaders) + servers
        return max(0, min(cores) - used) if cores else 0

    @property
    def is_exact(self) -> bool:
        """Whether this is a number that a person gave."""
        return all(point.speed is not None and point.speed.repeats is None for point in self.points.values())


def make_sides(source: str, run: RunInfo, all_series: Sequence[Series]) -> list[Side]:
    """Return a side for each series of a run."""
    return [
        make_side(
            Side(
                source=source,
                title=series.title,
                config=series.config,
                unit=series.unit,
                points={point.devices: _make_point(point, run.is_sequential) for point in series.points},
                parity=series.parity or UNCHECKED,
            ),
            run,
            series.versions,
        )
        for series in all_series
    ]


def make_side(side: Side, run: RunInfo, versions: Mapping[str, str]) -> Side:
    """Return the side with what its run recorded: versions, machines, warm-up and steps."""
    provenance = run.read_provenance()
    machines = list((provenance.hosts or {}).values()) or ([provenance.machine] if provenance.machine else [])
    return replace(
        side,
        date=provenance.date or "",
        versions=_collect_versions(run, versions, machines),
        machine=_describe_machines(machines),
        measurement=_describe_measurement(run),
        host_names=tuple(sorted({machine.host for machine in machines if machine.host})),
    )


def make_reference_side(like: Side, speeds: Mapping[int, float], source: str) -> Side:
    """Return a side of exact speeds by device count. A number has no config, so it gets everything else of ``like``."""
    points = {
        devices: replace(like.points[devices], speed=make_exact(speed), status=OK, reason="", disturbance="")
        if devices in like.points
        else SidePoint(devices, 1, make_exact(speed))
        for devices, speed in speeds.items()
    }
    return replace(like, source=source, points=points, date="")


def _make_point(point: Point, is_sequential: bool) -> SidePoint:
    speed = point.samples_per_second
    was_refuted = any(failure.kind == REFUTED for failure in point.failures)
    return SidePoint(
        devices=point.devices,
        hosts=point.hosts,
        speed=make_estimate(speed, point.repeats, is_sequential) if speed else None,
        status=point.status,
        reason=find_first_line(point.failures[-1].message) if point.failures and not point.ok else "",
        witness=REFUTED if was_refuted else point.witness or UNCHECKED,
        disturbance=find_disturbance(point.flags),
    )


def find_disturbance(flags: Iterable[str]) -> str:
    """Return the flag that says that other programs used the machine. Empty if there is none."""
    return next((flag for flag in flags if flag.startswith(MACHINE_BUSY)), "")


def _collect_versions(run: RunInfo, versions: Mapping[str, str], machines: Sequence[RecordedMachine]) -> dict[str, str]:
    drivers = _join(machine.gpu_driver for machine in machines)
    systems = _join(machine.system for machine in machines)
    own = run.read_provenance().trainscale
    further = {"gpu driver": drivers, "system": systems, "trainscale": str(own) if own else ""}
    return {**versions, **{name: text for name, text in further.items() if text}}


def _describe_machines(machines: Sequence[RecordedMachine]) -> dict[str, str]:
    """Return what the hosts are. Their names and numbers are no part of it: hosts of one kind are comparable."""
    traits = {
        "CPU": _join(machine.cpu for machine in machines),
        "cores": _join(str(machine.cores) if machine.cores else None for machine in machines),
        HOST_GPUS: _join(_describe_gpus(machine) if machine.cpu else None for machine in machines),
    }
    return {name: text for name, text in traits.items() if text}


def _describe_gpus(machine: RecordedMachine) -> str:
    names = sorted(set(machine.gpus))
    return " and ".join(f"{machine.gpus.count(name)} × {name}" for name in names) or "none"


def _describe_measurement(run: RunInfo) -> dict[str, str]:
    """Return how a window is measured, and over which network."""
    spec = run.read_spec()
    steps = spec.steps if spec.budget is None else BY_BUDGET
    values = {"warmup": spec.warmup, "steps": steps, "interface": spec.interface}
    return {name: str(value) for name, value in values.items() if value is not None}


def _join(texts: Iterable[str | None]) -> str:
    return ", ".join(sorted({text for text in texts if text}))
