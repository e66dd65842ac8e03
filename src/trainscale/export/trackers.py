"""Series as runs of MLflow or Weights & Biases, with points as metrics over the device counts."""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from ..analyse.series import Interval, Point, Series
from ..errors import InputError, TrainscaleError
from ..report.csv_json import make_slug
from ..report.numbers import format_count
from ..runs import Run
from ..spec.config import compute_digest
from .base import Destination, Exporter, import_package
from .tables import CsvExporter, make_unit_name

_VARIABLE = "MLFLOW_TRACKING_URI"
_DIGEST = "trainscale.digest"


class MlflowExporter(Exporter):
    name = "mlflow"
    description = "series as runs of an MLflow experiment; -o is the tracking URI (needs mlflow)"

    def export(self, runs: Sequence[Run], destination: Destination) -> str:
        address, project = destination.output or os.environ.get(_VARIABLE), destination.project
        if not address:
            raise InputError(f"--to mlflow: no server is named; valid: -o http://HOST:PORT, or {_VARIABLE} set")
        mlflow = import_package("mlflow", "--to mlflow")
        tracking = import_package("mlflow.tracking", "--to mlflow", "mlflow")
        try:
            client = tracking.MlflowClient(address)
            known = client.get_experiment_by_name(project)
            experiment = str(known.experiment_id if known else client.create_experiment(project))
            with redirect_stdout(sys.stderr):  # MLflow prints the address of every run
                pairs = [(run, series) for run in runs for series in run.series]
                new = [_add_to_mlflow(mlflow, client, experiment, run, series) for run, series in pairs]
        except mlflow.exceptions.MlflowException as error:
            raise TrainscaleError(f"--to mlflow: {address}: {str(error).splitlines()[0]}") from None
        there = f" ({len(new) - sum(new)} were there already)" if not all(new) else ""
        return f"{address}: {format_count(sum(new), 'run')} added to the experiment {project}{there}\n"


def _add_to_mlflow(mlflow: Any, client: Any, experiment: str, run: Run, series: Series) -> bool:
    """Add a series, unless the same results are there already. Return whether it was added."""
    identity = compute_digest([run.info.spec, [asdict(row) for row in run.rows if row.series == series.title]])
    if client.search_runs([experiment], f"tags.`{_DIGEST}` = '{identity}'", max_results=1):
        return False
    date = run.info.read_provenance().date
    milliseconds = int(datetime.fromisoformat(date).timestamp() * 1000) if date else 0
    tags = {_DIGEST: identity, "trainscale.run": run.name, "trainscale.series": series.title}
    created = client.create_run(experiment, start_time=milliseconds, tags=tags, run_name=f"{run.name}: {series.title}")
    entities = mlflow.entities
    metrics = [
        entities.Metric(name, value, milliseconds, point.devices)
        for point in series.points
        for name, value in list_metrics(point).items()
    ]
    parameters = [entities.Param(name, value) for name, value in list_series_settings(series).items()]
    client.log_batch(created.info.run_id, metrics=metrics, params=parameters)
    client.log_text(created.info.run_id, CsvExporter().text([run]), "trials.csv")
    client.set_terminated(created.info.run_id, "FINISHED" if series.good else "FAILED", milliseconds)
    return True


class WandbExporter(Exporter):
    name = "wandb"
    description = "series as offline runs of Weights & Biases; -o is the folder (needs wandb)"

    def export(self, runs: Sequence[Run], destination: Destination) -> str:
        folder = Path(destination.output or ".")
        if not folder.is_dir():
            raise InputError(f"--output {folder}: there is no such directory; wandb makes its folder wandb/ in it")
        wandb = import_package("wandb", "--to wandb")
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        folders = []  # that ``wandb sync`` takes
        for run in runs:
            for series in run.series:
                written = wandb.init(
                    project=destination.project,
                    name=f"{run.name}: {series.title}",
                    dir=str(folder),
                    mode="offline",
                    reinit="create_new",
                    config={**list_series_settings(series), "run": run.name, "series": series.title},
                    settings=settings,
                )
                written.define_metric("devices")
                written.define_metric("*", step_metric="devices")
                for point in series.good:
                    written.log({"devices": point.devices, **list_metrics(point)})
                folders.append(Path(written.settings.sync_dir))
                written.finish()
        sync = "\n".join(f"  wandb sync {path}" for path in folders)
        return f"{folder}: {format_count(len(folders), 'offline run')}; these commands send them:\n{sync}\n"


def list_metrics(point: Point) -> dict[str, float]:
    """Return the numbers of a point by name. A point without a result has none."""
    intervals: dict[str, Interval | None] = {
        f"{make_unit_name(point)}_per_second": point.samples_per_second,
        "speedup": point.speedup,
        "efficiency": point.efficiency,
    }
    numbers: dict[str, float | None] = {}
    for name, interval in intervals.items():
        if interval:
            numbers |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    names = ("step_seconds", "startup_seconds", "device_peak_bytes", "nvml_peak_bytes", "host_peak_bytes")
    numbers |= {name: getattr(point, name) for name in names}
    numbers["valid_accuracy"] = point.learning.valid_accuracy.mean if point.learning else None
    return {name: value for name, value in numbers.items() if value is not None}


def list_series_settings(series: Series) -> dict[str, str]:
    """Return the config of a series and the versions that it ran with, as text by name."""
    settings = {name: str(value) for name, value in asdict(series.config).items() if value is not None}
    return {**settings, **{f"version_{make_slug(name)}": version for name, version in series.versions.items()}}
