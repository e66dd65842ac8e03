"""The search against the full sweep: does it find the same winner, and in how much of the device time?

python bench/search.py measure --folder DIR [--repetitions 5] [--seconds 150]   real trials
python bench/search.py replay DIR… [--repetitions 200]                          races on recorded run means
python bench/search.py simulate [--repetitions 2000]                            races on made-up speeds

``measure`` runs a sweep of 24 configurations of MNIST's network on 2 processes once, and the search several times. It
stops after ``--seconds`` and exits with 3; the same command continues, because all trials are in journals. ``replay``
draws the trials of a race at random from the recorded repeats of a sweep; there a short trial costs as much as the
recorded one, so its share of the time is an upper limit. ``simulate`` draws log speeds from normal
distributions and counts how often the truly fastest candidate is in the race to the end.

A search is right if its winner is the leader of the sweep or one that ``trainscale best`` does not separate from it.
The program ends with 1 when a search is wrong (of replayed and simulated ones: more than 5 %) or takes more than half
of the sweep's device time.
"""

import argparse
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from continued_runs import UNFINISHED, compute_device_seconds, continue_run
from trainscale.analyse.race import Entry, Race, count_most_rounds, replay_race, replay_races_of_run
from trainscale.analyse.throughput import compute_samples_per_second, is_measured
from trainscale.questions.best.best import BestChoice, Question, find_best
from trainscale.record.trial import TrialRecord
from trainscale.runs import Run
from trainscale.spec.config import Config

SPACE = (
    "--models", "mnist", "--strategies", "allreduce,ps:1,sharded", "--batch", "16,64", "--precision", "fp32,bf16",
    "--layout", "nchw,nhwc", "--devices", "2", "--warmup", "4", "--steps", "40", "--repeats", "5",
)  # fmt: skip
MOST_SHARE = 0.5  # of the device time of the sweep
RIGHT = 0.95  # of the replayed searches


@dataclass(frozen=True)
class Outcome:
    """One search on one device count."""

    name: str
    winner: str
    is_right: bool
    trials: int
    share: float  # of the device time of the sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    measured = modes.add_parser("measure")
    measured.add_argument("--folder", type=Path, required=True)
    measured.add_argument("--seconds", type=float, default=150.0)
    measured.add_argument("--repetitions", type=int, default=5)
    replayed = modes.add_parser("replay")
    replayed.add_argument("directories", nargs="+", type=Path)
    replayed.add_argument("--repetitions", type=int, default=200)
    simulated = modes.add_parser("simulate")
    simulated.add_argument("--repetitions", type=int, default=2000)
    options = parser.parse_args()
    if options.mode == "simulate":
        return simulate_all(options.repetitions)
    if options.mode == "replay":
        return replay(options.directories, options.repetitions)
    return measure(options.folder, options.repetitions, options.seconds)


# ---- real trials


def measure(folder: Path, repetitions: int, seconds: float) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    runs = {"sweep": SPACE, **{f"search-{n}": (*SPACE, "--search") for n in range(1, repetitions + 1)}}
    for name, arguments in runs.items():
        if not continue_run(folder / name, arguments, end):
            print(f"{name} is not complete; the same command continues it")
            return UNFINISHED
    sweep = read_recorded(folder / "sweep")
    outcomes = [judge_search(sweep, folder / name) for name in runs if name != "sweep"]
    return print_outcomes(outcomes)


def judge_search(sweep: Run, directory: Path) -> Outcome:
    search = read_recorded(directory)
    (race,) = replay_races_of_run(search.info, search.records, search.parity)
    (answer,) = answers(sweep)
    share = compute_device_seconds(search.records) / compute_device_seconds(sweep.records)
    winner = race.winner
    return Outcome(directory.name, describe(winner), winner in equals(answer), len(search.records), share)


# ---- recorded run means


def replay(directories: Sequence[Path], repetitions: int) -> int:
    outcomes = []
    for directory in directories:
        sweep = read_recorded(directory)
        for answer in answers(sweep):
            trials = trials_of(sweep, answer)
            for seed in range(repetitions):
                outcomes.append(replay_once(f"{directory.name}, {answer.devices} devices", answer, trials, seed))
    return print_summary(outcomes)


def trials_of(sweep: Run, answer: BestChoice) -> dict[Config, list[TrialRecord]]:
    """Return the good trials of every candidate on this device count."""
    assert answer.leader is not None
    configs = [answer.leader.config, *(other.candidate.config for other in answer.others)]
    good = [r for r in sweep.records if r.trial.devices == answer.devices and is_measured(r)]
    return {config: [r for r in good if r.trial.config == config] for config in configs}


def replay_once(name: str, answer: BestChoice, trials: dict[Config, list[TrialRecord]], seed: int) -> Outcome:
    """Race with trials that are drawn at random: first each recorded repeat once, then with replacement."""
    generator = random.Random(seed)
    repeats = max(map(len, trials.values()))
    drawn = {c: [*generator.sample(own, len(own)), *generator.choices(own, k=repeats)] for c, own in trials.items()}
    speeds = {config: [compute_samples_per_second(record) for record in own] for config, own in drawn.items()}
    race, counts = run_race(speeds, count_most_rounds(repeats))
    assert race.winner is not None
    spent = sum(r.seconds for config, count in counts.items() for r in drawn[config][:count])
    spent += sum(r.seconds for r in trials[race.winner])
    whole = sum(r.seconds for own in trials.values() for r in own)
    is_right = race.winner in equals(answer)
    return Outcome(name, describe(race.winner), is_right, sum(counts.values()) + repeats, spent / whole)


# ---- made-up speeds


@dataclass(frozen=True)
class Space:
    """Candidates, the fastest first: their true speeds, and the standard deviations of the log speeds of their runs."""

    name: str
    speeds: Sequence[float]
    deviations: Sequence[float]
    is_promised: bool = True  # False where a candidate varies more than the rule supposes


SPACES = (
    Space("24 candidates, each 7 % slower than the last, 3 %", [0.93**n for n in range(24)], [0.03] * 24),
    Space("24 candidates, each 3 % slower than the last, 3 %", [0.97**n for n in range(24)], [0.03] * 24),
    Space("24 candidates, 23 of them 1 % slower, 3 %", [1.0] + [0.99] * 23, [0.03] * 24),
    Space("24 candidates, 23 of them 1 % slower, 10 %", [1.0] + [0.99] * 23, [0.1] * 24),
    Space("2 candidates, one 1 % slower, 3 %", [1.0, 0.99], [0.03] * 2),
    Space("12 candidates, 11 of them 1 % slower, 2 %, the fastest 8 %", [1.0] + [0.99] * 11, [0.08] + [0.02] * 11),
    Space(
        "12 candidates, 11 of them 1 % slower, 2 %, the fastest 16 %", [1.0] + [0.99] * 11, [0.16] + [0.02] * 11, False
    ),
)


def simulate_all(repetitions: int) -> int:
    print("| candidates and standard deviation of a run | the fastest stays | short trials, of 4 rounds for all |")
    print("| --- | --- | --- |")
    kept: list[float] = []
    for space in SPACES:
        stays, share = simulate(space, repetitions)
        kept += [stays] if space.is_promised else []
        print(f"| {space.name} | {stays:.3f} | {share:.2f} |")
    return 0 if min(kept) >= RIGHT else 1


def simulate(space: Space, repetitions: int, rounds: int = 4) -> tuple[float, float]:
    """Return how often the fastest candidate is in the race to the end, and the share of trials that it takes."""
    kept, trials = 0, 0
    for seed in range(repetitions):
        generator = random.Random(seed)
        speeds = [
            [speed * math.exp(generator.gauss(0, deviation)) for _ in range(rounds)]
            for speed, deviation in zip(space.speeds, space.deviations, strict=True)
        ]
        race, counts = run_race(dict(enumerate(speeds)), rounds)
        kept += 0 in race.running
        trials += sum(counts.values())
    return kept / repetitions, trials / repetitions / (rounds * len(space.speeds))


# ---- both


def run_race(speeds: Mapping[Any, Sequence[float]], rounds: int) -> tuple[Race, dict[Any, int]]:
    """Race to the end with these speeds. Return the state, and how many trials each candidate had."""
    counts = dict.fromkeys(speeds, 0)
    while True:
        race = replay_race([Entry(key, tuple(speeds[key][:count])) for key, count in counts.items()], rounds)
        if not race.waiting:
            return race, counts
        for key in race.waiting:
            counts[key] += 1


def read_recorded(directory: Path) -> Run:
    return Run.open(directory)


def answers(sweep: Run) -> list[BestChoice]:
    """Return the answers of a sweep that have something to choose from."""
    return [choice for choice in find_best([sweep], Question()).choices if choice.others]


def equals(answer: BestChoice) -> set[Config]:
    """Return the leader of a sweep and those that noise does not separate from it."""
    assert answer.leader is not None
    return {answer.leader.config, *(other.candidate.config for other in answer.others if other.differs is False)}


def describe(config: Config | None) -> str:
    if config is None:
        return "none"
    return f"{config.strategy_label} b{config.batch} {config.precision} {config.layout}"


def print_outcomes(outcomes: Sequence[Outcome]) -> int:
    print("| search | winner | as good as the sweep's | trials | share of the sweep's device time |")
    print("| --- | --- | --- | --- | --- |")
    for each in outcomes:
        print(f"| {each.name} | {each.winner} | {each.is_right} | {each.trials} | {each.share:.2f} |")
    return 0 if all(each.is_right and each.share <= MOST_SHARE for each in outcomes) else 1


def print_summary(outcomes: Sequence[Outcome]) -> int:
    print("| sweep | races | winner as good as the sweep's | mean share of device time | largest |")
    print("| --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(each.name for each in outcomes):
        own = [each for each in outcomes if each.name == name]
        shares = [each.share for each in own]
        right = fmean(each.is_right for each in own)
        print(f"| {name} | {len(own)} | {right:.3f} | {fmean(shares):.2f} | {max(shares):.2f} |")
    is_right = fmean(each.is_right for each in outcomes) >= RIGHT
    return 0 if is_right and max(each.share for each in outcomes) <= MOST_SHARE else 1


if __name__ == "__main__":
    raise SystemExit(main())
