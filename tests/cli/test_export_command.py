"""``trainscale export`` as a command: standard output, files, and what is refused."""

import csv
from pathlib import Path

import pytest
from command import trainscale
from pyarrow import parquet
from stored_runs import two_series, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        write_run(tmp_path / "runs" / name, two_series())
    return tmp_path


def test_the_table_of_several_runs_goes_to_standard_output(folder: Path) -> None:
    done = trainscale(folder, "export", "runs/first", "runs/second", "--to", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["run"] for row in rows] == ["first"] * 18 + ["second"] * 18


def test_a_file_is_written_and_named(folder: Path) -> None:
    done = trainscale(folder, "export", "runs/first", "runs/second", "--to", "parquet", "-o", "new/all.parquet")
    assert done.stdout == "new/all.parquet: 36 trials of 2 runs\n", done.stderr
    assert parquet.read_table(folder / "new/all.parquet").num_rows == 36
