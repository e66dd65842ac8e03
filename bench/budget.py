"""Simulates what a ladder costs in device time until all speeds and efficiencies are within ±1 %.

python bench/budget.py [--runs 300] [--seed 1] [--target 0.01]

Every simulated trial takes the same seconds, so it costs its number of devices. Compared are

    fixed            5 repeats of every point, whatever comes out
    rounds           rounds over all points until all intervals are narrow
    until-interval   the rule of run/allocation.py, after 4 rounds

The last two stop by the same intervals, which have the factor of a sequential rule. A share of runs in which all
intervals are narrow enough says what 5 fixed repeats achieve; the coverage says how often the interval of an efficiency
contains the truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from coverage import DISTRIBUTIONS
from trainscale.analyse.estimates import Estimate, make_estimate, ratio
from trainscale.analyse.statistics import CONFIDENCE, mean_interval
from trainscale.run.allocation import MOST_REPEATS, Point, Repeated, choose_point, widest_interval
from trainscale.spec.config import Config
from trainscale.spec.plan import LEAST_ROUNDS

LADDERS = ((1, 2), (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64))
CVS = (0.003, 0.005, 0.01, 0.02)
FIXED = 5
_CONFIG = Config("torch", "mnist", 64, "allreduce", 28, 10)

Speeds = Mapping[Point, Sequence[float]]
Choose = Callable[[Mapping[Point, Repeated], float], Sequence[Point]]


@dataclass(frozen=True)
class Outcome:
    """Of one run. Device time is in units of a trial on one device."""

    device_time: float
    repeats: tuple[int, ...]
    width: float
    covers: float  # share of the efficiencies whose interval contains the truth


def simulate(
    ladder: Sequence[int], cv: float, target: float, choose: Choose | None, source: np.random.Generator
) -> Outcome:
    """Simulate a run. Without ``choose`` it has FIXED repeats."""
    draws = DISTRIBUTIONS["normal"](source, cv, (len(ladder), MOST_REPEATS)).tolist()
    speeds = {(_CONFIG, devices): values for devices, values in zip(ladder, draws, strict=True)}
    repeats = dict.fromkeys(speeds, FIXED if choose is None else LEAST_ROUNDS)
    points = {point: _repeated(point, speeds[point][: repeats[point]], choose is not None) for point in speeds}
    while choose is not None and (chosen := choose(points, target)):
        for point in chosen:
            repeats[point] += 1
            points[point] = _repeated(point, speeds[point][: repeats[point]], True)
    cost = sum(repeats[point] * point[1] for point in points)
    return Outcome(cost, tuple(repeats.values()), widest_interval(points), _coverage(points))


def _repeated(point: Point, values: Sequence[float], is_sequential: bool) -> Repeated:
    baseline = (_CONFIG, 1) if point[1] > 1 else None
    return Repeated(_estimate(values, is_sequential), float(point[1]), baseline)


def _estimate(values: Sequence[float], is_sequential: bool) -> Estimate:
    return make_estimate(mean_interval(values, is_sequential), len(values), is_sequential)


def _coverage(points: Mapping[Point, Repeated]) -> float:
    """Return the share of efficiencies whose interval contains 1, which is the truth of every simulated ratio."""
    first = points[_CONFIG, 1].speed
    ratios = [ratio([point.speed], [first], CONFIDENCE) for point in points.values() if point.baseline]
    return fmean((r.low or 0) <= 1 <= (r.high or 0) for r in ratios)


def by_rounds(points: Mapping[Point, Repeated], target: float) -> Sequence[Point]:
    is_done = widest_interval(points) <= target or any(
        (point.speed.repeats or 0) >= MOST_REPEATS for point in points.values()
    )
    return () if is_done else tuple(points)


def by_device_time(points: Mapping[Point, Repeated], target: float) -> Sequence[Point]:
    point = choose_point(points, target)
    return () if point is None else (point,)


RULES: dict[str, Choose | None] = {"fixed": None, "rounds": by_rounds, "until-interval": by_device_time}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="in each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.01)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.runs} runs in each row, target ±{arguments.target:.1%}\n")
    print(
        "| ladder | CV | rule | device time / fixed | repeats of 1 device | of the largest | narrow enough | covers |"
    )
    print("|" + " --- |" * 8)
    for ladder in LADDERS:
        for cv in CVS:
            for name, choose in RULES.items():
                source = np.random.default_rng([arguments.seed, len(ladder), int(cv * 1e4)])
                runs = [simulate(ladder, cv, arguments.target, choose, source) for _ in range(arguments.runs)]
                narrow = fmean(run.width <= arguments.target for run in runs)
                print(
                    f"| 1…{ladder[-1]} | {cv:.1%} | {name}"
                    f" | {fmean(run.device_time for run in runs) / (FIXED * sum(ladder)):.2f}"
                    f" | {fmean(run.repeats[0] for run in runs):.1f} | {fmean(run.repeats[-1] for run in runs):.1f}"
                    f" | {narrow:.0%} | {fmean(run.covers for run in runs):.1%} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
