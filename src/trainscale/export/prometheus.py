"""Points in the text format of Prometheus, for the textfile collector of its node exporter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from .base import TextExporter
from .quantities import list_point_quantities
from .stored_run import StoredRun

_PREFIX = "trainscale_"


class PrometheusExporter(TextExporter):
    name = "prometheus"
    description = "points as gauges, in the text format of Prometheus"

    def text(self, runs: Sequence[StoredRun]) -> str:
        lines: defaultdict[str, list[str]] = defaultdict(list)
        meanings: dict[str, str] = {}
        for run in runs:
            for name, meaning, labels, value in _collect_samples(run):
                meanings.setdefault(name, meaning)
                lines[name].append(f"{_PREFIX}{name}{_format_labels(labels)} {value!r}\n")
        blocks = [
            f"# HELP {_PREFIX}{name} {_escape(meanings[name])}\n# TYPE {_PREFIX}{name} gauge\n{''.join(of_name)}"
            for name, of_name in lines.items()
        ]
        return "".join(blocks)


Sample = tuple[str, str, dict[str, str], float]


def _collect_samples(run: StoredRun) -> list[Sample]:
    samples: list[Sample] = []
    for series in run.series:
        config = series.config
        labels = {
            "run": run.name,
            "series": series.title,
            "framework": config.framework,
            "model": config.model,
            "strategy": config.strategy_label,
        }
        for point in series.points:
            of_point = {**labels, "devices": str(point.devices), "hosts": str(point.hosts)}
            samples += [(item.name, item.meaning, of_point, item.value) for item in list_point_quantities(point)]
    statuses = Counter(row.status for row in run.rows)
    samples += [("trials", "Trials by status", {"run": run.name, "status": name}, n) for name, n in statuses.items()]
    date = run.info.read_provenance().date
    if date:
        seconds = datetime.fromisoformat(date).timestamp()
        samples.append(("run_start_timestamp_seconds", "When the run began", {"run": run.name}, seconds))
    return samples


def _format_labels(labels: Mapping[str, str]) -> str:
    pairs = [f'{name}="{_escape(value)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
