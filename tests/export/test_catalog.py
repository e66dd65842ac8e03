"""Exporters by name, those of plug-ins, and what is said where a package is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from factories import make_record
from packages import use, write_installed_package
from stored_runs import write_run

from trainscale.errors import InputError, TrainscaleError
from trainscale.export.base import Destination, Exporter
from trainscale.export.catalog import EXPORTERS, load_exporter
from trainscale.export.stored_run import read_stored_run
from trainscale.launch import plugins

COUNTING = """
from trainscale.export.base import Exporter
class Counting(Exporter):
    name, description = "counting", "counts trials"
    def export(self, runs, destination):
        return f"{sum(len(run.rows) for run in runs)} for {destination.project}\\n"
def function(): pass
"""


@pytest.fixture
def with_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "counting": "my_exporters.exporters:Counting",
        "csv": "my_exporters.exporters:Counting",
        "function": "my_exporters.exporters:function",
        "missing": "my_exporters.nowhere:Missing",
    }
    folder = write_installed_package(
        tmp_path / "site", "my-exporters", {"exporters.py": COUNTING}, {"trainscale.exporters": entries}
    )
    monkeypatch.syspath_prepend(str(folder))
    use(monkeypatch, folder)
    plugins.load_plugins.cache_clear()
    monkeypatch.setattr("trainscale.export.catalog.load_plugins", plugins.load_plugins.__wrapped__)


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_has_the_name_that_people_type(name: str) -> None:
    exporter = load_exporter(name)
    assert isinstance(exporter, Exporter)
    assert exporter.name == name
    assert exporter.description


def test_an_unknown_exporter_is_refused_with_those_that_exist() -> None:
    with pytest.raises(
        InputError, match=r"(?s)--to: unknown exporter 'parkuet'; did you mean 'parquet'.*valid: .*mlflow"
    ):
        load_exporter("parkuet")


@pytest.mark.usefixtures("with_plugins")
def test_a_package_adds_an_exporter_by_an_entry_point(tmp_path: Path) -> None:
    run = read_stored_run(write_run(tmp_path / "run", [make_record()]))
    assert load_exporter("counting").export([run], Destination(project="ours")) == "1 for ours\n"


@pytest.mark.usefixtures("with_plugins")
def test_a_plugin_cannot_replace_a_built_in_exporter() -> None:
    assert type(load_exporter("csv")).__name__ == "CsvExporter"


@pytest.mark.usefixtures("with_plugins")
@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing", "cannot be used: ModuleNotFoundError"), ("function", "is not a class that implements Exporter")],
)
def test_a_broken_exporter_of_a_plugin_is_named_when_it_is_used(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        load_exporter(name)


@pytest.mark.parametrize(("name", "output"), [("mlflow", "http://127.0.0.1:9"), ("wandb", "."), ("parquet", "x")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mlflow", "wandb", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    run = read_stored_run(write_run(tmp_path / "run", [make_record()]))
    package = "pyarrow" if name == "parquet" else name
    with pytest.raises(TrainscaleError, match=f"--to {name} needs the package {package}(?s:.*)pip install {package}$"):
        load_exporter(name).export([run], Destination(output))


def test_mlflow_needs_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = read_stored_run(write_run(tmp_path / "run", [make_record()]))
    with pytest.raises(InputError, match="no server is named"):
        load_exporter("mlflow").export([run], Destination())


def test_wandb_needs_a_folder_that_exists(tmp_path: Path) -> None:
    run = read_stored_run(write_run(tmp_path / "run", [make_record()]))
    with pytest.raises(InputError, match="there is no such directory"):
        load_exporter("wandb").export([run], Destination(str(tmp_path / "nowhere")))
