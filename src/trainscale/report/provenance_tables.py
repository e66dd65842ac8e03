"""Tables of what runs recorded, and of what differs."""

from collections.abc import Iterable, Sequence

from ..analyse.series import Series
from ..analyse.titles import find_model_title
from ..record.run import Provenance, RecordedMachine, RunInfo
from ..runs import Run
from ..spec.config import WEAK
from . import numbers, wording
from .documents import Grid


def make_machines_grid(run: RunInfo) -> Grid:
    """Return a row for every kind of machine."""
    groups, software = _group_hosts(run.read_provenance()), describe_software(run)
    rows = [(_join_names(names), hardware, software) for hardware, names in groups.items()]
    return Grid("Machines", ("name", "hardware", "software"), tuple(rows), left=(0, 1, 2))


def make_datasets_grid(run: RunInfo, all_series: Sequence[Series]) -> Grid | None:
    """Return None for synthetic data."""
    data = run.read_provenance().data
    if data is None:
        return None
    configs = [series.config for series in all_series if series.config.data != "synthetic"]
    sizes = dict.fromkeys(f"{config.image_size} × {config.image_size} × {config.channels}" for config in configs)
    row = (
        data.name or numbers.MISSING,
        numbers.format_integer(data.classes),
        ", ".join(sizes) or numbers.MISSING,
        numbers.format_integer(data.train),
        numbers.format_integer(data.valid),
    )
    return Grid("Data sets", ("name", "class", "image size", "training", "testing"), (row,))


def make_versions_grid(run: RunInfo) -> Grid | None:
    provenance = run.read_provenance()
    rows = [(name, ", ".join(_list_versions(modules))) for name, modules in (provenance.frameworks or {}).items()]
    own = [text for text in (provenance.trainscale, provenance.commit) if text]
    if own:
        rows.append(("trainscale", ", commit ".join(own)))
    return Grid("Versions", ("program", "versions"), tuple(rows), left=(0, 1)) if rows else None


def describe_hardware(run: RunInfo) -> str:
    groups = _group_hosts(run.read_provenance())
    kinds = [text if len(names) == 1 else f"{len(names)} × ({text})" for text, names in groups.items()]
    return "; ".join(kinds)


def describe_software(run: RunInfo) -> str:
    provenance = run.read_provenance()
    machine = provenance.machine or RecordedMachine()
    parts = [machine.system, f"driver {machine.gpu_driver}" if machine.gpu_driver else ""]
    for modules in (provenance.frameworks or {}).values():
        parts += [text for text in _list_versions(modules) if text not in parts]
    if setting := (provenance.allocator or {}).get("setting"):
        parts.append(f"C allocator: {setting}")
    return ", ".join(part for part in parts if part) or numbers.MISSING


def _group_hosts(provenance: Provenance) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, machine in (provenance.hosts or {"": provenance.machine or RecordedMachine()}).items():
        parts = [f"{machine.gpus.count(gpu)} × {gpu}" for gpu in dict.fromkeys(machine.gpus)]
        parts.append(machine.cpu or "")
        if machine.cores:
            parts.append(numbers.format_count(machine.cores, "core"))
        if machine.memory_gib:
            parts.append(f"{machine.memory_gib} GiB")
        hardware = ", ".join(part for part in parts if part) or numbers.MISSING
        groups.setdefault(hardware, []).append(name or machine.host or "this machine")
    return groups


def _list_versions(modules: dict[str, str]) -> list[str]:
    return [f"{name} {version}" for name, version in modules.items()]


def _join_names(names: Sequence[str]) -> str:
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({wording.format_host_count(len(names))})"


# ---- several runs


def make_difference_grid(runs: Sequence[Run]) -> Grid:
    """Return what differs; the note says what is the same."""
    frameworks = dict.fromkeys(name for run in runs for name in run.info.read_provenance().frameworks or {})
    by_run = [_read_facts(run, list(frameworks)) for run in runs]
    facts = {name: [of_run[name] for of_run in by_run] for name in by_run[0]}
    differing = {name: texts for name, texts in facts.items() if len({*texts} - {""}) > 1}  # "": not recorded
    alike = wording.join_names(name for name, texts in facts.items() if name not in differing and all(texts))
    notes = [f"The runs recorded nothing in which they differ: {alike} are the same."]
    if differing:
        together = " A difference in speed has all these causes together." if len(differing) > 1 else ""
        notes = [f"The runs differ in {wording.join_names(differing)}.{together}"]
        notes += [f"The same in all: {alike}."] if alike else []
    notes.append("Speed-up and efficiency of a series are relative to the 1-device point of its own run.")
    dates = [(run.info.read_provenance().date or "")[:16].replace("T", " ") for run in runs]
    rows = [
        (name, *(text or numbers.MISSING for text in texts)) for name, texts in {**differing, "measured": dates}.items()
    ]
    header = ("", *(run.label for run in runs))
    return Grid("What differs between the runs", header, tuple(rows), " ".join(notes), left=tuple(range(len(header))))


def _read_facts(run: Run, frameworks: Sequence[str]) -> dict[str, str]:
    provenance, spec = run.info.read_provenance(), run.info.read_spec()
    machines = [*(provenance.hosts or {}).values(), *([provenance.machine] if provenance.machine else [])]
    configs = [series.config for series in run.series]
    versions = provenance.frameworks or {}
    hardware = describe_hardware(run.info)
    return {
        "machine": "" if hardware == numbers.MISSING else hardware,
        "hosts": numbers.format_integer(max((point.hosts for point in run.points), default=1)),
        "system": _join(machine.system for machine in machines),
        "GPU driver": _join(machine.gpu_driver for machine in machines),
        **{f"versions of {name}": ", ".join(_list_versions(versions.get(name, {}))) for name in frameworks},
        "version of trainscale": provenance.trainscale or "",
        "networks": _join(find_model_title(config.model) for config in configs),
        "frameworks": _join(config.framework for config in configs),
        "strategies": _join(config.strategy_label for config in configs),
        "batch": _join(
            f"{numbers.format_integer(config.batch)} {'per device' if config.scaling == WEAK else 'over all devices'}"
            for config in configs
        ),
        "precision": _join(config.precision for config in configs),
        "layout": _join(config.layout for config in configs),
        "compilation": _join("compiled" if config.compile else "eager" for config in configs),
        "data": _join(wording.format_data_name(config.data) for config in configs),
        "image size": _join(f"{config.image_size} px" for config in configs),
        "kind of device": wording.describe_device_kind(run.series) if run.series else "",
        "warm-up steps": "" if spec.warmup is None else str(spec.warmup),
        "steps": "" if spec.steps is None or spec.budget is not None else str(spec.steps),
        "time budget": f"{spec.budget:g} s" if spec.budget else "",
    }


def _join(texts: Iterable[str | None]) -> str:
    """Return different texts in a fixed order; numbers ascend."""

    def order(text: str) -> tuple[int, str]:
        return len(text.split()[0]) if text[:1].isdigit() else 0, text

    return ", ".join(sorted({text for text in texts if text}, key=order))
