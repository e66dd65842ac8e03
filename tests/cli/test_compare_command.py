"""``trainscale compare`` as a person types it, on journals that the tests write: verdicts, gates and formats."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command import trainscale
from compared_runs import CONFIG, Compare, records, write
from factories import make_config

from trainscale.questions.compare.compare import NAMES
from trainscale.record.trial import MachineLoad
from trainscale.report.csv_json import render_results_json
from trainscale.runs import Run

# ---- verdicts


def test_the_command_fits_80_columns(runs_folder: Path) -> None:
    done = trainscale(runs_folder, "compare", "a", "slow", "--threshold", "2%", columns=80)
    assert (done.returncode, done.stderr) == (1, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "efficiency B/A" in done.stdout
    assert "…" not in done.stdout


def test_a_run_by_budget_has_wider_intervals(runs_folder: Path, compare: Compare) -> None:
    write(runs_folder / "budget", records(), {"budget": 60})
    plain, sequential = (compare.document("a", b) for b in ("same", "budget"))
    highs = [values["curves"][0]["points"][0]["ratio"]["high"] for values in (plain, sequential)]
    assert highs[1] > highs[0]
    assert "the results of budget decided how often" in " ".join(sequential["notes"])


def test_notes_say_what_else_a_difference_may_be(runs_folder: Path, compare: Compare) -> None:
    assert compare.document("a", "same")["notes"] == []
    assert "a drift of the machine between the two runs" in compare.document("a", "slow")["notes"][0]
    busy = [replace(record, machine=MachineLoad(other_cores=0.9)) for record in records()]
    write(runs_folder / "busy", busy)
    assert compare.document("a", "busy")["notes"] == [
        "B: the machine was busy with something else: up to 0.9 cores in 5 of 5 repeats"
    ]


def test_results_json_serves_as_a_run(runs_folder: Path, compare: Compare) -> None:
    (runs_folder / "main.json").write_text(render_results_json([Run(runs_folder / "a")]))
    from_file, from_journal = (compare.document(a, "slow") for a in ("main.json", "a"))
    for values in (from_file, from_journal):
        values["curves"][0].pop("a")
    assert from_file["curves"][0]["points"][2]["ratio"] == pytest.approx(
        from_journal["curves"][0]["points"][2]["ratio"]
    )
    assert from_file["verdict"] == from_journal["verdict"] == "slower"


# ---- what is compared


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


# ---- documentation


def test_the_page_describes_every_name_and_every_field(runs_folder: Path, compare: Compare) -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    coded = set(re.findall(r"`([^`\n]+)`", page))
    assert set(NAMES) <= coded
    values = compare.document("a", "slow", "--threshold", "2%", code=1)
    (curve,) = values["curves"]
    point, fields = curve["points"][1], {*values, *values["gate"], *curve, *curve["a"]}
    assert {*fields, *point, *point["a"], *point["ratio"]} <= coded
