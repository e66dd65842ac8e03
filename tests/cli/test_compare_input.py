"""What ``trainscale compare`` accepts as A and B, and what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from compared_runs import CONFIG, SPEEDS, TITLE, Compare, records, write
from factories import failed_record, make_config

from trainscale.record.journal import read_run
from trainscale.record.witness import WitnessVerdict

# ---- what is compared


def test_two_series_of_one_run(runs_folder: Path, compare: Compare) -> None:
    other = make_config(strategy="ps", servers=2)
    write(runs_folder / "both", [*records(), *records(0.9, config=other)])
    for argv in (
        ("both:allreduce", "both:ps:2"),
        ("both", "--series", "allreduce", "--series", "AlexNet · torch · ps:2"),
    ):
        message = compare.refusal(*argv)
        assert "differ in strategy:" in message
        assert "A allreduce  B ps" in message
        assert "slower" in compare.text(*argv, "--despite", "strategy")
    assert "AlexNet · torch · ps:2" in compare.refusal("both")
    assert "A and B have the same series" in compare.refusal("both:ps:2", "both", "--despite", "strategy")


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


def test_runs_in_a_folder_are_sessions_of_one_experiment(runs_folder: Path, compare: Compare) -> None:
    for number, drift in enumerate((0.9, 1.0, 1.1, 1.02, 0.95)):  # the machine drifts, the repeats of a run agree
        for name, factor in (("main", 1.0), ("branch", 0.99)):
            write(runs_folder / name / f"run-{number}", records(drift * factor))
    values = compare.document("main", "branch")
    assert values["verdict"] == "unknown"
    point = values["curves"][0]["points"][0]
    assert (point["a"]["repeats"], point["b"]["repeats"]) == (5, 5)
    assert point["ratio"]["mean"] == pytest.approx(0.99)
    assert values["curves"][0]["a"]["source"] == "main (5 runs)"
    assert compare.document("main/run-0", "branch/run-2")["verdict"] == "faster"  # what single sessions would say
    write(runs_folder / "main" / "run-9", records(config=make_config(batch=64)))
    assert "main/run-9: there is no series" in compare.refusal("main", "branch")
    shutil.rmtree(runs_folder / "main" / "run-9")
    write(runs_folder / "main" / "run-9", records(), machine={"cpu": "Another CPU", "cores": 2, "gpus": []})
    message = compare.refusal("main", "branch")
    assert "main/run-0 and main/run-9 are not sessions of one experiment" in message
    assert "machine (CPU: A CPU and Another CPU)" in message


def test_a_session_that_failed_does_not_fail_the_point(runs_folder: Path, compare: Compare) -> None:
    for number in range(4):
        write(runs_folder / "main" / str(number), records())
        trials = records() if number else [failed_record(CONFIG, devices) for devices in SPEEDS]
        write(runs_folder / "branch" / str(number), trials)
    values = compare.document("main", "branch")
    assert [point["b"]["repeats"] for point in values["curves"][0]["points"]] == [3, 3, 3]


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


def test_what_was_not_meant_to_change_is_refused(runs_folder: Path, compare: Compare) -> None:
    config = make_config(precision="bf16", batch=64)
    trials = [replace(record, versions={"torch": "2.10.0", "python": "3.11.9"}) for record in records(config=config)]
    machine = {"cpu": "Another CPU", "cores": 2, "gpus": []}
    write(runs_folder / "other", trials, machine=machine)
    message = compare.refusal("a", "other")
    assert "differ in batch, precision, versions, machine:" in message
    for line in ("batch  A 32  B 64", "torch      A 2.9.1  B 2.10.0", "CPU        A A CPU  B Another CPU"):
        assert line.replace(" ", "") in message.replace(" ", "")
    assert "--despite batch,precision,versions,machine" in message
    assert "--despite batch,precision,versions,machine" in compare.refusal("a", "other", "--despite", "machine")
    text = compare.text("a", "other", "--despite", "batch,precision,versions,machine")
    assert "A and B differ in torch: 2.9.1 and 2.10.0" in text


def test_work_that_is_not_proven_is_refused(runs_folder: Path, compare: Compare) -> None:
    trials = [replace(record, witness=WitnessVerdict("unproven", "left out")) for record in records()]
    write(runs_folder / "unproven", trials)
    assert "A proven  B unproven" in compare.refusal("a", "unproven")
    assert compare.text("a", "unproven", "--despite", "witness")


# ---- bad input


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["a", "a"], "A and B have the same series of a; valid: two runs, or two series of one run"),
        (["a", "./a/"], "A and B have the same series"),
        (["a"], "one run was given; valid: two runs"),
        (["a", "nowhere"], "nowhere: there is no such run; valid: the directory of a run"),
        (["a", "same", "slow"], "unexpected argument 'slow'"),
        (["a:jax", "same"], f"a: no such series: 'jax'\n  valid: {TITLE}"),
        (["a", "same", "--series", "vgg"], "no such series: 'vgg'"),
        (["a", "same", "--series", "torch", "--series", "torch", "--series", "x"], "--series: given 3 times"),
        (["a", "same", "--threshold", "two"], "--threshold two: this is not a share; valid: such as 2% or 0.02"),
        (["a", "same", "--threshold", "0"], "--threshold 0: valid: more than 0 and less than 100%"),
        (["a", "same", "--threshold", "2"], "--threshold 2: valid: more than 0 and less than 100%"),
        (["a", "same", "--at-least", "0%"], "--at-least 0%: valid: more than 0"),
        (["a", "same", "--threshold", "2%", "--at-least", "95%"], "not allowed with argument"),
        (["a", "same", "--json", "--markdown"], "not allowed with argument"),
        (["a", "same", "--strict"], "--strict: valid together with --threshold or --at-least"),
        (["a", "same", "--devices", "one"], "--devices one: valid: numbers of devices from 1"),
        (["a", "same", "--devices", "8"], "--devices 8: not measured in both; valid: 1, 2, 4"),
        (["a", "same", "--despite", "version"], "--despite: unknown name 'version'; did you mean 'versions'"),
        (["a", "--reference", "fast"], "--reference 'fast': valid: a speed and a number of devices"),
        (["a", "--reference", "0 images/s at 1 device"], "valid: a speed and a number of devices"),
        (["a", "--reference", "10 tokens/s at 1 device"], "the run counts images/s"),
        (["a", "same", "--reference", "10 images/s at 1 device"], "--reference takes the place of A"),
        (["a", "--reference", "10 images/s at 64 devices"], "no device count was measured in both"),
    ],
)
def test_wrong_input_is_one_message(argv: list[str], message: str, runs_folder: Path, compare: Compare) -> None:
    assert message in compare.refusal(*argv)


def test_runs_without_results_are_refused(runs_folder: Path, compare: Compare) -> None:
    write(runs_folder / "empty", [])
    assert "empty: no trial of this run has finished" in compare.refusal("a", "empty")
    write(runs_folder / "failed", [failed_record(CONFIG, devices) for devices in SPEEDS])
    message = compare.refusal("a", "failed", "--despite", "witness,versions")
    assert "no device count has a result in both A and B" in message
    (runs_folder / "nothing").mkdir()
    assert "no run was recorded here" in compare.refusal("a", "nothing")
    (runs_folder / "notes.txt").write_text("bread, milk\n")
    assert "notes.txt: this is not a results.json of trainscale" in compare.refusal("a", "notes.txt")
    (runs_folder / "list.json").write_text('{"schema": 1, "run": {"spec": {}}, "series": [{"title": "x"}]}')
    assert "list.json: this is not a results.json of trainscale" in compare.refusal("a", "list.json")
    (runs_folder / "none.json").write_text('{"schema": 1, "run": {"spec": {}}, "series": []}')
    assert "none.json: there is no series in it" in compare.refusal("a", "none.json")


def test_journals_of_a_newer_schema_are_refused(runs_folder: Path, compare: Compare) -> None:
    shutil.copytree(runs_folder / "same", runs_folder / "newer")
    run = read_run(runs_folder / "newer")
    (runs_folder / "newer" / "run.json").write_text(json.dumps({**asdict(run), "schema": 99}))
    assert "written by a newer trainscale (schema 99" in compare.refusal("a", "newer")


def test_a_journal_of_the_first_schema_is_compared(runs_folder: Path, compare: Compare) -> None:
    shutil.copytree(runs_folder / "same", runs_folder / "older")
    lines = (runs_folder / "older" / "trials.jsonl").read_text().splitlines()
    changed = [{**json.loads(line), "schema": 1} for line in lines]
    for values in changed:
        values["ranks"] = [{**rank, "images": rank.pop("samples")} for rank in values["ranks"]]
    (runs_folder / "older" / "trials.jsonl").write_text("".join(json.dumps(values) + "\n" for values in changed))
    assert compare.document("a", "older")["verdict"] == "same"
