"""``trainscale compare`` as a person types it, on journals that the tests write: verdicts, gates and formats."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command import trainscale
from compared_runs import TITLE, Compare, records, write

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


# ---- gates and their exit codes


def test_results_json_serves_as_a_run(runs_folder: Path, compare: Compare) -> None:
    (runs_folder / "main.json").write_text(render_results_json([Run(runs_folder / "a")]))
    from_file, from_journal = (compare.document(a, "slow") for a in ("main.json", "a"))
    for values in (from_file, from_journal):
        values["curves"][0].pop("a")
    assert from_file["curves"][0]["points"][2]["ratio"] == pytest.approx(
        from_journal["curves"][0]["points"][2]["ratio"]
    )
    assert from_file["verdict"] == from_journal["verdict"] == "slower"


# ---- formats


def test_json_is_typed_and_complete(runs_folder: Path, compare: Compare) -> None:
    values = compare.document("a", "slow")
    assert {name: values[name] for name in ("schema", "verdict", "margin", "confidence", "gate", "exit_code")} == {
        "schema": 1,
        "verdict": "slower",
        "margin": 0.02,
        "confidence": 0.95,
        "gate": None,
        "exit_code": 0,
    }
    (curve,) = values["curves"]
    assert (curve["a"]["source"], curve["b"]["title"], curve["unit"]) == ("a", TITLE, "images")
    point = curve["points"][2]
    assert (point["devices"], point["verdict"], point["a"]["repeats"]) == (4, "slower", 5)
    assert point["b"]["per_second"] == pytest.approx(342.0)
    assert point["ratio"]["low"] < point["ratio"]["mean"] == pytest.approx(0.95)


# ---- documentation


def test_the_page_describes_every_name_and_every_field(runs_folder: Path, compare: Compare) -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    coded = set(re.findall(r"`([^`\n]+)`", page))
    assert set(NAMES) <= coded
    values = compare.document("a", "slow", "--threshold", "2%", code=1)
    (curve,) = values["curves"]
    point, fields = curve["points"][1], {*values, *values["gate"], *curve, *curve["a"]}
    assert {*fields, *point, *point["a"], *point["ratio"]} <= coded
