"""A finished run in Python: series, points, trials, frames, charts, and how it shows itself."""

from dataclasses import replace
from pathlib import Path

import pytest
from factories import curve, learning_record, make_run
from stored_runs import ALLREDUCE, SERVERS, two_series, write_run

import trainscale as ts
from trainscale.analyse.series import build_series
from trainscale.record.journal import open_journal


@pytest.fixture
def run(tmp_path: Path) -> ts.Run:
    return ts.load(write_run(tmp_path / "first", two_series()))


def test_a_run_has_its_series_points_and_trials(run: ts.Run) -> None:
    assert [series.title for series in run.series] == ["AlexNet · torch · allreduce", "AlexNet · torch · ps:1"]
    assert [(point.series, point.devices) for point in run.points] == [
        (series.title, devices) for series in run.series for devices in (1, 2, 4)
    ]
    assert len(run.trials) == len(run.to_pandas()) == run.to_polars().height == run.to_arrow().num_rows == 18
    assert run.series[0].headline.startswith("4 devices give 3.00×")
    assert run.series[0].config["framework"] == "torch"
    failed = run.points[-1]
    assert (failed.ok, failed.status, failed.samples_per_second) == (False, "oom", None)
    assert failed.reason == "CUDA out of memory. Tried to allocate 2.00 GiB"


def test_the_statistics_are_those_of_the_analysis(run: ts.Run) -> None:
    analysed = [point for series in build_series(two_series()) for point in series.points]
    for point, expected in zip(run.points, analysed, strict=True):
        assert (point.samples_per_second, point.efficiency) == (expected.samples_per_second, expected.efficiency)
        assert (point.step_seconds, point.host_peak_bytes) == (expected.step_seconds, expected.host_peak_bytes)


def test_intervals_of_a_run_with_a_budget_are_wider(tmp_path: Path) -> None:
    records = curve(ALLREDUCE, {1: 100}, 3, 0.01)
    info = make_run()
    info.spec["budget"] = 60.0
    relative = [
        ts.load(write_run(tmp_path / name, records, given)).points[0].samples_per_second.relative  # type: ignore[union-attr]
        for name, given in (("plain", None), ("budget", info))
    ]
    assert relative[1] > 1.4 * relative[0]  # type: ignore[operator]


@pytest.mark.parametrize("quantity", ["speedup", "throughput", "efficiency"])
def test_charts_are_valid_objects_of_altair(quantity: str, run: ts.Run) -> None:
    for chart in (run.chart(quantity), run.series[0].chart(quantity)):
        assert chart.to_dict()["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


def test_an_unknown_chart_and_one_of_accuracies_that_were_not_trained_for_are_refused(
    run: ts.Run, tmp_path: Path
) -> None:
    learnt = ts.load(write_run(tmp_path / "learnt", [learning_record()]))
    assert [point.valid_accuracy for point in learnt.points] == [ts.Interval(0.82)]
    assert learnt.chart("accuracy").to_dict()["$schema"]
    with pytest.raises(ts.InputError, match="nothing was trained to an accuracy"):
        run.chart("accuracy")
    with pytest.raises(ts.InputError, match="unknown chart 'sped'"):
        run.chart("sped")


def test_a_run_shows_itself_with_a_table_for_each_series(run: ts.Run) -> None:
    shown = run._repr_markdown_()
    assert shown.count("\n| devices |") == 2
    for text in ("How does the training of AlexNet scale?", "AlexNet · torch · ps:1", "out of memory", "300.0"):
        assert text in shown
    assert run.series[1]._repr_markdown_() in shown


def test_names_of_users_are_escaped(tmp_path: Path) -> None:
    from factories import make_config, make_record

    run = ts.load(write_run(tmp_path / "run", [make_record(make_config(model="my:<b>net</b>"))]))
    assert "<b>net" not in run._repr_markdown_()
    assert "&lt;b>net" in run._repr_markdown_()


def test_what_is_no_run_and_what_has_no_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ts.InputError, match="no run was recorded here"):
        ts.load(tmp_path)
    open_journal(tmp_path / "begun", make_run()).close()
    with pytest.raises(ts.InputError, match="no trial of this run has finished"):
        ts.load(tmp_path / "begun")


def test_series_have_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    """A framework that is missing is recorded first."""
    series = [{**config.to_dict(), "ladder": [1, 2, 4]} for config in (ALLREDUCE, SERVERS)]
    info = replace(make_run(), spec={**make_run().spec, "series": series})
    run = ts.load(write_run(tmp_path / "first", two_series()[::-1], info))
    assert [series.config.strategy for series in run.series] == ["allreduce", "ps"]


def test_a_damaged_line_is_a_warning_and_the_others_are_loaded(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", two_series()) / "trials.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join(["damaged\n", *rest]))
    with pytest.warns(UserWarning, match=r"trials\.jsonl:1: this line is damaged"):
        run = ts.load(tmp_path / "run")
    assert len(run.trials) == len(rest)
    path.write_text(first)
    assert len(ts.load(tmp_path / "run").trials) == 1
