"""Which run a command means: the specification that a run is known by, and the directory that holds it."""

from __future__ import annotations

from pathlib import Path

from ..spec.config import compute_digest
from ..spec.plan import Plan
from ..worker.type_aliases import JsonObject
from .search import make_short_measure

_DEFAULT_FOLDER = Path("runs")


def make_spec(plan: Plan) -> JsonObject:
    """Return what makes two commands the same run: the configs and ladders they lead to, and how those are measured.

    The spelling of a command does not matter. Neither do the timeouts: a run may be continued with longer ones.
    """
    work, measurement, interface = plan.experiment.work, plan.experiment.measurement, plan.experiment.cluster.interface
    has_several_hosts = len(plan.available.hosts) > 1
    spec: JsonObject = {
        "series": [
            {**config.to_dict(), "ladder": list(counts)}
            for config, counts in zip(plan.configs, plan.ladders, strict=True)
        ],
        "warmup": measurement.warmup,
        "steps": measurement.steps,
        "seed": work.seed,
    }
    if work.max_batch is not None:
        spec["max_batch"] = work.max_batch
    if has_several_hosts:
        spec["hosts"] = plan.available.devices_per_host
    if has_several_hosts and interface:  # over another network the same ladder is another measurement
        spec["interface"] = interface
    if measurement.search:  # the space itself is in the series
        short = make_short_measure(measurement)
        spec["search"] = {"warmup": short.warmup, "steps": short.steps}
    if measurement.budget is not None:
        spec["budget"] = measurement.budget
    if measurement.until_interval is not None:
        spec["until_interval"] = measurement.until_interval
    if not measurement.is_sequential:
        spec["repeats"] = measurement.repeats
    return spec


def choose_directory(output: Path | None, fresh: bool, plan: Plan, spec: JsonObject) -> Path:
    """Return the directory of a run. Its default name comes from the spec, so the same command finds its journal.

    With ``fresh`` a number is appended until the directory is new.
    """
    directory = output or _DEFAULT_FOLDER / f"{_format_models(plan)}-{compute_digest(spec)[:6]}"
    if not fresh:
        return directory
    number, candidate = 1, directory
    while candidate.is_dir() and any(candidate.iterdir()):
        number += 1
        candidate = directory.with_name(f"{directory.name}-{number}")
    return candidate


def _format_models(plan: Plan) -> str:
    names = dict.fromkeys(config.model for config in plan.configs)
    text = "-".join(names) if len(names) < 4 else f"{len(names)}-models"
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text)[:60]
