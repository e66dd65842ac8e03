"""What differs between the runs of one report: machines, versions, what was trained, and how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..analyse.titles import find_model_title
from ..record.run import RecordedMachine, RecordedSpec
from ..spec.config import WEAK, Config
from . import numbers, wording
from .provenance_tables import describe_hardware
from .reported_run import ReportedRun
from .table import Grid

Fact = Callable[[ReportedRun], str]  # empty where a run did not record it


def make_difference_grid(runs: Sequence[ReportedRun]) -> Grid:
    """Return a row for everything in which the runs differ, a column for each run, and the date of each."""
    facts = _find_differing(runs)
    rows = [(name, *(fact(run) or numbers.MISSING for run in runs)) for name, fact in facts.items()]
    dates = ("measured", *(_format_date(run) or numbers.MISSING for run in runs))
    header = ("", *(run.label for run in runs))
    return Grid("What differs between the runs", header, (*rows, dates), left=tuple(range(len(header))))


def list_difference_sentences(runs: Sequence[ReportedRun]) -> list[str]:
    """Say in what the runs differ, in what they do not, and what the numbers are relative to."""
    differing = _find_differing(runs)
    alike = [name for name, fact in _list_facts(runs).items() if name not in differing and all(map(fact, runs))]
    baseline = "Speed-up and efficiency of a series are relative to the 1-device point of its own run."
    if not differing:
        return [f"The runs recorded nothing in which they differ: {wording.join_names(alike)} are the same.", baseline]
    together = " A difference in speed has all these causes together." if len(differing) > 1 else ""
    sentences = [f"The runs differ in {wording.join_names(differing)}.{together}"]
    if alike:
        sentences.append(f"The same in all: {wording.join_names(alike)}.")
    return [*sentences, baseline]


def _find_differing(runs: Sequence[ReportedRun]) -> dict[str, Fact]:
    """Return the facts in which runs that recorded them differ."""
    return {name: fact for name, fact in _list_facts(runs).items() if len({fact(run) for run in runs} - {""}) > 1}


def _list_facts(runs: Sequence[ReportedRun]) -> dict[str, Fact]:
    return {
        "machine": lambda run: _drop_missing(describe_hardware(run.info)),
        "hosts": lambda run: numbers.format_integer(
            max((p.hosts for series in run.shown for p in series.points), default=1)
        ),
        "system": lambda run: _join_machine_facts(run, lambda machine: machine.system),
        "GPU driver": lambda run: _join_machine_facts(run, lambda machine: machine.gpu_driver),
        **_list_version_facts(runs),
        "networks": _make_config_fact(lambda config: find_model_title(config.model)),
        "frameworks": _make_config_fact(lambda config: config.framework),
        "strategies": _make_config_fact(lambda config: config.strategy_label),
        "batch": _make_config_fact(_format_batch),
        "precision": _make_config_fact(lambda config: config.precision),
        "layout": _make_config_fact(lambda config: config.layout),
        "compilation": _make_config_fact(lambda config: "compiled" if config.compile else "eager"),
        "data": _make_config_fact(lambda config: wording.format_data_name(config.data)),
        "image size": _make_config_fact(lambda config: f"{config.image_size} px"),
        "kind of device": lambda run: wording.describe_device_kind(run.shown) if run.shown else "",
        "warm-up steps": _make_spec_fact(lambda spec: spec.warmup),
        "steps": _make_spec_fact(lambda spec: spec.steps if spec.budget is None else None),
        "time budget": _make_spec_fact(lambda spec: f"{spec.budget:g} s" if spec.budget else None),
    }


def _list_version_facts(runs: Sequence[ReportedRun]) -> dict[str, Fact]:
    """Return a fact for every framework of the runs, and for trainscale itself."""
    names = dict.fromkeys(name for run in runs for name in run.info.read_provenance().frameworks or {})

    def versions(name: str) -> Fact:
        return lambda run: ", ".join(
            f"{module} {version}"
            for module, version in (run.info.read_provenance().frameworks or {}).get(name, {}).items()
        )

    return {
        **{f"versions of {name}": versions(name) for name in names},
        "version of trainscale": lambda run: run.info.read_provenance().trainscale or "",
    }


def _make_config_fact(write: Callable[[Config], str]) -> Fact:
    return lambda run: _join(write(series.config) for series in run.shown)


def _join_machine_facts(run: ReportedRun, read: Callable[[RecordedMachine], str | None]) -> str:
    provenance = run.info.read_provenance()
    machines = [*(provenance.hosts or {}).values(), *([provenance.machine] if provenance.machine else [])]
    return _join(text for machine in machines if (text := read(machine)))


def _make_spec_fact(read: Callable[[RecordedSpec], int | str | None]) -> Fact:
    return lambda run: "" if (value := read(run.info.read_spec())) is None else str(value)


def _format_batch(config: Config) -> str:
    scope = "per device" if config.scaling == WEAK else "over all devices"
    return f"{numbers.format_integer(config.batch)} {scope}"


def _format_date(run: ReportedRun) -> str:
    return (run.info.read_provenance().date or "")[:16].replace("T", " ")


def _join(texts: Iterable[str]) -> str:
    """Return different texts in an order that does not depend on the run; numbers ascend."""
    return ", ".join(sorted(set(texts), key=lambda text: (len(text.split()[0]) if text[:1].isdigit() else 0, text)))


def _drop_missing(text: str) -> str:
    return "" if text == numbers.MISSING else text
