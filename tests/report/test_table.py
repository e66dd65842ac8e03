"""The terminal tables fit the terminal and hide nothing that matters."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from factories import curve, make_config, mxnet_records
from rich.cells import cell_len
from rich.console import Console

from trainscale.analyse.series import build_series
from trainscale.record.trial import TrialRecord
from trainscale.report.table import make_series_table


def shown(records: list[TrialRecord], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)
    console.print(make_series_table(build_series(records)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace("\u202f", " ")


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


def test_markup_in_a_name_is_not_markup() -> None:
    assert "[red]net[/red]" in shown(curve(make_config(model="[red]net[/red]"), {1: 1.0}), 80)


def test_no_series_is_said_in_words() -> None:
    assert shown([], 80).strip() == "Nothing was measured."


def test_a_series_of_failures_only_is_a_table_of_reasons() -> None:
    text = shown(curve(make_config(), {1: None, 2: None}), 80)
    assert text.count("✗ out of memory") == 2
