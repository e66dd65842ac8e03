"""``trainscale compare`` as a person types it, on journals that the tests write."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from command import trainscale
from factories import failed_record, make_config, make_run, record_at

from trainscale import cli
from trainscale.analyse.comparison.differences import NAMES
from trainscale.analyse.series import build_series
from trainscale.record.journal import open_journal, read_run, read_trials
from trainscale.record.trial import MachineLoad, TrialRecord
from trainscale.record.witness import PROVEN, WitnessVerdict
from trainscale.report.json_file import results_json
from trainscale.spec.config import Config

NEAR = (0.998, 0.999, 1.0, 1.001, 1.002)
SPEEDS = {1: 100.0, 2: 190.0, 4: 360.0}
CONFIG = make_config()
TITLE = "AlexNet · torch · allreduce"


def records(
    factor: float = 1.0, values: Sequence[float] = NEAR, config: Config = CONFIG, speeds: Mapping[int, float] = SPEEDS
) -> list[TrialRecord]:
    return [
        record_at(speed * factor * value, config, devices, repeat, witness=WitnessVerdict(PROVEN))
        for repeat, value in enumerate(values)
        for devices, speed in speeds.items()
    ]


def write(directory: Path, trials: Sequence[TrialRecord], spec: Mapping[str, Any] | None = None, **facts: Any) -> Path:
    run = make_run(**facts)
    run = replace(run, spec={"warmup": 2, "steps": 3, **(spec or {})})
    with open_journal(directory, run) as journal:
        for trial in trials:
            journal.append(trial)
    return directory


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    write(tmp_path / "a", records())
    write(tmp_path / "same", records(1.001))
    write(tmp_path / "slow", records(0.95))
    write(tmp_path / "fast", records(1.05))
    return tmp_path


class Compare:
    """``trainscale compare`` in this process, which has imported what takes long."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *argv: str, code: int = 0) -> str:
        """Return what the command prints."""
        assert cli.main(["compare", *argv]) == code
        printed = self._capsys.readouterr()
        assert printed.err == ""
        return printed.out

    def document(self, *argv: str, code: int = 0) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.text(*argv, "--json", code=code))
        return values

    def refusal(self, *argv: str) -> str:
        """Return the message of a command line that cannot be used."""
        assert cli.main(["compare", *argv]) == 2
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return printed.err.removeprefix("trainscale: ")


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Compare:
    return Compare(capsys)


# ---- verdicts


@pytest.mark.parametrize(
    ("b", "sentence"),
    [
        ("same", "same within ±0.5\u202f% at 1, 2 and 4 devices"),
        ("slow", "slower: 5\u202f% (4.7–5.3\u202f%) at 1 device; "),
        ("fast", "faster: 5\u202f% (4.7–5.3\u202f%) at 1 device; "),
    ],
)
def test_the_verdict_is_a_sentence_under_a_table(b: str, sentence: str, folder: Path, compare: Compare) -> None:
    text = compare.text("a", b)
    assert sentence in text
    assert f"A  a · {TITLE}" in text
    assert "for all 3 points together (98.33 % for each)" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_the_command_fits_80_columns(folder: Path) -> None:
    done = trainscale(folder, "compare", "a", "slow", "--threshold", "2%", columns=80)
    assert (done.returncode, done.stderr) == (1, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "efficiency B/A" in done.stdout
    assert "…" not in done.stdout


def test_one_repeat_is_not_enough(folder: Path, compare: Compare) -> None:
    write(folder / "once", records(0.5, [1.0]))
    text = " ".join(compare.text("a", "once").split())
    assert "not enough repeats to tell: fewer than 3 repeats on a side at 1, 2 and 4 devices" in text
    assert "about 3 repeats on each side would decide it" in text


def test_noise_says_how_many_repeats_would_decide(folder: Path, compare: Compare) -> None:
    write(folder / "noisy", records(1.0, [0.97, 1.0, 1.03]))
    text = " ".join(compare.text("a", "noisy").split())
    assert "not enough repeats to tell: at 1 device B/A is 1.000 (" in text
    assert "repeats on each side would decide it" in text


def test_a_run_by_budget_has_wider_intervals(folder: Path, compare: Compare) -> None:
    write(folder / "budget", records(), {"budget": 60})
    plain, sequential = (compare.document("a", b) for b in ("same", "budget"))
    highs = [values["curves"][0]["points"][0]["ratio"]["high"] for values in (plain, sequential)]
    assert highs[1] > highs[0]
    assert "the results of budget decided how often" in " ".join(sequential["notes"])


def test_notes_say_what_else_a_difference_may_be(folder: Path, compare: Compare) -> None:
    assert compare.document("a", "same")["notes"] == []
    assert "a drift of the machine between the two runs" in compare.document("a", "slow")["notes"][0]
    busy = [replace(record, machine=MachineLoad(other_cores=0.9)) for record in records()]
    write(folder / "busy", busy)
    assert compare.document("a", "busy")["notes"] == [
        "B: the machine was busy with something else: up to 0.9 cores in 5 of 5 repeats"
    ]


def test_a_difference_that_a_busy_machine_may_explain_is_not_claimed(folder: Path, compare: Compare) -> None:
    busy = [replace(record, machine=MachineLoad(other_cores=0.4)) for record in records(0.8)]
    write(folder / "busy", busy)
    text = " ".join(compare.text("a", "busy", "--threshold", "2%").split())
    assert "cannot tell, because the machine was busy: B/A is 0.800" in text
    assert "but other programs used the machine meanwhile" in text
    assert "B: the machine was busy with something else: up to 0.4 cores in 5 of 5 repeats" in text


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
    b: str, argv: list[str], code: int, sentence: str, folder: Path, compare: Compare
) -> None:
    text = " ".join(compare.text("a", b, *argv, code=code).split())
    assert sentence.replace("\u202f", " ") in text.replace("\u202f", " ")
    values = compare.document("a", b, *argv, code=code)
    assert (values["exit_code"], values["gate"]["sentence"]) == (code, values["gate"]["sentence"])
    assert sentence in values["gate"]["sentence"]


def test_a_point_that_fails_only_in_b_is_a_regression(folder: Path, compare: Compare) -> None:
    good = [record for record in records() if record.trial.devices < 4]
    write(folder / "lost", [*good, failed_record(CONFIG, 4)])
    text = " ".join(compare.text("a", "lost", "--threshold", "2%", code=1).split())
    assert "regression beyond 2 %: B has no result at 4 devices (oom: CUDA out of memory." in text.replace(
        "\u202f", " "
    )
    assert compare.text("a", "lost", "--threshold", "2%", "--devices", "1,2")


def test_a_number_is_a_reference(folder: Path, compare: Compare) -> None:
    numbers = ["--reference", "365 images/s at 4 devices", "--reference", "1,00.5 images/s at 1 device"]
    text = compare.text("a", *numbers, "--at-least", "95%")
    assert "pass: B has at least 95\u202f% of A at 1 and 4 devices" in text
    assert "A is a number" in text
    assert "fail" in compare.text("a", "--reference", "400 images/s at 4 devices", "--at-least", "95%", code=1)


def test_results_json_serves_as_a_run(folder: Path, compare: Compare) -> None:
    series = build_series(read_trials(folder / "a"))
    (folder / "main.json").write_text(results_json(read_run(folder / "a"), series))
    from_file, from_journal = (compare.document(a, "slow") for a in ("main.json", "a"))
    for values in (from_file, from_journal):
        values["curves"][0].pop("a")
    assert from_file["curves"][0]["points"][2]["ratio"] == pytest.approx(
        from_journal["curves"][0]["points"][2]["ratio"]
    )
    assert from_file["verdict"] == from_journal["verdict"] == "slower"


# ---- formats


def test_markdown_is_for_a_pull_request(folder: Path, compare: Compare) -> None:
    text = compare.text("a", "slow", "--threshold", "2%", "--markdown", code=1)
    assert text.startswith("### trainscale compare: slower\n\n**regression beyond 2")
    assert "| devices | A images/s | B images/s | repeats | B/A | interval | gate |" in text
    assert "| 4 | 360.0 | 342.0 | 5, 5 | 0.950 | 0.947–0.953 | FAIL | 1.000 |" in text


def test_json_is_typed_and_complete(folder: Path, compare: Compare) -> None:
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


# ---- what is compared


def test_two_series_of_one_run(folder: Path, compare: Compare) -> None:
    other = make_config(strategy="ps", servers=2)
    write(folder / "both", [*records(), *records(0.9, config=other)])
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


def test_runs_with_several_series_are_compared_series_by_series(folder: Path, compare: Compare) -> None:
    other = make_config(model="vgg16")
    for name, factor in (("two", 1.0), ("new", 0.9)):
        write(folder / name, [*records(), *records(factor, config=other)])
    values = compare.document("two", "new")
    assert [curve["verdict"] for curve in values["curves"]] == ["same", "slower"]
    assert values["verdict"] == "slower"
    assert values["confidence_per_point"] == pytest.approx(1 - 0.05 / 6)
    assert "all curves: slower" in compare.text("two", "new")
    assert compare.document("two", "new", "--series", "alexnet")["verdict"] == "same"


def test_runs_in_a_folder_are_sessions_of_one_experiment(folder: Path, compare: Compare) -> None:
    for number, drift in enumerate((0.9, 1.0, 1.1, 1.02, 0.95)):  # the machine drifts, the repeats of a run agree
        for name, factor in (("main", 1.0), ("branch", 0.99)):
            write(folder / name / f"run-{number}", records(drift * factor))
    values = compare.document("main", "branch")
    assert values["verdict"] == "unknown"
    point = values["curves"][0]["points"][0]
    assert (point["a"]["repeats"], point["b"]["repeats"]) == (5, 5)
    assert point["ratio"]["mean"] == pytest.approx(0.99)
    assert values["curves"][0]["a"]["source"] == "main (5 runs)"
    assert compare.document("main/run-0", "branch/run-2")["verdict"] == "faster"  # what single sessions would say
    write(folder / "main" / "run-9", records(config=make_config(batch=64)))
    assert "main/run-9: there is no series" in compare.refusal("main", "branch")
    shutil.rmtree(folder / "main" / "run-9")
    write(folder / "main" / "run-9", records(), machine={"cpu": "Another CPU", "cores": 2, "gpus": []})
    message = compare.refusal("main", "branch")
    assert "main/run-0 and main/run-9 are not sessions of one experiment" in message
    assert "machine (CPU: A CPU and Another CPU)" in message


def test_a_session_that_failed_does_not_fail_the_point(folder: Path, compare: Compare) -> None:
    for number in range(4):
        write(folder / "main" / str(number), records())
        trials = records() if number else [failed_record(CONFIG, devices) for devices in SPEEDS]
        write(folder / "branch" / str(number), trials)
    values = compare.document("main", "branch")
    assert [point["b"]["repeats"] for point in values["curves"][0]["points"]] == [3, 3, 3]


def test_trials_with_other_windows_are_not_compared(folder: Path, compare: Compare) -> None:
    independent = make_config(strategy="independent")
    short = [replace(record, trial=replace(record.trial, short=True)) for record in records(0.5)]
    for name in ("explained", "again"):
        trials = [*records(), *records(0.5 if name == "again" else 1.0, config=independent)]
        write(folder / name, trials, {"series": [CONFIG.to_dict()]})
        write(folder / f"asked-{name}", trials, {"series": [CONFIG.to_dict(), independent.to_dict()]})
    assert [curve["verdict"] for curve in compare.document("explained", "again")["curves"]] == ["same"]
    values = compare.document("asked-explained", "asked-again")
    assert [curve["verdict"] for curve in values["curves"]] == ["same", "slower"]
    write(folder / "search", short)
    assert "no trial of this run has finished" in compare.refusal("a", "search")


def test_what_was_not_meant_to_change_is_refused(folder: Path, compare: Compare) -> None:
    config = make_config(precision="bf16", batch=64)
    trials = [replace(record, versions={"torch": "2.10.0", "python": "3.11.9"}) for record in records(config=config)]
    machine = {"cpu": "Another CPU", "cores": 2, "gpus": []}
    write(folder / "other", trials, machine=machine)
    message = compare.refusal("a", "other")
    assert "differ in batch, precision, versions, machine:" in message
    for line in ("batch  A 32  B 64", "torch      A 2.9.1  B 2.10.0", "CPU        A A CPU  B Another CPU"):
        assert line.replace(" ", "") in message.replace(" ", "")
    assert "--despite batch,precision,versions,machine" in message
    assert "--despite batch,precision,versions,machine" in compare.refusal("a", "other", "--despite", "machine")
    text = compare.text("a", "other", "--despite", "batch,precision,versions,machine")
    assert "A and B differ in torch: 2.9.1 and 2.10.0" in text


def test_work_that_is_not_proven_is_refused(folder: Path, compare: Compare) -> None:
    trials = [replace(record, witness=WitnessVerdict("unproven", "left out")) for record in records()]
    write(folder / "unproven", trials)
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
        (["a", "same", "slow"], "do not know what to do with 'slow'"),
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
def test_wrong_input_is_one_message(argv: list[str], message: str, folder: Path, compare: Compare) -> None:
    assert message in compare.refusal(*argv)


def test_runs_without_results_are_refused(folder: Path, compare: Compare) -> None:
    write(folder / "empty", [])
    assert "empty: no trial of this run has finished" in compare.refusal("a", "empty")
    write(folder / "failed", [failed_record(CONFIG, devices) for devices in SPEEDS])
    message = compare.refusal("a", "failed", "--despite", "witness,versions")
    assert "no device count has a result in both A and B" in message
    (folder / "nothing").mkdir()
    assert "no run was recorded here" in compare.refusal("a", "nothing")
    (folder / "notes.txt").write_text("bread, milk\n")
    assert "notes.txt: this is not a results.json of trainscale" in compare.refusal("a", "notes.txt")
    (folder / "list.json").write_text('{"schema": 1, "run": {"spec": {}}, "series": [{"title": "x"}]}')
    assert "list.json: this is not a results.json of trainscale" in compare.refusal("a", "list.json")
    (folder / "none.json").write_text('{"schema": 1, "run": {"spec": {}}, "series": []}')
    assert "none.json: there is no series in it" in compare.refusal("a", "none.json")


def test_journals_of_a_newer_schema_are_refused(folder: Path, compare: Compare) -> None:
    shutil.copytree(folder / "same", folder / "newer")
    run = read_run(folder / "newer")
    (folder / "newer" / "run.json").write_text(json.dumps({**asdict(run), "schema": 99}))
    assert "written by a newer trainscale (schema 99" in compare.refusal("a", "newer")


def test_a_journal_of_the_first_schema_is_compared(folder: Path, compare: Compare) -> None:
    shutil.copytree(folder / "same", folder / "older")
    lines = (folder / "older" / "trials.jsonl").read_text().splitlines()
    changed = [{**json.loads(line), "schema": 1} for line in lines]
    for values in changed:
        values["ranks"] = [{**rank, "images": rank.pop("samples")} for rank in values["ranks"]]
    (folder / "older" / "trials.jsonl").write_text("".join(json.dumps(values) + "\n" for values in changed))
    assert compare.document("a", "older")["verdict"] == "same"


# ---- documentation


def test_the_page_describes_every_name_and_every_field(folder: Path, compare: Compare) -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    coded = set(re.findall(r"`([^`\n]+)`", page))
    assert set(NAMES) <= coded
    values = compare.document("a", "slow", "--threshold", "2%", code=1)
    (curve,) = values["curves"]
    point, fields = curve["points"][1], {*values, *values["gate"], *curve, *curve["a"]}
    assert {*fields, *point, *point["a"], *point["ratio"]} <= coded
