"""Counts how often `trainscale compare --threshold 2%` is wrong where it claims to know, with planted regressions.

python bench/compare.py [--comparisons 2000] [--seed 1]     simulated run means
python bench/compare.py --measure DIR                       trials of a worker that sleeps; the same command continues
python bench/compare.py --recorded DIR                      random parts of those trials, compared with each other

Regressions of 0, 1, 3 and 10 % are planted. A comparison is wrong if it says what is not so:

    false alarm    exit code 1 although the regression is within the threshold, or `slower` although there is none
    false praise   `faster` although it is not
    miss           it passes although the regression is beyond the threshold, or says `same within ±X %` although the
                   regression is larger than X

"Cannot tell" is never wrong, so its share is shown too. The intervals, verdicts and gates are those of the command.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy.special import stdtrit

from intervals import DISTRIBUTIONS
from trainscale.analyse.checks import OTHER_CORES
from trainscale.analyse.series import Point
from trainscale.analyse.statistics import (
    CONFIDENCE,
    Estimate,
    Interval,
    make_estimate,
    mean_interval,
    sequential_factor,
)
from trainscale.analyse.throughput import compute_samples_per_second, is_measured
from trainscale.questions.compare.compare import (
    FAIL,
    FASTER,
    MIXED,
    PASS,
    SAME,
    SLOWER,
    THRESHOLD,
    UNKNOWN,
    Gate,
    RunComparison,
    compare_pairs,
)
from trainscale.questions.compare.sides import Side
from trainscale.record.journal import read_trials
from trainscale.record.parity import PROVEN, WitnessVerdict
from trainscale.spec.config import Config

ALLOWED = 0.05
LIMIT = 0.02  # the threshold
PLANTED = (0.0, 0.01, 0.03, 0.1)
CVS = (0.003, 0.005, 0.01, 0.02)
REPEATS = (3, 5, 10)
POINTS = (1, 4)
SHAPES = ("normal", "slow tail", "outliers")  # of DISTRIBUTIONS
_NARROW, _LEAST, _MOST = 0.01, 4, 40  # the rule of --budget: from 4 repeats until ±1 %, if the budget lasts
_CONFIG = Config("torch", "mnist", 64, "allreduce", 28, 10)
_POINT = Point(_CONFIG, "simulated", 1, 1, 64, 64, 1, verdict=WitnessVerdict(PROVEN))
_GATE = Gate(THRESHOLD, 1 - LIMIT)


@dataclass
class Count:
    """How many comparisons were wrong, in which way, and how many could not tell."""

    comparisons: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    unknown_gates: int = 0
    unknown_verdicts: int = 0

    def add(self, comparison: RunComparison, planted: Sequence[float]) -> None:
        self.comparisons += 1
        self.unknown_gates += comparison.outcome == UNKNOWN
        self.unknown_verdicts += comparison.verdict == UNKNOWN
        self.wrong.update(mistakes(comparison, planted))

    def share(self, name: str) -> float:
        return self.wrong[name] / self.comparisons

    def merge(self, other: Count) -> None:
        self.comparisons += other.comparisons
        self.wrong.update(other.wrong)
        self.unknown_gates += other.unknown_gates
        self.unknown_verdicts += other.unknown_verdicts


MISTAKES = ("alarm of the gate", "alarm of the verdict", "praise", "miss of the gate", "miss of the verdict")


def mistakes(comparison: RunComparison, planted: Sequence[float]) -> Iterator[str]:
    """Yield in which ways a comparison is wrong. ``planted`` is the regression of every point."""
    worst = max(planted)
    (curve,) = comparison.curves
    if comparison.outcome == FAIL and worst <= LIMIT:
        yield "alarm of the gate"
    if curve.verdict in (SLOWER, MIXED) and worst == 0:
        yield "alarm of the verdict"
    if curve.verdict in (FASTER, MIXED):
        yield "praise"
    if comparison.outcome == PASS and worst > LIMIT:
        yield "miss of the gate"
    if curve.verdict == SAME and worst > (curve.within or 0.0):
        yield "miss of the verdict"


def make_side(estimates: Sequence[Estimate]) -> Side:
    values: dict[int, Estimate | None] = {2**power: estimate for power, estimate in enumerate(estimates)}
    points = {
        count: replace(_POINT, devices=count, samples_per_second=Interval(estimate.mean))
        for count, estimate in values.items()
        if estimate
    }
    return Side("simulated", "simulated", _CONFIG, "images", points, values)


def estimate(values: Sequence[float]) -> Estimate:
    return make_estimate(mean_interval(values), len(values), False)


def compare(a: Side, b: Side) -> RunComparison:
    return compare_pairs([(a, b)], gate=_GATE)


# ---- simulated


@dataclass(frozen=True)
class Case:
    """``repeats`` of None: a time budget chooses them. ``everywhere``: all points are slower, otherwise the last."""

    name: str
    cv: float
    repeats: int | None
    points: int
    planted: float
    everywhere: bool

    @property
    def regressions(self) -> list[float]:
        others = self.planted if self.everywhere else 0.0
        return [others] * (self.points - 1) + [self.planted]


def cases() -> Iterator[Case]:
    for name in SHAPES:
        for cv in CVS:
            for repeats in (*REPEATS, None):
                for points in POINTS:
                    for planted in PLANTED:
                        for everywhere in (True, False) if planted and points > 1 else (True,):
                            yield Case(name, cv, repeats, points, planted, everywhere)


def simulate(case: Case, comparisons: int, seed: int) -> Count:
    """Compare pairs of runs. Their estimates are those of ``estimate``, computed for all of them at once."""
    count, source = Count(), np.random.default_rng([seed, hash_of(case)])
    is_sequential = case.repeats is None
    shape = (comparisons, 2, case.points, case.repeats or _MOST)
    means, errors, repeats = _estimates(DISTRIBUTIONS[case.name](source, case.cv, shape), is_sequential)
    means[:, 1] *= 1 - np.array(case.regressions)
    for values in zip(means.tolist(), errors.tolist(), repeats.tolist(), strict=True):
        a, b = (
            make_side([Estimate(mean, number, error, is_sequential) for mean, error, number in zip(*side, strict=True)])
            for side in zip(*values, strict=True)
        )
        count.add(compare(a, b), case.regressions)
    return count


def hash_of(case: Case) -> int:
    """Return a number for a case that is the same in every process."""
    return sum(ord(letter) * 31**index for index, letter in enumerate(repr(case))) % 2**32


def _estimates(speeds: Any, is_sequential: bool) -> tuple[Any, Any, Any]:
    """Return means, relative errors and numbers of repeats. The last axis of ``speeds`` has the repeats.

    A sequential rule takes the first number of repeats from _LEAST on whose interval is narrow, as --budget does.
    """
    counts = np.arange(1, speeds.shape[-1] + 1)
    means = np.cumsum(speeds, axis=-1) / counts
    squares = np.cumsum((speeds - 1) ** 2, axis=-1) - counts * (means - 1) ** 2
    errors = np.sqrt(np.maximum(squares, 0) / np.maximum(counts - 1, 1) / counts) / means
    if not is_sequential:
        last = np.full(speeds.shape[:-1], len(counts) - 1)
    else:
        errors *= np.array([sequential_factor(int(count)) for count in counts])
        widths = stdtrit(np.maximum(counts - 1, 1), 1 - (1 - CONFIDENCE) / 2) * errors
        is_narrow = (widths <= _NARROW) & (counts >= _LEAST)
        is_narrow[..., -1] = True
        last = is_narrow.argmax(axis=-1)
    means, errors = (np.take_along_axis(array, last[..., None], axis=-1)[..., 0] for array in (means, errors))
    return means, errors, last + 1


def report_simulated(comparisons: int, seed: int) -> bool:
    print(f"seed {seed}, {comparisons} comparisons of each of {sum(1 for _ in cases())} cases, threshold {LIMIT:.0%}\n")
    by_row: dict[tuple[float, float], Count] = defaultdict(Count)
    worst: dict[str, tuple[float, Case]] = {}
    for case in cases():
        count = simulate(case, comparisons, seed)
        by_row[case.planted, case.cv].merge(count)
        for name in MISTAKES:
            if count.share(name) >= worst.get(name, (-1.0, case))[0]:
                worst[name] = (count.share(name), case)
    print_table([(f"{planted:.0%} | {cv:.1%}", count) for (planted, cv), count in sorted(by_row.items())])
    print("\n| mistake | largest share in a case | that case |\n| --- | --- | --- |")
    for name, (share, case) in worst.items():
        error = (share * (1 - share) / comparisons) ** 0.5
        print(f"| {name} | {share:.1%} ± {error:.1%} | {case} |")
    return all(share <= ALLOWED + 3 * (ALLOWED / comparisons) ** 0.5 for share, _ in worst.values())


def print_table(rows: Sequence[tuple[str, Count]], heading: str = "planted | CV") -> None:
    names = [*MISTAKES, "gate cannot tell", "verdict cannot tell"]
    print(f"| {heading} | comparisons | {' | '.join(names)} |\n|{' --- |' * (len(names) + 1 + heading.count('|') + 1)}")
    for name, count in rows:
        shares = [count.share(mistake) for mistake in MISTAKES]
        shares += [part / count.comparisons for part in (count.unknown_gates, count.unknown_verdicts)]
        print(f"| {name} | {count.comparisons} | {' | '.join(f'{share:.1%}' for share in shares)} |")


# ---- real trials


def measure(directory: Path, repeats: int) -> NoReturn:
    """Measure or continue a run in which a worker sleeps 0, 1, 3 and 10 % of every step; repeats are interleaved."""
    models = ",".join(f"slowed_nets:slower_{share * 100:.0f}:64" for share in PLANTED)
    command = [
        sys.executable, "-m", "trainscale", "run", "-m", models, "-o", str(directory.resolve()), "--device", "cpu",
        "--image-size", "28", "--classes", "10", "--devices", "1", "--cores-per-device", "1", "--strategies", "local",
        "--repeats", str(repeats), "--warmup", "10", "--steps", "100",
    ]  # fmt: skip
    os.chdir(Path(__file__).parent)  # the ranks import the network from here
    os.execv(sys.executable, command)


@dataclass(frozen=True)
class Repeat:
    """A recorded trial."""

    speed: float
    other_cores: float  # that other programs used meanwhile

    def scaled(self, factor: float) -> Repeat:
        return replace(self, speed=self.speed * factor)


Repeats = Mapping[float, Sequence[Repeat]]  # by planted regression


def read_repeats(directory: Path, is_quiet: bool) -> Repeats:
    """Return the trials by planted regression; with ``is_quiet`` only those beside which nothing else ran."""
    repeats: dict[float, list[Repeat]] = defaultdict(list)
    for record in read_trials(directory):
        other_cores = record.machine.other_cores or 0.0
        if is_measured(record) and not (is_quiet and other_cores > OTHER_CORES):
            share = float(record.trial.config.model.rpartition("_")[2]) / 100
            repeats[share].append(Repeat(compute_samples_per_second(record), other_cores))
    return repeats


def make_recorded_side(repeats: Sequence[Repeat]) -> Side:
    side = make_side([estimate([repeat.speed for repeat in repeats])])
    return replace(side, other_cores={1: [repeat.other_cores for repeat in repeats]})


def report_recorded(trials: Repeats, comparisons: int, seed: int) -> bool:
    """Compare random parts of the recorded trials: with those of the slowed workers, and with scaled ones."""
    fewest = min(len(trials.get(share, ())) for share in PLANTED)
    sizes = [count for count in (3, 5, 8) if 2 * count <= fewest]
    if not sizes:
        print(f"there are only {fewest} trials of a worker; measure more with --measure")
        return False
    mean = sum(repeat.speed for repeat in trials[0.0]) / len(trials[0.0])
    for share, of_share in sorted(trials.items()):
        values = [repeat.speed for repeat in of_share]
        centre = sum(values) / len(values)
        cv = (sum((value - centre) ** 2 for value in values) / (len(values) - 1)) ** 0.5 / centre
        print(f"planted {share:.0%}: {len(values)} trials, {centre / mean - 1:+.2%}, CV {cv:.2%}")
    print()
    source = random.Random(seed)
    rows = []
    for name, draw in (("sleeping worker", _sleeping), ("scaled", _scaled), ("scaled, later", _later)):
        for share in PLANTED:
            for repeats in sizes:
                count = Count()
                for _ in range(comparisons):
                    a, b = draw(source, trials, share, repeats)
                    count.add(compare(make_recorded_side(a), make_recorded_side(b)), [share])
                rows.append((f"{name} | {share:.0%} | {repeats}", count))
    print_table(rows, "B is | planted | repeats")
    return all(count.share(name) <= ALLOWED for _, count in rows for name in MISTAKES)


Both = tuple[Sequence[Repeat], Sequence[Repeat]]
Draw = Callable[[random.Random, Repeats, float, int], Both]


def _sleeping(source: random.Random, trials: Repeats, share: float, repeats: int) -> Both:
    """Draw A from the trials without a delay, B from those with one; without a delay both from the same, disjoint."""
    if share == 0:
        return _scaled(source, trials, share, repeats)
    return source.sample(trials[0.0], repeats), source.sample(trials[share], repeats)


def _scaled(source: random.Random, trials: Repeats, share: float, repeats: int) -> Both:
    both = source.sample(trials[0.0], 2 * repeats)
    return both[:repeats], [repeat.scaled(1 - share) for repeat in both[repeats:]]


def _later(source: random.Random, trials: Repeats, share: float, repeats: int) -> Both:
    """Draw two runs, one right after the other, as a person measures them: here a drift of the machine counts."""
    start = source.randrange(len(trials[0.0]) - 2 * repeats + 1)
    a, b = (trials[0.0][first : first + repeats] for first in (start, start + repeats))
    return a, [repeat.scaled(1 - share) for repeat in b]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=2000, help="in each case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure", type=Path, metavar="DIR", help="measure trials of a worker that sleeps")
    parser.add_argument("--repeats", type=int, default=24, help="of each worker, with --measure")
    parser.add_argument("--recorded", type=Path, metavar="DIR", help="compare trials that --measure has recorded")
    parser.add_argument("--quiet", action="store_true", help="of those, only the ones beside which nothing else ran")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.repeats)
    if arguments.recorded:
        trials = read_repeats(arguments.recorded, arguments.quiet)
        return 0 if report_recorded(trials, arguments.comparisons, arguments.seed) else 1
    return 0 if report_simulated(arguments.comparisons, arguments.seed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
