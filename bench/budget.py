"""Simulates what a ladder costs in device time until all speeds and efficiencies are within ±1 %.

python bench/budget.py [--runs 300] [--seed 1] [--target 0.01] [--table repeats|windows]
python bench/budget.py --measure DIR [--model alexnet:8] [--devices 1,2]

In the table of repeats every simulated trial takes the same seconds, so it costs its number of devices. Compared are

    fixed            5 repeats of every point, whatever comes out
    rounds           rounds over all points until all intervals are narrow
    until-interval   the rule of measure/order.py, after 4 rounds

The last two stop by the same intervals, which have the factor of a sequential rule. A share of runs in which all
intervals are narrow enough says what 5 fixed repeats achieve; the coverage says how often the interval of an efficiency
contains the truth.

In the table of windows, trials of a ladder 1…8 have steps that vary within and between processes, and cost what they
take besides their steps (start, first step, proofs, end) and their steps. Compared with 5 repeats of 10 + 100 steps are

    100 steps        until-interval with windows of 100 steps
    chosen           until-interval with the windows of measure/order.py

With ``--measure`` nothing is simulated: a ladder is measured both ways on this machine, and ``compare`` says whether
the results differ. If ``--seconds`` end it, it exits with 3 and the same command continues.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from intervals import DISTRIBUTIONS
from measured_budget import measure
from trainscale.analyse.statistics import CONFIDENCE, Estimate, make_estimate, mean_interval, ratio
from trainscale.measure.order import (
    MOST_REPEATS,
    Repeated,
    TrialTimes,
    choose_counts,
    choose_point,
)
from trainscale.spec.config import Config
from trainscale.spec.config import PointKey as Point
from trainscale.spec.plan import LEAST_ROUNDS
from trainscale.worker.job import Measure

LADDERS = ((1, 2), (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64))
CVS = (0.003, 0.005, 0.01, 0.02)
FIXED = 5
WINDOWS_LADDER = (1, 2, 4, 8)
MOST = Measure(10, 100)
_WARMUP_SHARE, _LEAST_STEPS = 0.2, 20  # of a trial whose time is limited, see worker/training/loop.py
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
    return Outcome(cost, tuple(repeats.values()), find_widest(points), _coverage(points))


def find_widest(points: Mapping[Point, Repeated]) -> float:
    """Return the widest interval of a speed, or of a speed-up over the 1-device point."""
    widths = []
    for key, point in points.items():
        widths.append(ratio([point.speed], [], CONFIDENCE).relative)
        if key[1] > 1 and (key[0], 1) in points:
            widths.append(ratio([point.speed], [points[key[0], 1].speed], CONFIDENCE).relative)
    return max(math.inf if width is None else width for width in widths)


def _repeated(point: Point, values: Sequence[float], is_sequential: bool) -> Repeated:
    return Repeated(_estimate(values, is_sequential), float(point[1]))


def _estimate(values: Sequence[float], is_sequential: bool) -> Estimate:
    return make_estimate(mean_interval(values, is_sequential), len(values), is_sequential)


def _coverage(points: Mapping[Point, Repeated]) -> float:
    """Return the share of efficiencies whose interval contains 1, which is the truth of every simulated ratio."""
    first = points[_CONFIG, 1].speed
    ratios = [ratio([point.speed], [first], CONFIDENCE) for key, point in points.items() if key[1] > 1]
    return fmean((r.low or 0) <= 1 <= (r.high or 0) for r in ratios)


def by_rounds(points: Mapping[Point, Repeated], target: float) -> Sequence[Point]:
    is_done = find_widest(points) <= target or any(
        (point.speed.repeats or 0) >= MOST_REPEATS for point in points.values()
    )
    return () if is_done else tuple(points)


def by_device_time(points: Mapping[Point, Repeated], target: float) -> Sequence[Point]:
    point = choose_point(points, target)
    return () if point is None else (point,)


@dataclass(frozen=True)
class Machine:
    """What a trial costs besides its steps, a step, and by how much steps and run means vary."""

    name: str
    overhead_seconds: float
    step_seconds: float
    within: float
    between: float


# The first three costs are like those of real trials: MNIST and AlexNet on one core, ResNet-50 on an H200. The fourth
# assumes a cheaper start.
MACHINES = tuple(
    Machine(name, overhead, step, within, between)
    for name, overhead, step in (
        ("CPU, 0.1 s a step", 4.0, 0.1),
        ("CPU, 1.3 s a step", 6.0, 1.3),
        ("GPU, 27 s trials", 23.0, 0.035),
        ("GPU, cheaper start", 10.0, 0.035),
    )
    for within, between in ((0.02, 0.003), (0.05, 0.003), (0.05, 0.01))
)


@dataclass(frozen=True)
class WindowsOutcome:
    device_seconds: float
    fixed_seconds: float  # of FIXED repeats of all steps
    steps: float  # of a window, mean over trials
    repeats: float  # of a point, mean
    covers: float


def simulate_windows(
    machine: Machine, target: float, chooses: bool, source: np.random.Generator, ladder: Sequence[int] = WINDOWS_LADDER
) -> WindowsOutcome:
    """Simulate a run whose windows have 100 steps, or those that measure/order.py ``chooses``."""
    trials: dict[Point, list[TrialTimes]] = {(_CONFIG, devices): [] for devices in ladder}
    for number in range(LEAST_ROUNDS):
        for point in list(trials)[:: 1 if number % 2 == 0 else -1]:
            trials[point].append(_trial(machine, _counts(machine, trials, point, chooses), source))
    while (point := choose_point({key: _repeated_trials(key, trials[key]) for key in trials}, target)) is not None:
        trials[point].append(_trial(machine, _counts(machine, trials, point, chooses), source))
    all_trials = [trial for own in trials.values() for trial in own]
    full = machine.overhead_seconds + (MOST.warmup + MOST.steps) * machine.step_seconds
    return WindowsOutcome(
        device_seconds=sum(point[1] * trial.seconds for point, own in trials.items() for trial in own),
        fixed_seconds=FIXED * sum(ladder) * full,
        steps=fmean(len(trial.steps) for trial in all_trials),
        repeats=len(all_trials) / len(ladder),
        covers=_coverage({key: _repeated_trials(key, trials[key]) for key in trials}),
    )


def _counts(machine: Machine, trials: Mapping[Point, Sequence[TrialTimes]], point: Point, chooses: bool) -> Measure:
    if not chooses:
        return MOST
    counts = choose_counts(trials[point], trials.values(), MOST)
    if counts is not None:
        return counts
    affordable = int(machine.overhead_seconds / machine.step_seconds)  # as measure/order.py and worker/training/loop.py
    warmup = min(MOST.warmup, max(2, int(affordable * _WARMUP_SHARE)))
    return Measure(warmup, min(MOST.steps, max(_LEAST_STEPS, affordable - warmup)))


def _trial(machine: Machine, counts: Measure, source: np.random.Generator) -> TrialTimes:
    own = machine.step_seconds * source.normal(1, machine.between)
    steps = own * source.normal(1, machine.within, counts.steps)
    window = float(steps.sum())
    warmup = counts.warmup * machine.step_seconds
    return TrialTimes(machine.overhead_seconds + warmup + window, window, steps.tolist())


def _repeated_trials(point: Point, trials: Sequence[TrialTimes]) -> Repeated:
    speeds = [1 / trial.step_seconds for trial in trials]
    cost = point[1] * fmean(trial.seconds for trial in trials)
    return Repeated(_estimate(speeds, True), cost)


RULES: dict[str, Choose | None] = {"fixed": None, "rounds": by_rounds, "until-interval": by_device_time}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="in each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--table", choices=("repeats", "windows"), help="only this one")
    parser.add_argument("--measure", type=Path, metavar="DIR", help="measure real ladders; their runs are kept in DIR")
    parser.add_argument("--model", default="alexnet:8", help="of --measure")
    parser.add_argument("--devices", default="1,2", help="of --measure")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of --measure")
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments.measure, arguments.model, arguments.devices, arguments.target, arguments.seconds)
    print(f"seed {arguments.seed}, {arguments.runs} runs in each row, target ±{arguments.target:.1%}")
    if arguments.table != "windows":
        print_repeats(arguments.runs, arguments.seed, arguments.target)
    if arguments.table != "repeats":
        print_windows(arguments.runs, arguments.seed, arguments.target)
    return 0


def print_repeats(runs: int, seed: int, target: float) -> None:
    print(
        "\n| ladder | CV | rule | device time / fixed | repeats of 1 device | of the largest | narrow enough | covers |"
    )
    print("|" + " --- |" * 8)
    for ladder in LADDERS:
        for cv in CVS:
            for name, choose in RULES.items():
                source = np.random.default_rng([seed, len(ladder), int(cv * 1e4)])
                outcomes = [simulate(ladder, cv, target, choose, source) for _ in range(runs)]
                narrow = fmean(run.width <= target for run in outcomes)
                print(
                    f"| 1…{ladder[-1]} | {cv:.1%} | {name}"
                    f" | {fmean(run.device_time for run in outcomes) / (FIXED * sum(ladder)):.2f}"
                    f" | {fmean(run.repeats[0] for run in outcomes):.1f}"
                    f" | {fmean(run.repeats[-1] for run in outcomes):.1f}"
                    f" | {narrow:.0%} | {fmean(run.covers for run in outcomes):.1%} |",
                    flush=True,
                )


def print_windows(runs: int, seed: int, target: float) -> None:
    print(
        "\n| machine | besides, step | CV of steps | of run means | 100 steps / fixed | repeats | covers"
        " | chosen / fixed | steps | repeats | covers | chosen / 100 steps |"
    )
    print("|" + " --- |" * 12)
    for number, machine in enumerate(MACHINES):
        cells, times = [], []
        for chooses in (False, True):
            source = np.random.default_rng([seed, number])
            outcomes = [simulate_windows(machine, target, chooses, source) for _ in range(runs)]
            times.append(fmean(run.device_seconds for run in outcomes))
            cells.append(f"{times[-1] / outcomes[0].fixed_seconds:.2f}")
            cells += [f"{fmean(run.steps for run in outcomes):.0f}"] if chooses else []
            cells += [f"{fmean(run.repeats for run in outcomes):.1f}", f"{fmean(run.covers for run in outcomes):.1%}"]
        print(
            f"| {machine.name} | {machine.overhead_seconds:g} s, {machine.step_seconds:g} s | {machine.within:.0%}"
            f" | {machine.between:.1%} | {' | '.join(cells)} | {times[1] / times[0]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
