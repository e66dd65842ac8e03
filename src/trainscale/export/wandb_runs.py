"""Series as offline runs of Weights & Biases, which ``wandb sync`` sends later. Nothing is sent from here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..analyse.series import Series
from ..errors import InputError
from .base import Destination, Exporter, format_count
from .packages import import_package
from .quantities import list_point_quantities, list_series_settings
from .stored_run import StoredRun


class WandbExporter(Exporter):
    name = "wandb"
    description = "series as offline runs of Weights & Biases; -o is the folder (needs wandb)"

    def export(self, runs: Sequence[StoredRun], destination: Destination) -> str:
        folder = Path(destination.output or ".")
        if not folder.is_dir():
            raise InputError(f"--output {folder}: there is no such directory; wandb makes its folder wandb/ in it")
        wandb = import_package("wandb", "--to wandb")
        folders = [_export(wandb, folder, destination.project, run, series) for run in runs for series in run.series]
        sync = "\n".join(f"  wandb sync {path}" for path in folders)
        return f"{folder}: {format_count(len(folders), 'offline run')}; these commands send them:\n{sync}\n"


def _export(wandb: Any, folder: Path, project: str, run: StoredRun, series: Series) -> Path:
    """Write one series. Return the folder that ``wandb sync`` takes."""
    settings = wandb.Settings(
        console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
    )
    written = wandb.init(
        project=project,
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
        written.log({"devices": point.devices, **{item.name: item.value for item in list_point_quantities(point)}})
    path = Path(written.settings.sync_dir)
    written.finish()
    return path
