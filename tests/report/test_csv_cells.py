"""A cell of a CSV file is never a formula."""

from __future__ import annotations

import pytest

from trainscale.report.csv_cells import make_csv_cell
from trainscale.report.grid import escape


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_text_that_a_spreadsheet_would_compute_is_marked_as_text(text: str) -> None:
    assert make_csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["resnet50", "node-1", "-1.5", "+2e3", -1.5, 0, True])
def test_everything_else_stays_as_it_is(value: object) -> None:
    assert make_csv_cell(value) is value


def test_a_missing_value_is_an_empty_cell() -> None:
    assert make_csv_cell(None) == ""


def test_text_in_markdown_is_neither_markup_nor_a_link_nor_an_image() -> None:
    shown = escape("<img src=x> ![pixel](http://tracker.invalid/a.png)\n[here](javascript:alert(1))")
    assert "<" not in shown
    assert "](" not in shown
    assert "\n" not in shown
