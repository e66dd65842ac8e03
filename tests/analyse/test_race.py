"""The race of a search: who leaves when, what comes next, and how often the truly fastest candidate is kept."""

from collections.abc import Sequence

import numpy as np
import pytest

from trainscale.analyse.race import Entry, Race, replay_race

ROUNDS = 4


def state(*speeds: Sequence[float], rounds: int = ROUNDS) -> Race:
    return replay_race([Entry(number, tuple(values)) for number, values in enumerate(speeds)], rounds)


@pytest.mark.parametrize(
    ("speeds", "end"),
    [
        (([], [100.0], []), (1, (0, 1, 2), (0, 2), None)),  # the first round needs a trial of each
        (([100.0], [10.0]), (1, (0,), (), 0)),  # the last one left has won
        (([],), (1, (0,), (), 0)),
        # After the last round the highest mean wins, and the others are still in the race
        (([100.0, 90, 110, 95], [101.0, 92, 112, 97], [99.0, 91, 111, 96]), (4, (0, 1, 2), (), 1)),
    ],
)
def test_a_race_goes_on_until_one_has_won(speeds: Sequence[Sequence[float]], end: tuple[object, ...]) -> None:
    race = state(*speeds)
    assert (race.round, race.running, race.waiting, race.winner) == end


def test_below_half_of_the_leader_one_leaves_after_an_undisturbed_trial() -> None:
    race = state([100.0], [51.0], [49.0])
    assert [(d.key, d.round, d.reason) for d in race.departures] == [(2, 1, "slower than half of the leader")]
    assert (race.round, race.waiting) == (2, (0, 1))
    entries = [Entry(0, (100.0,)), Entry(1, (30.0,), is_disturbed=True), Entry(2, (30.0,))]
    assert [departure.key for departure in replay_race(entries, ROUNDS).departures] == [2]


def test_a_clear_loser_leaves_after_the_second_round_unless_it_varies_more() -> None:
    race = state([100.0, 101.0], [99.0, 101.0], [79.0, 80.0], [98.0, 102.0], [97.0, 100.0])
    (departure,) = race.departures
    assert (departure.key, departure.round, departure.reason) == (2, 2, "slower than the leader")
    assert departure.ratio.high is not None
    assert departure.ratio.mean == pytest.approx(0.7911, abs=1e-4)
    assert 0.79 < departure.ratio.high < 1
    steady = [[100.0, 101.0], [99.0, 100.0], [100.0, 99.5], [101.0, 100.0]]
    assert [d.key for d in state(*steady, [84.0, 85.0]).departures] == [4]
    assert state(*steady, [70.0, 99.0]).departures == ()
    """An interrupted race continues as it began."""
    short = state([100.0, 101.0], [99.0, 101.0], [60.0, 61.0])
    longer = state([100.0, 101.0, 50.0], [99.0, 101.0, 100.0], [60.0, 61.0])
    assert longer.departures[: len(short.departures)] == short.departures


def test_a_candidate_that_cannot_go_on_leaves_with_its_reason() -> None:
    entries = [Entry(0, (100.0, 100.0)), Entry(1, (99.0, 98.0)), Entry(2, (100.0,), "oom: too large")]
    race = replay_race(entries, ROUNDS)
    assert [(d.key, d.round, d.reason, d.ratio) for d in race.departures] == [(2, 2, "oom: too large", None)]
    nobody = replay_race([Entry(0, (), "crash"), Entry(1, (), "crash")], ROUNDS)
    assert (nobody.winner, nobody.running, len(nobody.departures)) == (None, (), 2)


# ---- the promise


def simulate(means: Sequence[float], sigmas: Sequence[float], seed: int, runs: int = 400) -> tuple[float, float]:
    """Return how often the first candidate is in the race to the end, and the share of trials against all rounds."""
    random = np.random.default_rng(seed)
    kept, trials = 0, 0
    for _ in range(runs):
        speeds = np.exp(np.log(means) + random.normal(0, sigmas, (ROUNDS, len(means)))).T
        counts = [0] * len(means)
        while True:
            race = replay_race([Entry(i, tuple(speeds[i][:n])) for i, n in enumerate(counts)], ROUNDS)
            if not race.waiting:
                break
            for key in race.waiting:
                counts[key] += 1
        kept += 0 in race.running
        trials += sum(counts)
    return kept / runs, trials / runs / (ROUNDS * len(means))


@pytest.mark.parametrize(
    ("name", "means", "sigmas"),
    [
        ("all nearly equal", [101.0] + [100.0] * 23, [0.03] * 24),
        ("all nearly equal, very noisy", [101.0] + [100.0] * 23, [0.1] * 24),
        ("two candidates", [101.0, 100.0], [0.03] * 2),
        ("the best varies four times as much", [101.0] + [100.0] * 11, [0.08] + [0.02] * 11),
        ("the others vary four times as much", [101.0] + [100.0] * 11, [0.02] + [0.08] * 11),
        ("spread out", [100.0 * 0.93**n for n in range(24)], [0.03] * 24),
    ],
)
def test_the_fastest_is_kept_in_95_of_100_races(name: str, means: list[float], sigmas: list[float]) -> None:
    kept, _ = simulate(means, sigmas, seed=12)
    assert kept >= 0.95, name


def test_a_space_that_is_spread_out_takes_less_than_half_of_the_trials() -> None:
    _, share = simulate([100.0 * 0.93**n for n in range(24)], [0.02] * 24, seed=5, runs=100)
    assert share < 0.5
