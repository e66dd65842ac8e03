"""Numbers are written for people; the terminal tables fit the terminal and hide nothing that matters."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from factories import curve, make_config, mxnet_records
from reported import print_to_text
from rich.cells import cell_len

from trainscale.analyse.series import build_series
from trainscale.analyse.statistics import Interval
from trainscale.record.trial import TrialRecord
from trainscale.report import numbers
from trainscale.report.documents import SeriesTables


def shown(records: list[TrialRecord], width: int) -> str:
    return print_to_text(SeriesTables(build_series(records)), width)


MIXED = [
    *curve(make_config(strategy="local"), {1: 39.1}, repeats=3, spread=0.01),
    *curve(make_config(), {1: 38.2, 2: 60.4, 4: None}, repeats=3, spread=0.01),
]


ON_HOSTS = [replace(r, hosts=r.trial.devices) for r in curve(make_config(strategy="ps", servers=1), {1: 50.0, 2: 90.0})]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = shown([*MIXED, *ON_HOSTS, *mxnet_records()], width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_the_numbers_that_matter_are_there_at_every_width(width: int) -> None:
    text = shown(MIXED, width)
    for part in ("AlexNet · torch · allreduce", "60.40", "±2 %", "1.58×", "79 ± 2 %", "step", "status", "global"):
        assert part in text, part


def test_a_wide_terminal_shows_more() -> None:
    extras = ("per device", "jitter", "memory", "local")
    assert all(word in shown(MIXED, 120) for word in extras)
    assert "jitter" not in shown(MIXED, 80)


def test_a_failed_row_says_why() -> None:
    (line,) = [line for line in shown(MIXED, 80).splitlines() if "✗" in line]
    assert line.split()[:3] == ["4", "32", "128"]
    assert "out of memory: CUDA out of" in line
    assert line.endswith("…")


def test_flags_stand_under_the_table_once() -> None:
    text = shown(mxnet_records(), 120)
    assert text.count("all points: measured once only") == 3


def test_columns_align_over_all_series() -> None:
    heads = {line for line in shown(mxnet_records(), 100).splitlines() if "speed-up" in line}
    assert len(heads) == 1


def test_names_are_not_markup_and_what_is_missing_is_said() -> None:
    assert "[red]net[/red]" in shown(curve(make_config(model="[red]net[/red]"), {1: 1.0}), 80)
    assert shown([], 80).strip() == "Nothing was measured."
    assert shown(curve(make_config(), {1: None, 2: None}), 80).count("✗ out of memory") == 2


# ---- numbers: few digits, grouped, with their units


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (
            numbers.format_number,  # never rounds whole digits off
            {30.4: "30.40", 457.07: "457.1", 61938.36: "61,938", 0.001234567: "0.001235", 0.0: "0.000", math.nan: "–"},
        ),
        (numbers.format_times, {Interval(3.878): "3.88×", Interval(203.68): "203.7×"}),
        (
            numbers.format_efficiency,  # as many digits as its error is worth
            {
                Interval(0.79, 0.76, 0.82): "79 ± 3 %",
                Interval(0.973, 0.969, 0.977): "97.3 ± 0.4 %",
                Interval(0.79): "79 %",
            },
        ),
        (numbers.format_size, {900: "900 B", 629145600: "600 MiB", 5 * 1024**4: "5.00 TiB"}),
        (numbers.format_milliseconds, {0.01234: "12.3"}),
        (numbers.format_integer, {61938: "61,938"}),
    ],
)
def test_a_number_has_the_digits_that_it_is_worth(write: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {value: write(value).replace(numbers.THIN, " ") for value in texts} == texts
    assert write(None) == numbers.MISSING, "a dash, not a zero"


def test_plus_minus_is_relative_and_nothing_without_an_interval() -> None:
    assert numbers.format_plus_minus(Interval(200.0, 199.0, 201.0)).replace(numbers.THIN, " ") == "±0.5 %"
    assert numbers.format_plus_minus(Interval(200.0, 180.0, 220.0)).replace(numbers.THIN, " ") == "±10 %"
    assert numbers.format_limits(Interval(3.9, 3.8, 4.0)) == "3.80–4.00"
    for write in (numbers.format_plus_minus, numbers.format_limits):
        assert write(None) == write(Interval(3.0)) == ""
