"""Tables of machines and of data sets, from what a run's provenance says. Runs of older versions say less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..analyse.series import Series
from ..record.run import RunInfo
from . import numbers, wording
from .grid import Grid


def machines_grid(run: RunInfo) -> Grid:
    """A row for every kind of machine: hosts with the same hardware share one."""
    software = _software(run)
    rows = [(_names(names), hardware, software) for hardware, names in _kinds(run).items()]
    return Grid("Machines", ("name", "hardware", "software"), tuple(rows), left=(0, 1, 2))


def datasets_grid(run: RunInfo, all_series: Sequence[Series]) -> Grid | None:
    """None where images were synthetic. The image size is what the networks were given."""
    facts = run.provenance.get("data")
    if not isinstance(facts, Mapping):
        return None
    sizes = dict.fromkeys(
        f"{series.config.image_size} × {series.config.image_size} × {series.config.channels}"
        for series in all_series
        if series.config.data != "synthetic"
    )
    row = (
        str(facts.get("name", numbers.MISSING)),
        _count(facts.get("classes")),
        ", ".join(sizes) or numbers.MISSING,
        _count(facts.get("train")),
        _count(facts.get("valid")),
    )
    return Grid("Data sets", ("name", "class", "image size", "training", "testing"), (row,))


def cluster_name(run: RunInfo) -> str:
    """As in the table of machines."""
    return ", ".join(_names(names) for names in _kinds(run).values())


def _kinds(run: RunInfo) -> dict[str, list[str]]:
    """Names by hardware."""
    hosts = run.provenance.get("hosts") or {}
    found = list(hosts.items()) if hosts else [("", run.provenance.get("machine") or {})]
    kinds: dict[str, list[str]] = {}
    for name, facts in found:
        kinds.setdefault(_hardware(facts), []).append(str(name or facts.get("host") or "this machine"))
    return kinds


def _names(names: Sequence[str]) -> str:
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({wording.host_count(len(names))})"


def _hardware(facts: Mapping[str, Any]) -> str:
    gpus = [str(name) for name in facts.get("gpus") or ()]
    parts = [f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus)]
    parts.append(str(facts.get("cpu") or ""))
    if facts.get("cores"):
        parts.append(f"{facts['cores']} core{'' if facts['cores'] == 1 else 's'}")
    if facts.get("memory GiB"):
        parts.append(f"{facts['memory GiB']} GiB")
    return ", ".join(part for part in parts if part) or numbers.MISSING


def _software(run: RunInfo) -> str:
    machine = run.provenance.get("machine") or {}
    parts = [str(machine.get("system") or "")]
    if machine.get("gpu driver"):
        parts.append(f"driver {machine['gpu driver']}")
    versions = dict.fromkeys(
        f"{name} {version}"
        for found in (run.provenance.get("frameworks") or {}).values()
        for name, version in found.items()
    )
    return ", ".join(part for part in (*parts, *versions) if part) or numbers.MISSING


def _count(value: Any) -> str:
    return numbers.integer(value) if isinstance(value, int) else numbers.MISSING
