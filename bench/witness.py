"""Measures what the witness costs: trials with it and without it, in interleaved pairs.

    python bench/witness.py                                  PyTorch, AlexNet with a batch of 8, 2 devices
    python bench/witness.py --framework jax --model mnist:32 --devices 1 --pairs 20
    python bench/witness.py --paired --model mnist:32        1 and 2 processes, images/s to ±0.5 %: see paired.py

It prints three figures with their 95 % intervals. The first two are what trials with the witness reach, divided by what
those without it reach: images per second, and images per second of processor time, which other programs disturb less.
Both should be 1. The third is the share of a trial's time that the witness takes, by the ranks' own clocks. The
expectation is computed before, once, and its time is printed too; later runs take it from the cache.

Trials differ by several per cent, so the first figure is wide. With --paired there are no trials: in one process, or in
two that train together, blocks of steps that follow the work of a witness alternate with blocks that follow none of it.
The ratio is above 1 if steps are faster after that work.
"""

import argparse
import time

from paired import WITNESS, PairedRanks, compare, limits_text
from trainscale.analyse.statistics import mean_interval
from trainscale.analyse.throughput import compute_samples_per_second
from trainscale.analyse.witness import apply_verdict
from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.hosts import choose_pythons
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure.context import RunContext, run_trial
from trainscale.measure.expectations import Expectations
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Measure


def main() -> None:
    options = _read_options()
    if options.paired:
        _measure_paired(options)
        return
    context, trial = _make_trial(options, options.devices or 2)
    began = time.monotonic()
    expectation = Expectations(context, print).find(trial)
    print(f"expectation: {time.monotonic() - began:.1f} s, or taken from the cache")
    measure = Measure(options.warmup, options.steps)

    def run(witness: bool) -> TrialRecord:
        record = run_trial(context, trial, measure, witness=witness)
        record = apply_verdict(record, expectation if witness else "left out")
        if not record.ok:
            raise SystemExit(f"a trial failed: {record.failure}")
        return record

    speeds, processor_speeds, shares = [], [], []
    for pair in range(options.pairs):
        order = (True, False) if pair % 2 else (False, True)
        records = {witness: run(witness) for witness in order}
        speeds.append(compute_samples_per_second(records[True]) / compute_samples_per_second(records[False]))
        processor_speeds.append(_samples_per_cpu_second(records[True]) / _samples_per_cpu_second(records[False]))
        shares.append(_witness_share(records[True]))
        print(
            f"pair {pair + 1}: images/s {speeds[-1]:.4f}, by processor time {processor_speeds[-1]:.4f},"
            f" share {shares[-1]:.2%}",
            flush=True,
        )
    if len(speeds) > 2:
        _print_ratio("images/s with the witness / without", speeds)
        _print_ratio("the same by processor time", processor_speeds)
        share = mean_interval(shares)
        print(f"share of a trial that the witness takes: {share.mean:.2%} ({share.low:.2%} … {share.high:.2%})")


def _measure_paired(options: argparse.Namespace) -> None:
    """Print a Markdown table with one row for each number of processes."""
    print(f"{options.model}, {options.precision}; at most {options.seconds:g} s of blocks per row\n")
    print("| framework | processes | images/s after a witness / without | 95 % interval | by processor time | blocks |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for processes in (options.devices,) if options.devices else (1, 2):
        context, trial = _make_trial(options, processes)
        python = context.pythons[options.framework]
        result = compare(PairedRanks(context.plan, trial, python, WITNESS), options.seconds)
        cells = [f"`{options.framework}`", processes, f"{result.wall.mean:.4f}", limits_text(result.wall),
                 f"{result.cpu.mean:.4f} ({limits_text(result.cpu)})",
                 f"{result.blocks} of {result.steps} steps of {result.step_seconds * 1000:.0f} ms"]  # fmt: skip
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _samples_per_cpu_second(record: TrialRecord) -> float:
    return sum(rank.samples for rank in record.ranks) / sum(rank.cpu_seconds or 0.0 for rank in record.ranks)


def _witness_share(record: TrialRecord) -> float:
    """Return the time of the rank whose witness took longest, divided by that of the trial."""
    return max(rank.witness.seconds for rank in record.ranks if rank.witness) / record.seconds


def _print_ratio(title: str, ratios: list[float]) -> None:
    ratio = mean_interval(ratios)
    print(f"{title}: {ratio.mean:.4f} ({ratio.low:.4f} … {ratio.high:.4f})")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="measure what the witness costs")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--model", default="alexnet:8")
    parser.add_argument("--strategy", default="")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--devices", type=int, help="default: 2; with --paired, 1 and then 2")
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--paired", action="store_true", help="alternate blocks of steps within processes")
    parser.add_argument("--seconds", type=float, default=300, help="with --paired: limit of each row (default: 300)")
    return parser.parse_args()


def _make_trial(options: argparse.Namespace, devices: int) -> tuple[RunContext, Trial]:
    values = {
        "models": (options.model,),
        "frameworks": (options.framework,),
        "devices": (devices,),
        "precision": (options.precision,),
    }
    if options.strategy:
        values["strategies"] = (options.strategy,)
    experiment = Experiment.of(**values)
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    context = RunContext(plan, LocalLauncher(), choose_pythons((options.framework,), {}))
    return context, Trial(plan.configs[0], devices, repeat=0)


if __name__ == "__main__":
    main()
