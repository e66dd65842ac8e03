"""Strips of step times: stragglers and outliers stay visible, and the size is bounded."""

from __future__ import annotations

import altair as alt
import pytest
from factories import curve, make_config, make_rank, make_record

from trainscale.analyse.series import build_series
from trainscale.record.trial import TrialRecord
from trainscale.report.details import (
    MOST_RANKS,
    MOST_STRIPS,
    MOST_TICKS,
    choose_ranks,
    choose_trials,
    draw_strips,
    thin_out,
)
from trainscale.report.drawing import Frame, VegaSpec
from trainscale.report.redaction import Redaction

CONFIG = make_config()


def trial(ranks: int, steps: int, slow: int = -1) -> TrialRecord:
    samples = [make_rank(n, [0.2 if n == slow else 0.1] * steps, 32, host=f"h{n % 2}") for n in range(ranks)]
    return make_record(CONFIG, ranks, ranks=samples)


def strips(record: TrialRecord) -> VegaSpec:
    return draw_strips("AlexNet", record, Redaction(), Frame())


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


def test_of_many_ranks_the_slowest_is_always_drawn() -> None:
    ranks = choose_ranks(trial(200, 20, slow=77))
    assert len(ranks) == MOST_RANKS
    assert 77 in [rank.rank for rank in ranks]


def test_a_straggler_is_a_strip_to_the_right() -> None:
    spec = strips(trial(4, 10, slow=2))
    medians = {row["rank"]: row["ms"] for row in spec["datasets"][spec["layer"][1]["data"]["name"]]}
    assert medians["2 · h0"] == pytest.approx(200)
    assert medians["1 · h1"] == pytest.approx(100)


def test_the_repeat_of_median_speed_of_the_largest_point_is_drawn() -> None:
    records = curve(CONFIG, {1: 100.0, 2: 190.0}, repeats=3, spread=0.1)
    ((_, chosen),) = choose_trials(build_series(records), records)
    assert (chosen.trial.devices, chosen.trial.repeat) == (2, 1)


def test_a_page_has_few_of_them_those_of_most_devices_first() -> None:
    records = [record for n in range(1, 8) for record in curve(make_config(batch=n), {n: 100.0 * n})]
    chosen = choose_trials(build_series(records), records)
    assert [record.trial.devices for _, record in chosen] == [7, 6, 5, 4]
    assert len(chosen) == MOST_STRIPS


def test_a_trial_that_failed_has_no_strips() -> None:
    records = curve(CONFIG, {1: None, 2: None})
    assert choose_trials(build_series(records), records) == []


def test_drift_is_seen_by_the_part_of_the_window() -> None:
    steps = [0.1] * 4 + [0.15] * 4 + [0.2] * 4
    record = make_record(CONFIG, 1, ranks=[make_rank(0, steps, 32)])
    spec = strips(record)
    times: dict[str, set[float]] = {}
    for row in spec["datasets"][spec["layer"][0]["data"]["name"]]:
        times.setdefault(row["when"], set()).add(row["ms"])
    assert times == {"first third of the window": {100.0}, "middle third": {150.0}, "last third": {200.0}}
