"""The tables of training to an accuracy: the seeds' rows and columns, in a terminal, as Markdown and in the page."""

import re
from pathlib import Path

import pytest
from factories import failed_record, learning_config, learning_record, make_config, make_run, record_at
from reported import print_to_text, write_outputs
from rich.cells import cell_len

from trainscale.analyse.logs import EpochRow
from trainscale.analyse.series import build_series
from trainscale.cli.parse_log import TSV, render_epoch_table
from trainscale.record.trial import TrialRecord
from trainscale.report.documents import Grid, split_grid
from trainscale.report.run_tables import (
    make_datasets_grid,
    make_device_grids,
    make_epoch_grids,
    make_machines_grid,
    make_system_grids,
)
from trainscale.runs import Run

GPUS = learning_config(device="cuda", batch=32, epochs=2)
DATA = {"name": "cifar10", "classes": 10, "channels": 3, "image_size": 32, "train": 50_000, "valid": 10_000}
MACHINE = {"host": "node1", "cpu": "Xeon", "cores": 32, "memory GiB": 488.0, "gpus": ["K80"] * 2, "gpu driver": "367"}
RUN = make_run(machine={**MACHINE, "system": "Linux 4.4"}, frameworks={"torch": {"torch": "2.9.1"}}, data=DATA)


def ladder(*counts: int) -> list[TrialRecord]:
    return [learning_record(GPUS, devices, valid=(0.5, 0.67), seconds=160.0 / devices) for devices in counts]


def test_the_table_by_device_count_has_the_rows_and_columns_of_keras_mxnets_profile() -> None:
    (grid,) = make_device_grids(build_series(ladder(1, 2)))
    assert grid.header == ("", "GPU (1)", "GPU (2)")
    assert [row[0] for row in grid.rows] == [
        "Training time (secs)",
        "Average time per epoch (secs)",
        "Images processed per sec",
        "Training accuracy",
        "Test accuracy",
        "Maximum Memory Consumption",
    ]
    assert [row[1] for row in grid.rows] == ["322.00", "160.00", "2.00", "0.7200", "0.6700", "600"]
    assert [row[2] for row in grid.rows] == ["162.00", "80.00", "8.00", "0.7200", "0.6700", "1200"]


def test_what_is_counted_differently_is_said_once() -> None:
    series = build_series([*ladder(1), learning_record(learning_config(framework="jax"))])
    first, last = make_device_grids(series)
    assert "counts training images only; Keras-MXNet's profile also counted the validation images" in last.note
    assert "Keras-MXNet" not in first.note
    assert "MiB of all workers together, by the kernel's count" in first.note


def test_a_device_count_that_failed_is_a_column_of_dashes_with_its_reason() -> None:
    (grid,) = make_device_grids(build_series([*ladder(1), failed_record(GPUS, 2)]))
    assert {row[2] for row in grid.rows} == {"–"}
    assert "GPU (2): out of memory" in grid.note


def test_time_to_accuracy_is_a_row_where_there_is_a_target() -> None:
    series = build_series([*ladder(1), learning_record(GPUS, 2, valid=(0.4, 0.5))], accuracy=0.6)
    assert make_device_grids(series)[0].rows[-1] == ("Time to accuracy 0.6 (secs)", "322.00", "not reached")
    note_of_one, note_of_two = (grid.note for grid in make_epoch_grids(series))
    assert "Time to accuracy 0.6: 5.37\u202fmin of training, 2 epochs" in note_of_one
    assert "An accuracy of 0.6 was not reached" in note_of_two


def test_the_table_by_epoch_has_mxnets_digits() -> None:
    (grid,) = make_epoch_grids(build_series(ladder(1)))
    assert grid.to_markdown().splitlines()[:4] == [
        "| epoch | train accuracy | valid accuracy | time |",
        "| ---: | ---: | ---: | ---: |",
        "| 1 | 0.550000 | 0.500000 | 160.0 |",
        "| 2 | 0.720000 | 0.670000 | 160.0 |",
    ]


@pytest.mark.parametrize(("epochs", "shown"), [(12, list(range(1, 13))), (40, [5, 10, 15, 20, 25, 30, 35, 40])])
def test_a_long_training_is_thinned_out_for_a_terminal(epochs: int, shown: list[int]) -> None:
    (grid,) = make_epoch_grids(build_series([learning_record(valid=[0.5] * epochs)]), most=12)
    assert [int(row[0]) for row in grid.rows] == shown


def test_the_system_table_has_the_columns_of_mxnets() -> None:
    local = learning_config(device="cuda", batch=256, strategy="local", epochs=2)
    (grid,) = make_system_grids(
        Run.from_records(RUN, [learning_record(local, seconds=71.0, valid=(0.1, 0.2)), *ladder(2)])
    )
    assert grid.title == "Inception-BN 28 small on cifar10 with torch"
    assert grid.header == ("cluster", "# machines", "# GPUs", "batch size / device", "strategy", "epoch time (sec)")
    assert grid.rows == (("node1", "1", "1", "256", "local", "71.0"), ("node1", "1", "2", "32", "allreduce", "80.0"))


def test_machines_and_data_sets_come_from_provenance() -> None:
    assert make_machines_grid(RUN).rows == (
        ("node1", "2 × K80, Xeon, 32 cores, 488.0 GiB", "Linux 4.4, driver 367, torch 2.9.1"),
    )
    grid = make_datasets_grid(RUN, build_series(ladder(1)))
    assert grid is not None
    assert grid.header == ("name", "class", "image size", "training", "testing")
    assert grid.rows == (("cifar10", "10", "28 × 28 × 3", "50,000", "10,000"),)
    assert make_datasets_grid(make_run(), []) is None


def test_hosts_that_are_alike_share_a_row() -> None:
    hosts = {f"n{number}": MACHINE for number in range(1, 5)}
    grid = make_machines_grid(make_run(hosts={**hosts, "odd": {**MACHINE, "gpus": []}}))
    assert [row[0] for row in grid.rows] == ["n1 … n4 (4 hosts)", "odd"]


def test_provenance_that_says_nothing_breaks_nothing() -> None:
    assert make_machines_grid(make_run(machine=None)).rows[0][:2] == ("this machine", "–")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_table_is_wider_than_the_terminal(width: int) -> None:
    run = Run.from_records(RUN, ladder(1, 2, 4, 8, 16, 32, 64, 128))
    for grid in (*make_device_grids(run.series), make_machines_grid(RUN), *make_system_grids(run)):
        assert max(cell_len(line) for line in print_to_text(grid, width).splitlines()) <= width


def test_a_table_that_is_too_wide_is_cut_into_pieces_that_keep_its_first_column() -> None:
    grid = Grid("t", ("", *map(str, range(9))), (("name", *"abcdefghi"),))
    pieces = list(split_grid(grid, 20))
    assert len(pieces) > 1
    assert all(piece.header[0] == "" for piece in pieces)
    assert [cell for piece in pieces for cell in piece.rows[0][1:]] == list("abcdefghi")


def test_markup_and_bars_in_names_stay_text() -> None:
    grid = Grid("t", ("a", "b"), (("[red]x[/red]", "1|2<script>"),))
    assert "[red]x[/red]" in print_to_text(grid, 60)
    assert grid.to_markdown().splitlines()[2] == "| [red]x[/red] | 1\\|2&lt;script> |"


def test_report_md_has_every_table_of_a_training(tmp_path: Path) -> None:
    write_outputs(tmp_path, RUN, ladder(1, 2))
    text = (tmp_path / "report.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Every point", "System performance", "By device count", "Every epoch", "Machines", "Data sets"]
    assert "| Test accuracy | 0.6700 | 0.6700 |" in text
    assert "| 2 | 0.720000 | 0.670000 | 80.0 |" in text
    assert "0.6700 of validation images right after 2 epochs on 2 devices" in text


def test_report_md_of_a_run_that_measures_speed_has_its_scaling_tables(tmp_path: Path) -> None:
    config = make_config()
    write_outputs(tmp_path, make_run(), [record_at(40.0), record_at(76.0, config, 2), failed_record(config, 4)])
    text = (tmp_path / "report.md").read_text().replace("\u202f", " ")
    assert "| devices | batch/device | global batch | images/s cluster |" in text
    assert "\nAlexNet on 2 devices loses 5 %: " in text, "the verdict of explain, as in report.html"
    assert "| 2 | 32 | 64 | 76.00 |" in text
    assert re.search(r"\| 4 \| 32 \| 128 \| – .*\| out of memory: CUDA out of memory.* \|", text)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Every point", "Machines"]
    assert not (tmp_path / "accuracy.svg").exists()


# ---- tables of training logs, as MXNet's parse_log prints them

EPOCHS = [
    EpochRow(1, {"accuracy": 0.5}, {"accuracy": 0.4012345}, 10.66, 59.6125),
    EpochRow(2, {"accuracy": 0.75}, {}, None, None),
]


def test_tab_separated_leaves_a_missing_value_empty() -> None:
    assert render_epoch_table(EPOCHS, TSV) == (
        "epoch\ttrain accuracy\tvalid accuracy\ttime\tsamples/sec\n"
        "1\t0.500000\t0.401234\t10.7\t59.61\n"
        "2\t0.750000\t\t\t\n"
    )


def test_each_metric_has_columns_of_its_own_in_the_order_seen() -> None:
    row = EpochRow(3, {"accuracy": 0.5, "top_k_accuracy_5": 0.9}, {"accuracy": 0.25, "a|b": 1.0})
    assert render_epoch_table([row]).splitlines()[0] == (
        r"| epoch | train accuracy | train top_k_accuracy_5 | valid accuracy | valid a\|b |"
    )
