"""Measures the same ladder with 5 fixed repeats and with ``--until-interval``, for ``bench/budget.py --measure``."""

import time
from pathlib import Path

import trainscale
from continued_runs import UNFINISHED, compute_device_seconds, continue_run
from trainscale.analyse.statistics import Interval
from trainscale.record.journal import read_trials

UNTIL_INTERVAL, FIXED = "until-interval", "fixed"  # the directories of the runs


def measure(folder: Path, model: str, devices: str, target: float, seconds: float) -> int:
    """Measure, and print what both runs took and found. The exit code is 1 if ``compare`` says that they differ."""
    folder.mkdir(parents=True, exist_ok=True)
    ladder = ("--models", model, "--devices", devices, "--warmup", "10", "--steps", "100")
    runs = {
        UNTIL_INTERVAL: (*ladder, "--until-interval", f"{target:.2%}"),
        FIXED: (*ladder, "--repeats", "5"),
    }
    end = time.monotonic() + seconds
    for name, arguments in runs.items():
        if not continue_run(folder / name, arguments, end):
            print(f"{name} is not complete; the same command continues it")
            return UNFINISHED
    return print_runs(folder)


def print_runs(folder: Path) -> int:
    until, fixed = folder / UNTIL_INTERVAL, folder / FIXED
    whole = compute_device_seconds(read_trials(fixed))
    print("| run | trials | steps of a window | device time | share | images/s | efficiency |")
    print("|" + " --- |" * 7)
    for directory in (until, fixed):
        records = read_trials(directory)
        seconds = compute_device_seconds(records)
        points = trainscale.load(directory).points
        speeds = ", ".join(f"{point.devices}: {_format(point.samples_per_second)}" for point in points)
        efficiencies = ", ".join(f"{point.devices}: {_format(point.efficiency)}" for point in points[1:])
        steps = sorted(record.steps for record in records)
        print(
            f"| {directory.name} | {len(records)} | {steps[0]} to {steps[-1]} | {seconds:.0f} s | {seconds / whole:.2f}"
            f" | {speeds} | {efficiencies} |"
        )
    comparison = trainscale.compare(fixed, until)
    print("\nuntil-interval over the fixed repeats, by compare:", comparison.verdict)
    for point in comparison.points:
        print(f"  {point.devices} devices: {_format(point.ratio)}, {point.verdict}")
    return 1 if comparison.verdict in ("faster", "slower", "mixed") else 0


def _format(interval: Interval | None) -> str:
    if interval is None or interval.low is None or interval.high is None:
        return "unknown"
    return f"{interval.mean:.4g} ± {(interval.high - interval.low) / 2 / interval.mean:.2%}"
