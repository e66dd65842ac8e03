"""Series as runs of MLflow: settings as parameters, points as metrics whose step is the number of devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ..analyse.series import Series
from ..errors import InputError, TrainscaleError
from ..spec.config import compute_digest
from .base import Destination, Exporter, format_count
from .packages import import_package
from .quantities import list_point_quantities, list_series_settings
from .stored_run import StoredRun
from .tables import CsvExporter

_VARIABLE = "MLFLOW_TRACKING_URI"
_DIGEST = "trainscale.digest"


class MlflowExporter(Exporter):
    name = "mlflow"
    description = "series as runs of an MLflow experiment; -o is the tracking URI (needs mlflow)"

    def export(self, runs: Sequence[StoredRun], destination: Destination) -> str:
        address = destination.output or os.environ.get(_VARIABLE)
        if not address:
            raise InputError(f"--to mlflow: no server is named; valid: -o http://HOST:PORT, or {_VARIABLE} set")
        mlflow = import_package("mlflow", "--to mlflow")
        tracking = import_package("mlflow.tracking", "--to mlflow", "mlflow")
        try:
            client = tracking.MlflowClient(address)
            experiment = _find_or_create_experiment(client, destination.project)
            with redirect_stdout(sys.stderr):  # MLflow prints the address of every run
                new = [_export(mlflow, client, experiment, run, series) for run in runs for series in run.series]
        except mlflow.exceptions.MlflowException as error:
            raise TrainscaleError(f"--to mlflow: {address}: {str(error).splitlines()[0]}") from None
        there = f" ({len(new) - sum(new)} were there already)" if not all(new) else ""
        return f"{address}: {format_count(sum(new), 'run')} added to the experiment {destination.project}{there}\n"


def _find_or_create_experiment(client: Any, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id if experiment else client.create_experiment(name))


def _export(mlflow: Any, client: Any, experiment: str, run: StoredRun, series: Series) -> bool:
    """Add a series, unless the same results are there already. Return whether it was added."""
    identity = digest_series(run, series)
    if client.search_runs([experiment], f"tags.`{_DIGEST}` = '{identity}'", max_results=1):
        return False
    date = run.info.read_provenance().date
    milliseconds = int(datetime.fromisoformat(date).timestamp() * 1000) if date else 0
    tags = {_DIGEST: identity, "trainscale.run": run.name, "trainscale.series": series.title}
    created = client.create_run(experiment, start_time=milliseconds, tags=tags, run_name=f"{run.name}: {series.title}")
    entities = mlflow.entities
    client.log_batch(
        created.info.run_id,
        metrics=[
            entities.Metric(item.name, item.value, milliseconds, point.devices)
            for point in series.points
            for item in list_point_quantities(point)
        ],
        params=[entities.Param(name, value) for name, value in list_series_settings(series).items()],
    )
    client.log_text(created.info.run_id, CsvExporter().text([run]), "trials.csv")
    client.set_terminated(created.info.run_id, "FINISHED" if series.good else "FAILED", milliseconds)
    return True


def digest_series(run: StoredRun, series: Series) -> str:
    """Return what identifies the results of a series, so that they are not added twice."""
    trials = [asdict(row) for row in run.rows if row.series == series.title]
    return compute_digest([run.info.spec, trials])
