"""``trainscale compare`` as a person types it, on journals that the tests write: verdicts, gates and formats."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command import trainscale
from compared_runs import CONFIG, TITLE, Compare, records, write
from factories import failed_record

from trainscale.questions.compare.compare import NAMES
from trainscale.record.trial import MachineLoad
from trainscale.report.csv_json import render_results_json
from trainscale.runs import Run

# ---- verdicts


@pytest.mark.parametrize(
    ("b", "sentence"),
    [
        ("same", "same within ±0.5\u202f% at 1, 2 and 4 devices"),
        ("slow", "slower: 5\u202f% (4.7–5.3\u202f%) at 1 device; "),
        ("fast", "faster: 5\u202f% (4.7–5.3\u202f%) at 1 device; "),
    ],
)
def test_the_verdict_is_a_sentence_under_a_table(b: str, sentence: str, runs_folder: Path, compare: Compare) -> None:
    text = compare.text("a", b)
    assert sentence in text
    assert f"A  a · {TITLE}" in text
    assert "for all 3 points together (98.33 % for each)" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_the_command_fits_80_columns(runs_folder: Path) -> None:
    done = trainscale(runs_folder, "compare", "a", "slow", "--threshold", "2%", columns=80)
    assert (done.returncode, done.stderr) == (1, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "efficiency B/A" in done.stdout
    assert "…" not in done.stdout


def test_one_repeat_is_not_enough(runs_folder: Path, compare: Compare) -> None:
    write(runs_folder / "once", records(0.5, [1.0]))
    text = " ".join(compare.text("a", "once", code=2).split())
    assert "not enough repeats to tell: fewer than 3 repeats on a side at 1, 2 and 4 devices" in text
    assert "about 3 repeats on each side would decide it" in text


def test_one_repeat_on_both_sides_says_what_would_show_how_many_are_needed(runs_folder: Path, compare: Compare) -> None:
    for name in ("once", "again"):
        write(runs_folder / name, records(1.0, [1.0]))
    text = " ".join(compare.text("once", "again", code=2).split())
    assert "so there is no interval; 3 repeats on each side would show how many decide it" in text


@pytest.mark.parametrize("gate", [("--threshold", "2%"), ("--at-least", "95%"), ("--threshold", "2%", "--strict"), ()])
def test_a_gate_that_could_never_fail_for_want_of_repeats_does_not_pass(
    gate: tuple[str, ...], runs_folder: Path, compare: Compare
) -> None:
    write(runs_folder / "twice", records(1.0, [1.0, 1.0]))
    assert compare.document("a", "twice", *gate, code=2)["exit_code"] == 2


def test_noise_says_how_many_repeats_would_decide(runs_folder: Path, compare: Compare) -> None:
    write(runs_folder / "noisy", records(1.0, [0.97, 1.0, 1.03]))
    text = " ".join(compare.text("a", "noisy").split())
    assert "not enough repeats to tell: at 1 device B/A is 1.000 (" in text
    assert "repeats on each side would decide it" in text


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


def test_a_difference_that_a_busy_machine_may_explain_is_not_claimed(runs_folder: Path, compare: Compare) -> None:
    # One of the machine's 2 cores is free beside one device, which leaves 0.4.
    busy = [replace(record, machine=MachineLoad(other_cores=1.4)) for record in records(0.8)]
    write(runs_folder / "busy", busy)
    text = " ".join(compare.text("a", "busy", "--threshold", "2%").split())
    assert "cannot tell, because the machine was busy: B/A is 0.800" in text
    assert "but other programs used the machine meanwhile" in text
    assert "B: the machine was busy with something else: up to 1.4 cores in 5 of 5 repeats" in text


# ---- gates and their exit codes


@pytest.mark.parametrize(
    ("b", "argv", "code", "sentence"),
    [
        ("same", ["--threshold", "2%"], 0, "pass: no regression beyond 2\u202f% at 1, 2 and 4 devices"),
        ("slow", ["--threshold", "2%"], 1, "regression beyond 2\u202f%: B/A is 0.950 (0.947–0.953) at 1 device"),
        ("slow", ["--threshold", "0.1"], 0, "pass: no regression beyond 10\u202f%"),
        ("slow", ["--threshold", "5%"], 0, "cannot tell whether B has a regression beyond 5\u202f%: undecided at 1, 2"),
        ("slow", ["--threshold", "5%", "--strict"], 3, "cannot tell whether B has a regression beyond 5\u202f%"),
        ("slow", ["--at-least", "90%"], 0, "pass: B has at least 90\u202f% of A at 1, 2 and 4 devices"),
        ("slow", ["--at-least", "0.98"], 1, "fail: below 98\u202f% of A: B/A is 0.950"),
        ("slow", ["--at-least", "95%"], 3, "cannot tell whether B has at least 95\u202f% of A"),
    ],
)
def test_a_gate_decides_the_exit_code(
    b: str, argv: list[str], code: int, sentence: str, runs_folder: Path, compare: Compare
) -> None:
    text = " ".join(compare.text("a", b, *argv, code=code).split())
    assert sentence.replace("\u202f", " ") in text.replace("\u202f", " ")
    values = compare.document("a", b, *argv, code=code)
    assert (values["exit_code"], values["gate"]["sentence"]) == (code, values["gate"]["sentence"])
    assert sentence in values["gate"]["sentence"]


def test_a_point_that_fails_only_in_b_is_a_regression(runs_folder: Path, compare: Compare) -> None:
    good = [record for record in records() if record.trial.devices < 4]
    write(runs_folder / "lost", [*good, failed_record(CONFIG, 4)])
    text = " ".join(compare.text("a", "lost", "--threshold", "2%", code=1).split())
    assert "regression beyond 2 %: B has no result at 4 devices (oom: CUDA out of memory." in text.replace(
        "\u202f", " "
    )
    assert compare.text("a", "lost", "--threshold", "2%", "--devices", "1,2")


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


def test_markdown_is_for_a_pull_request(runs_folder: Path, compare: Compare) -> None:
    text = compare.text("a", "slow", "--threshold", "2%", "--markdown", code=1)
    assert text.startswith("### trainscale compare: slower\n\n**regression beyond 2")
    assert "| devices | A images/s | B images/s | repeats | B/A | interval | gate |" in text
    assert "| 4 | 360.0 | 342.0 | 5, 5 | 0.950 | 0.947–0.953 | FAIL | 1.000 |" in text


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
