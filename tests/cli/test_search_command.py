"""``trainscale run --search`` in real processes: the race, its table, and the same command again."""

import json
from pathlib import Path

import pytest
from command import trainscale

from trainscale.analyse.race import Race, replay_races_of_run
from trainscale.record.journal import read_run, read_trials

pytestmark = pytest.mark.framework

# Batches of 2 and 64 differ in speed by far more than two, so on an idle machine the race is over after one round.
SEARCH = ("run", "--models", "mnist", "--batch", "2,64", "--devices", "1", "--search", "--steps", "10", "--warmup", "2",
          "--repeats", "2", "-o", "out")  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    done = trainscale(folder, *SEARCH, forks_ranks=True)
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout)
    return folder


def race_of(folder: Path) -> Race:
    """Return how the race went, by the recorded speeds. Whether batch 2 left it depends on how busy the machine was."""
    (race,) = replay_races_of_run(read_run(folder / "out"), read_trials(folder / "out"))
    return race


def test_the_winner_is_measured_in_full_and_the_loser_in_short_trials_only(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "out" / "trials.jsonl").read_text().splitlines()]
    short = [record["config"]["batch"] for record in records if record.get("short")]
    in_full = [record["config"]["batch"] for record in records if not record.get("short")]
    winner = race_of(finished).winner
    assert winner is not None
    assert short[:2] == [2, 64]
    assert in_full == [winner.batch] * 2


def test_terminal_and_report_say_who_left_when_and_why(finished: Path) -> None:
    printed = " ".join((finished / "stdout").read_text().split())
    report = (finished / "out" / "report.md").read_text()
    race = race_of(finished)
    assert race.winner is not None
    assert printed.count("left: ") == len(race.departures)
    for departure in race.departures:
        name = f"torch mnist b{departure.key.batch} allreduce"
        assert f"left: {name}: after round {departure.round}: {departure.reason}" in printed
    assert "Search: Deep MNIST on 1 device" in printed
    assert f"| torch · allreduce · batch {race.winner.batch} |" in report
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
    race = race_of(finished)
    assert race.winner is not None
    assert answer["leader"]["config"]["batch"] == race.winner.batch
    reasons = [left_out["reason"] for left_out in answer["left_out"]]
    for departure in race.departures:
        assert any(reason.startswith(f"it left the search after round {departure.round}") for reason in reasons)
