"""The sections of the page: findings, best configurations, costs, failures, parts of a step, strips of step times."""

from dataclasses import replace

import altair as alt
import pytest
from factories import curve, failed_record, learning_record, make_config, make_rank, make_record, make_run, record_at
from planted import run, small_config
from reported import details_of, render_page
from stored_runs import with_energy

from trainscale.analyse.series import build_series
from trainscale.analyse.throughput import Price
from trainscale.questions.explain.explain import explain_records
from trainscale.record.trial import TrialRecord
from trainscale.report.charts import draw_memory
from trainscale.report.details import (
    MOST_BARS,
    MOST_DOUBTS,
    MOST_FAILURES,
    MOST_RANKS,
    MOST_SERIES,
    MOST_TICKS,
    Finding,
    choose_bars,
    choose_charted,
    choose_trials,
    draw_strips,
    draw_time_parts,
    make_cost_grid,
    make_failure_grid,
    thin_out,
)
from trainscale.report.drawing import Frame, VegaSpec, to_svg
from trainscale.report.redaction import Redaction
from trainscale.runs import Run


def test_the_best_configuration_is_named_where_there_is_a_choice() -> None:
    rivals = [
        *curve(make_config(), {1: 40.0, 2: 70.0}, repeats=3, spread=0.01),
        *curve(make_config(framework="jax"), {1: 50.0, 2: 60.0}, repeats=3, spread=0.01),
    ]
    (table,) = details_of(rivals).best
    assert table.grid is not None
    assert [row[:2] for row in table.grid.rows] == [("1", "jax · allreduce"), ("2", "torch · allreduce")]
    assert any("more than noise" in sentence for sentence in table.paragraphs)
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


def test_failures_of_the_same_reason_share_a_row_and_the_table_is_bounded() -> None:
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
    counts = range(1, MOST_FAILURES + 51)
    grid = make_failure_grid(build_series([failed_record(config, n, message=f"reason {n}") for n in counts]))
    assert grid is not None
    assert (len(grid.rows), grid.note[:7]) == (MOST_FAILURES, "50 more")


def test_of_many_series_the_fastest_are_drawn_and_all_are_in_the_tables() -> None:
    records = [record for n in range(1, 41) for record in curve(make_config(batch=n), {1: 10.0 * n, 2: 19.0 * n})]
    runs = [Run.from_records(make_run(), records)]
    assert [series.config.batch for series in choose_charted(runs)] == list(range(17, 41))
    page = render_page(make_run(), runs[0].series, details=details_of(records))
    assert page.count('<section class="series">') == 40
    assert page.count('<li class="card"') == MOST_SERIES
    assert "show the 24 fastest series. 16 more are in the tables below" in page


def test_a_section_without_content_has_no_heading() -> None:
    few, many = curve(make_config(), {1: 40.0}), curve(make_config(), {1: 40.0, 2: 70.0, 4: None})
    without = render_page(make_run(), build_series(few))
    page = render_page(make_run(), build_series(many), details=details_of(many))
    for heading in ("Where the time went", "Step times by rank", "What failed and why"):
        assert f"<h2>{heading}" not in without
        assert f"<h2>{heading}" in page


def test_the_command_and_the_versions_are_there() -> None:
    run = make_run(frameworks={"torch": {"torch": "2.9.1", "cuda": "13.0"}}, trainscale="0.1.0", commit="abc123")
    records = curve(make_config(), {1: 40.0})
    page = render_page(run, build_series(records), details=details_of(records))
    assert "<code>trainscale run --models alexnet:32</code>" in page
    assert "torch 2.9.1, cuda 13.0" in page
    assert "0.1.0, commit abc123" in page


# ---- the first screen: what was reached, where the efficiency went, and whether the numbers can be trusted

SEPARATED = run(small_config(), work=0.06, apart=0.07, step=0.1)


def findings(records: list[TrialRecord], redaction: Redaction | None = None) -> list[Finding]:
    return list(details_of(records, redaction=redaction).findings)


def test_the_result_comes_first_and_then_the_verdict_of_explain() -> None:
    (finding,) = findings(curve(make_config(), {1: 100.0, 2: 150.0}, 3, 0.01))
    result = "2 devices are 1.50 times as fast as 1 device: 150.0 images/s, 75 ± 2 % efficiency."
    assert finding.result.replace("\u202f", " ") == result
    assert finding.verdict.startswith("AlexNet on 2 devices loses 25")
    (separated,) = findings(SEPARATED)
    assert "on 2 devices loses 40" in separated.verdict
    assert "is the exchange of" in separated.verdict


def test_of_several_series_the_finding_names_its_own_once() -> None:
    records = [*curve(make_config(), {1: 100.0, 2: 150.0}, 3, 0.01), *curve(make_config(batch=64), {1: 100.0}, 3, 0.01)]
    (finding,) = findings(records)
    assert finding.subject == "AlexNet · torch · allreduce · batch 32"
    assert finding.verdict.startswith("AlexNet on 2 devices loses 25")
    (alone,) = findings(curve(make_config(), {1: 100.0, 2: 150.0}, 3, 0.01))
    assert alone.subject == "", "the title of the page names the only series"


def test_flags_of_the_series_are_on_the_first_screen_and_many_are_counted() -> None:
    (finding,) = findings(curve(make_config(), {1: 100.0, 2: 150.0}, repeats=3, spread=0.2))
    assert (len(finding.doubts), finding.further_doubts) == (2, 0)
    assert finding.doubts[0].startswith("2 devices: repeats differ")
    (many,) = findings(curve(make_config(), {n: 100.0 * n for n in (1, 2, 4, 8)}, repeats=3, spread=0.2))
    assert (len(many.doubts), many.further_doubts) == (MOST_DOUBTS, 2)
    assert many.doubts[0].startswith("8 devices")
    (quiet,) = findings(SEPARATED)
    assert quiet.doubts == ()


def test_a_slow_rank_is_named_without_its_host() -> None:
    records = [
        replace(record, ranks=tuple(replace(rank, host="node7") for rank in record.ranks))
        for record in run(small_config(), work=0.05, apart=(0.05, 0.1), step=0.105)
    ]
    assert "rank 1 on node7" in findings(records)[0].verdict
    assert "rank 1 on host-1" in findings(records, Redaction([["node7"]]))[0].verdict


def test_without_anything_to_explain_the_finding_is_what_was_reached() -> None:
    (alone,) = findings(curve(make_config(), {1: 40.0}))
    assert (alone.result, alone.verdict) == ("1 device trains 40.00 images/s.", "")
    (slower,) = findings(curve(make_config(), {1: 100.0, 2: 50.0}, 3, 0.01))
    assert slower.result.startswith("2 devices are slower than 1 device, 0.50 times as fast: ")
    (learnt,) = findings([learning_record(devices=1, seconds=40.0)])
    assert "of validation images right after" in learnt.result.split(";")[0]
    assert learnt.verdict == ""
    (failed,) = findings(curve(make_config(), {1: None}))
    assert failed.result == "No trial gave a result."
    assert findings([]) == []


# ---- where the time went: bars that add up to the step, with the causes that the explanation names


def test_the_bars_of_a_point_follow_each_other_from_0_to_100_each_in_its_colour() -> None:
    spec = draw_time_parts(explain_records(SEPARATED), Frame())
    alt.LayerChart.validate(spec)
    rows = spec["datasets"][spec["layer"][0]["data"]["name"]]
    assert [row["cause"] for row in rows] == ["work", "contention", "stragglers", "communication"]
    ends = [0, *(row["to"] for row in rows)]
    assert [row["from"] for row in rows] == ends[:-1]
    assert (ends[1], ends[-1]) == (pytest.approx(60, abs=0.3), pytest.approx(100))
    assert "communication: 30" in to_svg(spec, standalone=True)
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
    grid = details_of(SEPARATED).time_grid
    assert grid is not None
    assert sum(int(row[3].split("\u202f")[0]) for row in grid.rows) == 100
    assert all(row[4] for row in grid.rows), "five repeats give intervals"


def test_too_many_points_leave_the_largest_of_each_series() -> None:
    (point,) = explain_records(SEPARATED)
    points = [replace(point, title=f"s{n % 30}", devices=2 + n // 30) for n in range(90)]
    chosen = choose_bars(points)
    assert len(chosen) == MOST_BARS
    assert {point.devices for point in chosen} == {4}
    assert choose_bars(points[:MOST_BARS]) == points[:MOST_BARS]


# ---- strips of step times: stragglers and outliers stay visible, and the size is bounded


def trial(ranks: int, steps: int, slow: int = -1) -> TrialRecord:
    samples = [make_rank(n, [0.2 if n == slow else 0.1] * steps, 32, host=f"h{n % 2}") for n in range(ranks)]
    return make_record(make_config(), ranks, ranks=samples)


def strips(record: TrialRecord) -> VegaSpec:
    return draw_strips("AlexNet", record, Redaction(), Frame())


def draw_medians(record: TrialRecord) -> dict[str, float]:
    spec = strips(record)
    return {row["rank"]: row["ms"] for row in spec["datasets"][spec["layer"][1]["data"]["name"]]}


@pytest.mark.parametrize(("count", "most"), [(3, 12), (12, 12), (13, 12), (1000, 12), (1000, 480)])
def test_thinning_keeps_the_ends_and_the_slowest(count: int, most: int) -> None:
    seconds = [0.1] * count
    seconds[count // 3] = 0.5
    kept = thin_out(seconds, most)
    assert len(kept) <= most
    assert (count // 3 + 1, 0.5) in kept
    assert (kept[0][0], kept[-1][0]) == (1, count)
    assert [step for step, _ in kept] == sorted({step for step, _ in kept})


def test_the_number_of_marks_is_bounded_whatever_the_trial() -> None:
    for ranks, steps in ((1, 100_000), (64, 2000)):
        spec = strips(trial(ranks, steps))
        alt.LayerChart.validate(spec)
        ticks, medians = (spec["datasets"][layer["data"]["name"]] for layer in spec["layer"])
        assert len(ticks) <= MOST_TICKS
        assert len(medians) <= MOST_RANKS


def test_a_straggler_is_a_strip_to_the_right_and_always_drawn() -> None:
    medians = draw_medians(trial(200, 20, slow=77))
    assert len(medians) == MOST_RANKS
    assert "77 · h1" in medians
    medians = draw_medians(trial(4, 10, slow=2))
    assert (medians["2 · h0"], medians["1 · h1"]) == (pytest.approx(200), pytest.approx(100))


def test_the_repeat_of_median_speed_of_the_largest_points_is_drawn() -> None:
    records = curve(make_config(), {1: 100.0, 2: 190.0}, repeats=3, spread=0.1)
    ((_, chosen),) = choose_trials(build_series(records), records)
    assert (chosen.trial.devices, chosen.trial.repeat) == (2, 1)
    records = [record for n in range(1, 8) for record in curve(make_config(batch=n), {n: 100.0 * n})]
    assert [record.trial.devices for _, record in choose_trials(build_series(records), records)] == [7, 6, 5, 4]
    failed = curve(make_config(), {1: None, 2: None})
    assert choose_trials(build_series(failed), failed) == []


def test_drift_is_seen_by_the_part_of_the_window() -> None:
    steps = [0.1] * 4 + [0.15] * 4 + [0.2] * 4
    record = make_record(make_config(), 1, ranks=[make_rank(0, steps, 32)])
    spec = strips(record)
    times: dict[str, set[float]] = {}
    for row in spec["datasets"][spec["layer"][0]["data"]["name"]]:
        times.setdefault(row["when"], set()).add(row["ms"])
    assert times == {"first third of the window": {100.0}, "middle third": {150.0}, "last third": {200.0}}
