"""``trainscale run --search`` in real processes: the race, its table, and the same command again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import trainscale

pytestmark = pytest.mark.framework

# Batches of 2 and 64 differ in speed by far more than two, so that the race is over after one round.
SEARCH = ("run", "--models", "mnist", "--batch", "2,64", "--devices", "1", "--search", "--steps", "10", "--warmup", "2",
          "--repeats", "2", "-o", "out")  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    done = trainscale(folder, *SEARCH)
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout)
    return folder


def test_the_winner_is_measured_in_full_and_the_loser_once(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "out" / "trials.jsonl").read_text().splitlines()]
    short = [record["config"]["batch"] for record in records if record.get("short")]
    in_full = [record["config"]["batch"] for record in records if not record.get("short")]
    assert short[:2] == [2, 64]
    assert set(in_full) == {64}
    assert len(in_full) == 2


def test_terminal_and_report_say_who_left_when_and_why(finished: Path) -> None:
    printed = " ".join((finished / "stdout").read_text().split())
    report = (finished / "out" / "report.md").read_text()
    assert "left: torch mnist allreduce b2: after round 1: slower than half of the leader" in printed
    assert "Search: Deep MNIST on 1 device" in printed
    assert "| torch · allreduce · batch 64 |" in report
    assert "the winner, measured in full |" in report
    assert "Search: Deep MNIST on 1 device" in (finished / "out" / "report.html").read_text()


def test_the_same_command_again_measures_nothing(finished: Path) -> None:
    before = (finished / "out" / "trials.jsonl").read_bytes()
    done = trainscale(finished, *SEARCH)
    assert done.returncode == 0, done.stderr
    assert "are in the journal already" in done.stdout
    assert (finished / "out" / "trials.jsonl").read_bytes() == before


def test_best_reads_the_search(finished: Path) -> None:
    (work,) = json.loads(trainscale(finished, "best", "out", "--json").stdout)["works"]
    (answer,) = work["answers"]
    assert (answer["leader"]["config"]["batch"], answer["verdict"]) == (64, "only")
    assert answer["left_out"][0]["reason"].startswith("it left the search after round 1")
