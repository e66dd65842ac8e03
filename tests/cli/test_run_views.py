"""What ``trainscale run`` prints: events with --json, the directory with --quiet, else tables and a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import trainscale

RUN = ("run", "--models", "mnist:8", "--steps", "5", "--warmup", "2", "--repeats", "1", "--devices", "1,2", "-o", "out")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    done = trainscale(folder, *RUN, "--json", forks_ranks=True)
    assert done.returncode == 0, done.stderr
    (folder / "events").write_text(done.stdout)
    return folder


@pytest.mark.framework
def test_json_prints_an_event_a_line_and_nothing_else(folder: Path) -> None:
    events = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    kinds = [event["event"] for event in events]
    trials = [kind for kind in kinds if kind in ("trial-begins", "trial-ends")]
    assert trials == ["trial-begins", "trial-ends"] * 2
    assert "trial-moves" in kinds
    first = next(event for event in events if event["event"] == "run-begins")
    assert (first["schema"], first["directory"], first["trials"], first["planned_trials"]) == (1, "out", 0, 2)
    configs = {point["config_key"]: point["config"] for point in first["points"]}
    ends = [event for event in events if event["event"] == "trial-ends"]
    for number, event in enumerate(ends, 1):
        assert event["status"] == "ok"
        assert event["samples_per_second"] > 0
        assert event["point"]["mean"] == pytest.approx(event["samples_per_second"])
        assert event["trials"] == number
        assert configs[event["config_key"]]["model"] == "mnist"
    assert events[-1]["event"] == "run-ends"
    assert (events[-1]["directory"], events[-1]["exit_code"]) == ("out", 0)
    assert all({"event", "time"} <= event.keys() for event in events)


@pytest.mark.framework
def test_quiet_prints_the_directory(folder: Path) -> None:
    done = trainscale(folder, *RUN, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")


@pytest.mark.framework
def test_a_run_ends_with_its_verdict_and_its_directory(folder: Path) -> None:
    done = trainscale(folder, *RUN)
    verdict = json.loads((folder / "events").read_text().splitlines()[-1])["verdicts"]
    assert len(verdict) == 1
    lines = done.stdout.splitlines()
    assert lines[-2:-1] == verdict
    assert lines[-1].startswith("results: out/")
