"""Tables of epochs, as MXNet's parse_log prints them."""

from __future__ import annotations

from trainscale.analyse.logs import EpochRow, make_epoch_rows
from trainscale.record.trial import Epoch
from trainscale.report.log_tables import TSV, render_epoch_table

ROWS = [
    EpochRow(1, {"accuracy": 0.5}, {"accuracy": 0.4012345}, 10.66, 59.6125),
    EpochRow(2, {"accuracy": 0.75}, {}, None, None),
]


def test_markdown_has_the_seeds_header_and_digits() -> None:
    assert render_epoch_table(ROWS, columns=("train", "valid", "time")) == (
        "| epoch | train accuracy | valid accuracy | time |\n"
        "| --- | --- | --- | --- |\n"
        "| 1 | 0.500000 | 0.401234 | 10.7 |\n"
        "| 2 | 0.750000 | – | – |\n"
    )


def test_tab_separated_leaves_a_missing_value_empty() -> None:
    assert render_epoch_table(ROWS, TSV) == (
        "epoch\ttrain accuracy\tvalid accuracy\ttime\tsamples/sec\n"
        "1\t0.500000\t0.401234\t10.7\t59.61\n"
        "2\t0.750000\t\t\t\n"
    )


def test_a_column_without_any_value_is_left_out() -> None:
    assert render_epoch_table(ROWS[1:], TSV) == "epoch\ttrain accuracy\n2\t0.750000\n"


def test_each_metric_has_columns_of_its_own_in_the_order_seen() -> None:
    row = EpochRow(3, {"accuracy": 0.5, "top_k_accuracy_5": 0.9}, {"accuracy": 0.25, "a|b": 1.0})
    assert render_epoch_table([row]).splitlines()[0] == (
        r"| epoch | train accuracy | train top_k_accuracy_5 | valid accuracy | valid a\|b |"
    )


def test_an_epoch_of_the_journal_is_a_row() -> None:
    epoch = Epoch(1, 2.0, 100, 0.5, 0.9, 0.6, 0.8, 103)
    assert render_epoch_table(make_epoch_rows([epoch]), TSV).splitlines()[1] == "1\t0.900000\t0.800000\t2.0\t50.00"
