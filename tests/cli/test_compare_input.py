"""What ``trainscale compare`` accepts as A and B, and what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import CONFIG, Compare, records, write
from factories import make_config

from trainscale.report.csv_json import render_results_json
from trainscale.runs import Run

# ---- what is compared


def test_runs_with_several_series_are_compared_series_by_series(runs_folder: Path, compare: Compare) -> None:
    other = make_config(model="vgg16")
    for name, factor in (("two", 1.0), ("new", 0.9)):
        write(runs_folder / name, [*records(), *records(factor, config=other)])
    values = compare.document("two", "new")
    assert [curve["verdict"] for curve in values["curves"]] == ["same", "slower"]
    assert values["verdict"] == "slower"
    assert values["confidence_per_point"] == pytest.approx(1 - 0.05 / 6)
    assert "all curves: slower" in compare.text("two", "new")
    assert compare.document("two", "new", "--series", "alexnet")["verdict"] == "same"


@pytest.mark.parametrize(
    ("speed", "is_refused"),
    [
        ({"mean": 100.0, "low": 99.0, "high": 101.0}, False),
        ({"mean": 100.0, "low": -500.0, "high": 700.0}, False),  # three repeats that differ by much
        ({"mean": 100.0, "low": -1e300, "high": 1e300}, True),
        ({"mean": 100.0, "low": 101.0, "high": 102.0}, True),
        ({"mean": 0.0, "low": None, "high": None}, True),
        ({"mean": -5.0, "low": None, "high": None}, True),
        ({"mean": 1e300, "low": None, "high": None}, True),
    ],
)
def test_an_absurd_interval_in_results_json_is_refused(
    speed: dict[str, float | None], is_refused: bool, runs_folder: Path, compare: Compare
) -> None:
    values = json.loads(render_results_json([Run(runs_folder / "a")]))
    values["series"][0]["points"][0]["images_per_second_cluster"] = speed
    (runs_folder / "changed.json").write_text(json.dumps(values))
    if is_refused:
        assert "1 devices: " in (message := compare.refusal("changed.json", "same"))
        assert "is not the interval of a speed" in message
    else:
        assert compare.document("changed.json", "same", code=0)


def test_trials_with_other_windows_are_not_compared(runs_folder: Path, compare: Compare) -> None:
    independent = make_config(strategy="independent")
    short = [replace(record, trial=replace(record.trial, short=True)) for record in records(0.5)]
    for name in ("explained", "again"):
        trials = [*records(), *records(0.5 if name == "again" else 1.0, config=independent)]
        write(runs_folder / name, trials, {"series": [CONFIG.to_dict()]})
        write(runs_folder / f"asked-{name}", trials, {"series": [CONFIG.to_dict(), independent.to_dict()]})
    assert [curve["verdict"] for curve in compare.document("explained", "again")["curves"]] == ["same"]
    values = compare.document("asked-explained", "asked-again")
    assert [curve["verdict"] for curve in values["curves"]] == ["same", "slower"]
    write(runs_folder / "search", short)
    assert "no trial of this run has finished" in compare.refusal("a", "search")


def test_a_journal_of_the_first_schema_is_compared(runs_folder: Path, compare: Compare) -> None:
    shutil.copytree(runs_folder / "same", runs_folder / "older")
    lines = (runs_folder / "older" / "trials.jsonl").read_text().splitlines()
    changed = [{**json.loads(line), "schema": 1} for line in lines]
    for values in changed:
        values["ranks"] = [{**rank, "images": rank.pop("samples")} for rank in values["ranks"]]
    (runs_folder / "older" / "trials.jsonl").write_text("".join(json.dumps(values) + "\n" for values in changed))
    assert compare.document("a", "older")["verdict"] == "same"
