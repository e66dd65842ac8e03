"""``trainscale watch``: a run that goes on elsewhere, as lines, on a terminal, as events, and over ssh."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest
from command import call
from watched_runs import begin, records

from lab import Lab
from trainscale.measure import watching
from trainscale.record.journal import Journal
from trainscale.record.trial import TrialRecord

LAB_HOSTS = 1


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_POLL_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", "120")


def finished(folder: Path, trials: list[TrialRecord] | None = None) -> str:
    begin(folder / "run", *(records() if trials is None else trials)).close()
    return str(folder / "run")


def measured_meanwhile(journal: Journal, trials: list[TrialRecord]) -> threading.Thread:
    """A process that measures: it records the trials, then it ends and gives the lock back."""

    def measure() -> None:
        for trial in trials:
            journal.append(trial)
        journal.close()

    thread = threading.Thread(target=measure)
    thread.start()
    return thread


# ---- what is shown


def test_a_run_that_goes_on_is_shown_until_it_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    all_records = records()
    journal = begin(tmp_path / "run", all_records[0])
    thread = measured_meanwhile(journal, all_records[1:])
    code, out, err = call(capsys, "watch", str(tmp_path / "run"), "--wait")
    thread.join()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"watching {tmp_path / 'run'}: ")
    assert lines[0].endswith("of 4 trials in the journal")
    assert "AlexNet" in out
    assert lines[-1].startswith(f"results: {tmp_path / 'run'}/")
    assert lines[-2].startswith("AlexNet on 2 devices loses 25")


def test_trials_that_end_are_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_records = records()
    journal = begin(tmp_path / "run", all_records[0])
    looks = iter([lambda: None, *(lambda record=record: journal.append(record) for record in all_records[1:])])

    def inspect(_: object) -> bool:
        step = next(looks, None)
        if step:
            step()
        return step is not None

    monkeypatch.setattr("trainscale.cli.watch.is_being_measured", inspect)
    code, out, _ = call(capsys, "watch", str(tmp_path / "run"))
    journal.close()
    assert code == 0
    assert out.splitlines()[:4] == [
        f"watching {tmp_path / 'run'}: 1 of 4 trials in the journal",
        "torch alexnet b32 allreduce · 2 devices · repeat 1: 150 images/s (12 s)",
        "torch alexnet b32 allreduce · 2 devices · repeat 2: 150 images/s (12 s)",
        "torch alexnet b32 allreduce · 1 device · repeat 2: 100 images/s (12 s)",
    ]


def test_ctrl_c_leaves_the_run_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainscale.cli.watch.is_being_measured", interrupted)
    code, _, err = call(capsys, "watch", finished(tmp_path))
    assert code == 130
    assert err == "the run goes on; the same command watches it again\n"


# ---- over ssh


@pytest.mark.hosts
def test_a_run_on_another_host_is_watched_over_ssh(lab: Lab, tmp_path: Path) -> None:
    (name,) = lab.hosts
    directory = lab.file(name, "/tmp/watched run")
    all_records = records()
    journal = begin(directory, *all_records[:2])
    command = [sys.executable, "-m", "trainscale", "watch", f"{name}:/tmp/watched run", "--json"]
    watcher = lab.popen(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "120"}, stdout=-1, stderr=-1, text=True)
    assert watcher.stdout is not None
    first = json.loads(watcher.stdout.readline())
    assert (first["directory"], first["trials"]) == (f"{name}:/tmp/watched run", 2)
    for record in all_records[2:]:
        journal.append(record)
    journal.close()
    out, err = watcher.communicate(timeout=60)
    assert (watcher.returncode, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["trial"] for event in events if event["event"] == "trial-ends"] == [
        record.trial.key for record in all_records[2:]
    ]
    assert events[-1]["event"] == "run-ends"


@pytest.mark.hosts
def test_what_goes_wrong_on_another_host_is_told(lab: Lab, tmp_path: Path) -> None:
    (name,) = lab.hosts
    command = [sys.executable, "-m", "trainscale", "watch"]
    nothing = lab.run([*command, f"{name}:/tmp/nothing"], cwd=tmp_path)
    assert nothing.returncode == 2
    assert "no run was recorded there" in nothing.stderr
    nobody = lab.run([*command, "nobody-here:/tmp/run"], cwd=tmp_path)
    assert nobody.returncode == 1
    assert nobody.stderr.startswith("trainscale: nobody-here: unknown name")
