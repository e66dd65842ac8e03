"""bench/search.py: races on recorded run means, judged against the sweep that they come from."""

from pathlib import Path

import pytest
from factories import curve, make_config, make_run
from stored_runs import write_run

import search
from trainscale.runs import Run

SPEEDS = {8: 100.0, 16: 180.0, 32: 300.0, 64: 420.0, 128: 430.0}


def make_sweep(spread: float) -> Run:
    records = [r for batch, speed in SPEEDS.items() for r in curve(make_config(batch=batch), {2: speed}, 5, spread)]
    return Run.from_records(make_run(), records)


def test_a_replayed_race_finds_the_winner_in_less_time() -> None:
    sweep = make_sweep(0.002)
    (answer,) = search.answers(sweep)
    assert [config.batch for config in search.equals(answer)] == [128]
    outcomes = [search.replay_once("x", answer, search.trials_of(sweep, answer), seed) for seed in range(5)]
    assert all(outcome.is_right for outcome in outcomes)
    assert {outcome.winner for outcome in outcomes} == {"allreduce b128 fp32 nchw"}
    assert max(outcome.share for outcome in outcomes) < 1


def test_a_winner_that_the_sweep_does_not_separate_from_its_leader_is_right() -> None:
    (answer,) = search.answers(make_sweep(0.05))
    assert {config.batch for config in search.equals(answer)} == {64, 128}


def test_the_exit_code_says_whether_the_aim_was_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "sweep", make_sweep(0.002).records)
    assert search.replay([tmp_path / "sweep"], repetitions=3) in (0, 1)
    assert "| sweep, 2 devices | 3 | 1.000 |" in capsys.readouterr().out
    good, slow = (search.Outcome("a", "b", True, 9, share) for share in (0.4, 0.6))
    assert search.print_outcomes([good]) == 0
    assert search.print_outcomes([good, slow]) == 1
    assert search.print_outcomes([search.Outcome("a", "b", False, 9, 0.4)]) == 1
