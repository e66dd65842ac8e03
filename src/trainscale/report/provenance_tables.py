"""Tables of machines and of data sets, from a run's provenance. Runs of older versions recorded less."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.series import Series
from ..record.run import Provenance, RecordedMachine, RunInfo
from . import numbers, wording
from .table import Grid


def make_machines_grid(run: RunInfo) -> Grid:
    """Return a row for every kind of machine. Hosts with the same hardware share a row."""
    provenance = run.read_provenance()
    software = _join_software(provenance)
    rows = [
        (_join_names(names), hardware, software) for hardware, names in _group_names_by_hardware(provenance).items()
    ]
    return Grid("Machines", ("name", "hardware", "software"), tuple(rows), left=(0, 1, 2))


def make_datasets_grid(run: RunInfo, all_series: Sequence[Series]) -> Grid | None:
    """Return None for synthetic data. The image size is the one that the networks were given."""
    data = run.read_provenance().data
    if data is None:
        return None
    sizes = dict.fromkeys(
        f"{series.config.image_size} × {series.config.image_size} × {series.config.channels}"
        for series in all_series
        if series.config.data != "synthetic"
    )
    row = (
        data.name or numbers.MISSING,
        numbers.format_integer(data.classes),
        ", ".join(sizes) or numbers.MISSING,
        numbers.format_integer(data.train),
        numbers.format_integer(data.valid),
    )
    return Grid("Data sets", ("name", "class", "image size", "training", "testing"), (row,))


def make_versions_grid(run: RunInfo) -> Grid | None:
    """Return a row for every framework with its versions, and trainscale's own. None where a run recorded none."""
    provenance = run.read_provenance()
    rows = [
        (name, ", ".join(f"{module} {version}" for module, version in versions.items()))
        for name, versions in (provenance.frameworks or {}).items()
    ]
    own = [text for text in (provenance.trainscale, provenance.commit) if text]
    if own:
        rows.append(("trainscale", ", commit ".join(own)))
    return Grid("Versions", ("program", "versions"), tuple(rows), left=(0, 1)) if rows else None


def name_cluster(run: RunInfo) -> str:
    """Return the names in the table of machines."""
    return ", ".join(_join_names(names) for names in _group_names_by_hardware(run.read_provenance()).values())


def describe_hardware(run: RunInfo) -> str:
    """Return the hardware without the names of hosts."""
    kinds = _group_names_by_hardware(run.read_provenance())
    counts = {hardware: len(names) for hardware, names in kinds.items()}
    return "; ".join(hardware if count == 1 else f"{count} × ({hardware})" for hardware, count in counts.items())


def describe_software(run: RunInfo) -> str:
    return _join_software(run.read_provenance())


def _group_names_by_hardware(provenance: Provenance) -> dict[str, list[str]]:
    machines = provenance.hosts or {"": provenance.machine or RecordedMachine()}
    names: dict[str, list[str]] = {}
    for name, machine in machines.items():
        names.setdefault(_describe_machine(machine), []).append(name or machine.host or "this machine")
    return names


def _join_names(names: Sequence[str]) -> str:
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({wording.format_host_count(len(names))})"


def _describe_machine(machine: RecordedMachine) -> str:
    parts = [f"{machine.gpus.count(name)} × {name}" for name in dict.fromkeys(machine.gpus)]
    parts.append(machine.cpu or "")
    if machine.cores:
        parts.append(f"{machine.cores} core{'' if machine.cores == 1 else 's'}")
    if machine.memory_gib:
        parts.append(f"{machine.memory_gib} GiB")
    return ", ".join(part for part in parts if part) or numbers.MISSING


def _join_software(provenance: Provenance) -> str:
    machine = provenance.machine or RecordedMachine()
    parts = [machine.system or "", f"driver {machine.gpu_driver}" if machine.gpu_driver else ""]
    frameworks = (provenance.frameworks or {}).values()
    versions = dict.fromkeys(f"{name} {version}" for modules in frameworks for name, version in modules.items())
    setting = (provenance.allocator or {}).get("setting")
    allocator = f"C allocator: {setting}" if setting else ""
    return ", ".join(part for part in (*parts, *versions, allocator) if part) or numbers.MISSING
