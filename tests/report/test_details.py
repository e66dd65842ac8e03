"""The further sections of the page: best configurations, memory, costs, failures, and the limits for large runs."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import pytest
from factories import curve, failed_record, make_config, make_run, record_at
from reported import details_of, reported

from trainscale.analyse.series import build_series
from trainscale.analyse.throughput import Price
from trainscale.record.trial import TrialRecord
from trainscale.report.charts import draw_memory
from trainscale.report.details import MOST_FAILURES, MOST_SERIES, choose_charted, make_cost_grid, make_failure_grid
from trainscale.report.html import render_report_html
from trainscale.runs import Run


def with_energy(record: TrialRecord, joules: float) -> TrialRecord:
    return replace(
        record, ranks=tuple(replace(rank, energy_joules=joules, energy_source="nvml") for rank in record.ranks)
    )


def test_the_best_configuration_is_named_where_there_is_a_choice() -> None:
    rivals = [
        *curve(make_config(), {1: 40.0, 2: 70.0}, repeats=3, spread=0.01),
        *curve(make_config(framework="jax"), {1: 50.0, 2: 60.0}, repeats=3, spread=0.01),
    ]
    (table,) = details_of(rivals).best
    assert table.grid is not None
    assert [row[:2] for row in table.grid.rows] == [("1", "jax · allreduce"), ("2", "torch · allreduce")]
    assert any("more than noise" in sentence for sentence in table.sentences)
    assert details_of(curve(make_config(), {1: 40.0, 2: 70.0})).best == []


def test_memory_is_that_of_the_device_where_there_is_one() -> None:
    config = make_config(device="cuda")
    record = record_at(100.0, config)
    record = replace(record, ranks=tuple(replace(rank, device_peak_bytes=3 * 2**30) for rank in record.ranks))
    spec = draw_memory(build_series([record]))
    alt.LayerChart.validate(spec)
    assert {row["value"] for rows in spec["datasets"].values() for row in rows if "value" in row} == {3.0}
    assert spec["layer"][-1]["encoding"]["y"]["title"] == "Peak GPU memory of a rank, GiB"
    on_cpu = draw_memory(build_series([record_at(100.0)]))
    assert {row["Peak"] for rows in on_cpu["datasets"].values() for row in rows if "Peak" in row} == {"600\u202fMiB"}


def test_energy_is_shown_where_every_rank_recorded_it() -> None:
    config = make_config(device="cuda")
    good = [with_energy(record_at(96.0, config, 1, repeat), 360.0) for repeat in range(3)]
    half = with_energy(record_at(180.0, config, 2), 100.0)
    half = replace(half, ranks=(half.ranks[0], replace(half.ranks[1], energy_joules=None)))
    grid = make_cost_grid([Run.from_records(make_run(), [*good, half])], None)
    assert grid is not None
    assert grid.header == ("series", "devices", "images/s", "Wh/million", "±", "mean watts")
    # 3 steps of 32 images took 1 s and 360 J, which is 3.75 J for an image.
    (row,) = grid.rows
    assert (row[1], row[3], row[5]) == ("1", "1,042", "360")


def test_a_price_gives_every_point_a_cost_and_without_either_there_is_no_table() -> None:
    records = curve(make_config(), {1: 100.0, 2: 160.0})
    grid = details_of(records, Price(3.6, "device")).costs
    assert grid is not None
    assert [row[3] for row in grid.rows] == ["10.0", "12.5"]
    assert "no trial recorded it" in grid.note
    assert details_of(records).costs is None


def test_failures_of_the_same_reason_share_a_row() -> None:
    config = make_config()
    records = [
        record_at(10.0, config),
        *(failed_record(config, devices, repeat) for devices in (2, 4) for repeat in (0, 1)),
        failed_record(config, 8, kind="hang", message="rank 3 was silent for 60 s"),
    ]
    grid = make_failure_grid(build_series(records))
    assert grid is not None
    assert [row[1:] for row in grid.rows] == [
        ("2, 4", "4", "out of memory", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("8", "1", "hung", "rank 3 was silent for 60 s"),
    ]
    assert make_failure_grid(build_series([record_at(10.0)])) is None


def test_the_table_of_failures_is_bounded() -> None:
    counts = range(1, MOST_FAILURES + 51)
    records = [failed_record(make_config(), devices, message=f"reason {devices}") for devices in counts]
    grid = make_failure_grid(build_series(records))
    assert grid is not None
    assert len(grid.rows) == MOST_FAILURES
    assert grid.note.startswith("50 more")


def test_of_many_series_the_fastest_are_drawn_and_all_are_in_the_tables() -> None:
    records = [record for n in range(1, 41) for record in curve(make_config(batch=n), {1: 10.0 * n, 2: 19.0 * n})]
    runs = [Run.from_records(make_run(), records)]
    assert [series.config.batch for series in choose_charted(runs)] == list(range(17, 41))
    page = render_report_html(runs, details=details_of(records))
    assert page.count('<section class="series">') == 40
    assert page.count('<li class="card"') == MOST_SERIES
    assert "show the 24 fastest series. 16 more are in the tables below" in page


@pytest.fixture(scope="module")
def page_without_details() -> str:
    return render_report_html(reported(make_run(), build_series(curve(make_config(), {1: 40.0}))))


@pytest.fixture(scope="module")
def page_with_details() -> str:
    records = curve(make_config(), {1: 40.0, 2: 70.0, 4: None})
    return render_report_html(reported(make_run(), build_series(records)), details=details_of(records))


@pytest.mark.parametrize("heading", ["Where the time went", "Step times by rank", "What failed and why"])
def test_a_section_without_content_has_no_heading(
    heading: str, page_without_details: str, page_with_details: str
) -> None:
    assert f"<h2>{heading}" not in page_without_details
    assert f"<h2>{heading}" in page_with_details


def test_the_command_and_the_versions_are_there() -> None:
    run = make_run(frameworks={"torch": {"torch": "2.9.1", "cuda": "13.0"}}, trainscale="0.1.0", commit="abc123")
    records = curve(make_config(), {1: 40.0})
    page = render_report_html(reported(run, build_series(records)), details=details_of(records))
    assert "<code>trainscale run --models alexnet:32</code>" in page
    assert "torch 2.9.1, cuda 13.0" in page
    assert "0.1.0, commit abc123" in page
