"""Where the time went: bars that add up to the step, with the causes that the explanation names."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import altair as alt
import pytest
from factories import curve, make_config
from planted import run, small_config
from reported import details_of

from trainscale.questions.explain.explain import explain_records
from trainscale.report.details import MOST_BARS, choose_bars, draw_time_parts, make_time_grid
from trainscale.report.drawing import Frame, to_svg

CONFIG = small_config()
SEPARATED = run(CONFIG, work=0.06, apart=0.07, step=0.1)


def test_the_bars_of_a_point_follow_each_other_from_0_to_100() -> None:
    spec = draw_time_parts(explain_records(SEPARATED), Frame())
    alt.LayerChart.validate(spec)
    rows = spec["datasets"][spec["layer"][0]["data"]["name"]]
    assert [row["cause"] for row in rows] == ["work", "contention", "stragglers", "communication"]
    assert rows[0]["from"] == 0
    assert all(left["to"] == right["from"] for left, right in pairwise(rows))
    assert rows[-1]["to"] == pytest.approx(100)
    assert rows[0]["to"] == pytest.approx(60, abs=0.3)


def test_every_part_is_described_and_has_a_colour_of_its_own() -> None:
    spec = draw_time_parts(explain_records(SEPARATED), Frame())
    svg = to_svg(spec, standalone=True)
    assert "communication: 30" in svg
    scale = spec["layer"][0]["encoding"]["color"]["scale"]
    assert len(set(scale["range"])) == len(scale["domain"]) == 4


def test_causes_that_are_not_separated_have_one_bar_and_the_command_that_separates_them() -> None:
    details = details_of(curve(make_config(), {1: 100.0, 2: 150.0}, repeats=3, spread=0.01))
    assert details.time_grid is not None
    (row,) = [row for row in details.time_grid.rows if "together" in row[2]]
    assert row[2] == "contention, stragglers and communication together"
    assert details.commands == [("", "trainscale run --models alexnet:32 --explain")]
    assert details_of(SEPARATED).commands == []


def test_the_table_has_whole_per_cents_that_add_up() -> None:
    rows = make_time_grid(explain_records(SEPARATED)).rows
    assert sum(int(row[3].split("\u202f")[0]) for row in rows) == 100
    assert all(row[4] for row in rows), "five repeats give intervals"


def test_too_many_points_leave_the_largest_of_each_series() -> None:
    (point,) = explain_records(SEPARATED)
    points = [replace(point, title=f"s{n % 30}", devices=2 + n // 30) for n in range(90)]
    chosen = choose_bars(points)
    assert len(chosen) == MOST_BARS
    assert {point.devices for point in chosen} == {4}
    assert choose_bars(points[:MOST_BARS]) == points[:MOST_BARS]
