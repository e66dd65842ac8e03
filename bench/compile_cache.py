"""Measures what kept programs save, and that they do not change a window: trials with the cache and without it, in
interleaved pairs.

    python bench/compile_cache.py                                  JAX, Deep MNIST with a batch of 64, 1 CPU device
    python bench/compile_cache.py --framework torch --compile --device cuda --model resnet50:256 --pairs 4

The cache is a new folder, which a first trial fills. It prints, with 95 % intervals over the pairs, what warm trials
reach divided by what cold ones reach: images per second, images per second of processor time, and the seconds that a
trial takes besides its window. The first two should be 1.
"""

import argparse
import math
import os
import tempfile

from trainscale.analyse.statistics import mean_interval
from trainscale.analyse.throughput import compute_samples_per_second
from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.hosts import choose_pythons
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure.context import RunContext, run_trial
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Measure
from trainscale.worker.sample import COLD, WARM


def main() -> None:
    options = _read_options()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        first = _run(options, keeps=True)
        print(f"first trial: {first.compilation}, {_besides(first):.1f} s besides its window", flush=True)
        rows = [_run_pair(options, pair) for pair in range(options.pairs)]
    names = ("images/s", "images/s of processor time", "seconds besides the window")
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        print(f"{name}, warm / cold: {_ratio(column)}")


def _run_pair(options: argparse.Namespace, pair: int) -> tuple[float, float, float]:
    """Return the logarithms of the ratios of a warm trial and a cold one."""
    order = (True, False) if pair % 2 else (False, True)
    records = {keeps: _run(options, keeps) for keeps in order}
    warm, cold = records[True], records[False]
    if (warm.compilation, cold.compilation) != (WARM, COLD):
        raise SystemExit(f"the trials were {warm.compilation} and {cold.compilation}, not warm and cold")
    ratios = (
        compute_samples_per_second(warm) / compute_samples_per_second(cold),
        _samples_per_cpu_second(warm) / _samples_per_cpu_second(cold),
        _besides(warm) / _besides(cold),
    )
    print(
        f"pair {pair + 1}: images/s {ratios[0]:.4f}, by processor time {ratios[1]:.4f}, besides the window"
        f" {_besides(warm):.1f} s and {_besides(cold):.1f} s",
        flush=True,
    )
    return tuple(math.log(ratio) for ratio in ratios)  # type: ignore[return-value]


def _run(options: argparse.Namespace, keeps: bool) -> TrialRecord:
    experiment = Experiment.of(
        models=(options.model,),
        frameworks=(options.framework,),
        strategies=("allreduce" if options.devices > 1 else "local",),
        devices=(options.devices,),
        device=options.device,
        compile=options.compile,
        cache=keeps,
    )
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    context = RunContext(plan, LocalLauncher(), choose_pythons((options.framework,), {}))
    measure, trial = Measure(options.warmup, options.steps), Trial(plan.configs[0], options.devices, 0)
    record = run_trial(context, trial, measure, witness=True)
    if not record.ok:
        raise SystemExit(f"a trial failed: {record.failure}")
    return record


def _besides(record: TrialRecord) -> float:
    return record.seconds - max(rank.window_seconds for rank in record.ranks)


def _samples_per_cpu_second(record: TrialRecord) -> float:
    return sum(rank.samples for rank in record.ranks) / sum(rank.cpu_seconds or 0.0 for rank in record.ranks)


def _ratio(logarithms: tuple[float, ...]) -> str:
    interval = mean_interval(logarithms)
    if interval.low is None or interval.high is None:
        return f"{math.exp(interval.mean):.3f}"
    return f"{math.exp(interval.mean):.3f} ({math.exp(interval.low):.3f} … {math.exp(interval.high):.3f})"


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", default="jax")
    parser.add_argument("--model", default="mnist:64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
