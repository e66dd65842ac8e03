"""The tidy table: its columns, its rows, and the same rows in every format."""

import csv
import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from factories import learning_record, make_config, make_record, make_run
from pyarrow import parquet
from stored_runs import two_series, write_run

from trainscale.analyse.throughput import compute_samples_per_second
from trainscale.export.base import Destination
from trainscale.export.columns import COLUMNS, TrialRow
from trainscale.export.tables import CsvExporter, JsonExporter, ParquetExporter, to_arrow, to_pandas, to_polars
from trainscale.record.parity import WitnessVerdict
from trainscale.record.trial import GpuState, MachineLoad, RankSample
from trainscale.runs import Run
from trainscale.spec.config import Config

RECORDED = Path(__file__).parents[1] / "report" / "recorded" / "schema-1"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path / "first", two_series()))


def single_row(tmp_path: Path, **changes: object) -> TrialRow:
    (row,) = Run.open(write_run(tmp_path / "run", [make_record(**changes)])).rows  # type: ignore[arg-type]
    return row


# ---- columns


def test_every_field_of_a_config_is_a_column_and_each_has_one_plain_type_a_meaning_and_its_unit() -> None:
    names = {column.name for column in COLUMNS}
    assert {field.name for field in fields(Config)} - names == {"batch"}  # there are two: per device and global
    assert {"batch_per_device", "global_batch"} <= names
    assert {column.kind for column in COLUMNS} == {str, int, float, bool}
    assert all(column.meaning and not column.meaning.endswith(".") for column in COLUMNS)
    for column in COLUMNS:
        if column.name.endswith("_seconds") or column.name == "seconds":
            assert column.unit == "s", column.name
        assert ("_bytes" in column.name) == (column.unit == "bytes"), column.name


# ---- rows


def test_there_is_a_row_for_each_trial_in_the_order_of_the_journal(run: Run) -> None:
    assert [row.trial for row in run.rows] == [record.trial.key for record in run.records]
    assert [row.samples_per_second for row in run.rows[:9]] == [compute_samples_per_second(r) for r in run.records[:9]]
    first = run.rows[0]
    assert (first.run, first.series, first.status) == ("first", "AlexNet · torch · allreduce", "ok")
    assert (first.devices, first.repeat, first.batch_per_device, first.global_batch) == (1, 0, 32, 32)
    assert run.rows[2].global_batch == 128


def test_a_failed_trial_is_a_row_with_its_reason_and_no_speed(run: Run) -> None:
    failed = [row for row in run.rows if row.status != "ok"]
    assert [(row.status, row.devices, row.samples_per_second) for row in failed] == [("oom", 4, None)] * 3
    assert failed[0].reason == "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert failed[0].series == "AlexNet · torch · ps:1"


def test_times_are_those_of_the_slowest_rank_and_memory_is_the_largest_and_the_sum(tmp_path: Path) -> None:
    ranks = [
        RankSample(0, "a", 320, 1.0, (0.1,) * 10, startup_seconds=2.0, first_step_seconds=0.5, host_peak_bytes=100),
        RankSample(1, "b", 320, 2.0, (0.2,) * 10, startup_seconds=3.0, first_step_seconds=0.4, host_peak_bytes=150),
    ]
    row = single_row(tmp_path, devices=2, ranks=ranks, hosts=2)
    assert (row.window_seconds, row.startup_seconds, row.first_step_seconds) == (2.0, 3.0, 0.5)
    assert (row.samples, row.samples_per_second, row.samples_per_second_per_device) == (640, 320.0, 160.0)
    assert row.step_seconds == pytest.approx(0.2)
    assert (row.host_peak_bytes, row.host_peak_bytes_sum, row.device_peak_bytes) == (150, 250, None)


def test_training_to_an_accuracy_has_its_accuracies_and_time(tmp_path: Path) -> None:
    (row,) = Run.open(write_run(tmp_path / "run", [learning_record()])).rows
    assert (row.valid_accuracy, row.train_accuracy) == (0.82, pytest.approx(0.87))
    assert row.training_seconds == pytest.approx(4 * 40 + 2)
    assert row.input_overhead == pytest.approx(0.02)


def test_energy_load_witness_gpus_and_compilation_of_a_trial_are_in_its_row(tmp_path: Path) -> None:
    rank = RankSample(0, "a", 320, 1.0, (0.1,) * 10, energy_joules=64.0, energy_source="rapl")
    load = MachineLoad(other_cores=0.5, cpu_pressure=0.25)
    row = single_row(tmp_path, ranks=[rank], machine=load, witness=WitnessVerdict("proven"))
    assert row.energy_joules_per_sample == pytest.approx(0.2)
    assert (row.other_cores, row.cpu_pressure, row.witness) == (0.5, 0.25, "proven")
    states = [GpuState(9, watts_mean=300.0, celsius_max=60), GpuState(9, watts_mean=310.5, limited_share=0.25)]
    ranks = [
        RankSample(n, "a", 320, 1.0, (0.1,) * 10, gpu=state, compilation=compilation)
        for n, (state, compilation) in enumerate(zip(states, ("warm", "cold"), strict=True))
    ]
    row = single_row(tmp_path / "gpus", devices=2, ranks=ranks)
    assert (row.gpu_watts, row.gpu_celsius_max, row.gpu_limited_share) == (610.5, 60, 0.25)
    assert row.compilation == "cold"


def test_machine_and_versions_come_from_the_run_without_host_names(tmp_path: Path) -> None:
    machine = {"host": "secret-name", "cpu": "A CPU", "cores": 8, "memory GiB": 31.5, "gpus": ["H200", "H200"]}
    info = make_run(machine=machine, trainscale="0.1.0", commit="abc")
    (row,) = Run.open(write_run(tmp_path / "run", [make_record()], info)).rows
    assert (row.cpu, row.cores, row.memory_gib, row.gpus, row.gpu) == ("A CPU", 8, 31.5, 2, "H200")
    assert (row.framework_version, row.versions) == ("2.9.1", "torch 2.9.1, python 3.11.9")
    assert (row.trainscale_version, row.trainscale_commit) == ("0.1.0", "abc")
    assert "secret-name" not in json.dumps(asdict(row))
    several = make_run(machine={"cpu": "the controller's"}, hosts={"localhost": {"cpu": "the host's"}})
    (row,) = Run.open(write_run(tmp_path / "several", [make_record()], several)).rows
    assert row.cpu == "the host's", "that of rank 0"


def test_flags_of_a_point_and_short_trials_of_a_search_are_in_the_rows(tmp_path: Path) -> None:
    full = make_record(make_config())
    short = replace(full, trial=replace(full.trial, short=True))
    rows = Run.open(write_run(tmp_path / "run", [short, full])).rows
    assert [row.short for row in rows] == [True, False]
    assert rows[1].flags == "measured once only, so there is no interval"


def test_a_run_of_the_first_schema_can_be_exported() -> None:
    run = Run.open(RECORDED)
    assert len(run.rows) == len(run.records) > 0
    assert any(row.samples_per_second for row in run.rows)


# ---- formats


def test_csv_has_every_value_and_nothing_where_there_is_none(run: Run) -> None:
    rows = list(csv.DictReader(CsvExporter().text([run]).splitlines()))
    assert [row["trial"] for row in rows] == [row.trial for row in run.rows]
    assert float(rows[0]["samples_per_second"]) == run.rows[0].samples_per_second
    assert (rows[0]["compile"], rows[-1]["samples_per_second"]) == ("false", "")


def test_json_describes_its_columns(run: Run) -> None:
    document = json.loads(JsonExporter().text([run, run]))
    assert [column["name"] for column in document["columns"]] == [column.name for column in COLUMNS]
    assert document["rows"] == [asdict(row) for row in (*run.rows, *run.rows)]


def test_parquet_has_types_units_and_meanings(run: Run, tmp_path: Path) -> None:
    printed = ParquetExporter().export([run], Destination(str(tmp_path / "t.parquet")))
    assert printed == f"{tmp_path}/t.parquet: 18 trials of 1 run\n"
    table = parquet.read_table(tmp_path / "t.parquet")
    field = table.schema.field("step_seconds")
    assert (str(field.type), field.metadata[b"unit"], field.nullable) == ("double", b"s", True)
    assert not table.schema.field("devices").nullable
    assert table.column("devices").to_pylist() == [row.devices for row in run.rows]


def test_all_frames_hold_the_same_values_and_without_rows_all_columns(run: Run) -> None:
    assert to_arrow(()).num_rows == 0
    assert list(to_pandas(()).columns) == to_polars(()).columns == [column.name for column in COLUMNS]
    arrow, polars, pandas = (make(run.rows) for make in (to_arrow, to_polars, to_pandas))
    rows = [asdict(row) for row in run.rows]
    assert arrow.to_pylist() == rows
    assert polars.to_dicts() == rows
    assert [str(kind) for kind in pandas[["run", "devices", "compile", "seconds"]].dtypes] == [
        "string",
        "Int64",
        "boolean",
        "Float64",
    ]
    assert pandas["samples_per_second"].isna().sum() == 3
    assert pandas["samples_per_second"][0] == run.rows[0].samples_per_second
    assert pandas.attrs["units"]["host_peak_bytes"] == "bytes"
