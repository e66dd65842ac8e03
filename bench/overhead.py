"""Measures what the harness costs: the throughput of a trial over that of a bare training script, in interleaved pairs.

    python bench/overhead.py                              PyTorch, 1 and 2 CPU processes, ResNet-18 on 96-pixel images
    python bench/overhead.py --framework jax              another framework: tensorflow, keras-jax, mxnet, …; 1 process
    python bench/overhead.py --device cuda                one GPU, ResNet-50, bf16, channels-last, compiled
    python bench/overhead.py --device cuda --framework jax
    python bench/overhead.py --paired                     every framework, 1 and 2 processes, to ±0.5 %: see paired.py

Without --paired, both sides train the same network on the same batch, with the same optimizer, threads, cores and
allocator settings, in the same interpreter. The bare side is bare_NAME.py, written as a user of that framework would
write it (Keras with `fit`); the other side is one trial of trainscale. Only the ratio is meaningful: the program prints
it for every pair, and the mean with its 95 % interval. Two runs of the same program in fresh processes differ by
several per cent on most machines, so a mean to one per cent needs many short pairs, not a few long ones.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import paired
from case import Case
from trainscale.analyse.statistics import mean_interval
from trainscale.analyse.throughput import compute_samples_per_second
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure.context import RunContext, run_trial
from trainscale.worker.config import ALLOCATORS, TUNED
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.job import Measure

HERE = Path(__file__).parent


def bare(case: Case, processes: int) -> float:
    """Return the images per second that the bare script prints."""
    script, _, backend = case.framework.partition("-")
    argv = ["--depth", case.depth, "--image-size", case.size, "--batch", case.batch, "--steps", case.steps,
            "--warmup", case.warmup]  # fmt: skip
    if script in ("torch", "jax", "tensorflow"):
        argv += ["--device", case.device]
    if case.framework == "keras-torch":
        argv.append("--channels-first")  # the layout that the harness uses there
    if case.device == "cuda":
        argv += ["--bf16", *(["--channels-last", "--compile"] if script == "torch" else [])]
    interpreter = [case.python]
    if script == "torch":
        interpreter += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", "0",
                        "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]  # fmt: skip
    done = subprocess.run(
        [*interpreter, str(HERE / f"bare_{script}.py"), *map(str, argv)],
        capture_output=True,
        text=True,
        check=False,
        env={**ALLOCATORS[TUNED], **os.environ, **({"KERAS_BACKEND": backend} if backend else {})},
    )
    if done.returncode:
        raise SystemExit(f"the bare script failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split("images/s")[1].split()[0])


def harness(case: Case, processes: int) -> float:
    """Return the images per second of one trial, run as `trainscale run` runs it."""
    plan, trial = case.make_trial(processes)
    measure = Measure(case.warmup, case.steps)
    record = run_trial(RunContext(plan, LocalLauncher(), {case.framework: case.python}), trial, measure)
    if not record.ok:
        raise SystemExit(f"trainscale failed: {record.failure}")
    return compute_samples_per_second(record)


def compare(case: Case, processes: int, repeats: int) -> bool:
    """Return whether the mean ratio over these pairs reaches the aim. The sides take turns to go first."""
    ratios = []
    for repeat in range(repeats):
        sides = [("bare", bare), ("harness", harness)]
        speeds = {name: run(case, processes) for name, run in (sides if repeat % 2 else sides[::-1])}
        ratios.append(speeds["harness"] / speeds["bare"])
        print(
            f"  {case.framework}, {processes} process(es), pair {repeat + 1}: bare {speeds['bare']:,.1f}, harness"
            f" {speeds['harness']:,.1f} images/s, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    mean = mean_interval(ratios)
    interval = f" (95 %: {mean.low:.3f} … {mean.high:.3f})" if mean.low is not None else ""
    print(
        f"{case.framework}, {processes} process(es): harness / bare = {mean.mean:.3f}{interval}, aim ≥ {case.aim}",
        flush=True,
    )
    return mean.mean >= case.aim


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--framework", choices=(*FRAMEWORKS, "all"), help="default: torch; with --paired, all that this machine has"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=20, help="pairs of runs (default: 20)")
    parser.add_argument(
        "--paired", action="store_true", help="alternate both loops in one process; see bench/paired.py"
    )
    parser.add_argument(
        "--processes", type=int, choices=(1, 2), help="default: 1 and 2 on CPUs, but 1 only for other frameworks than"
        " torch without --paired"
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=300, help="with --paired: limit of each row (default: 300)")
    options = parser.parse_args()
    framework = options.framework or ("all" if options.paired else "torch")
    cases = [Case.usual(name, options.device) for name in (FRAMEWORKS if framework == "all" else (framework,))]
    runs = [(case, count) for case in cases for count in process_counts(case, options.processes, options.paired)]
    if options.paired:
        return 0 if paired.measure(runs, options.seconds) else 1
    print(cases[0].describe())
    results = [compare(case, processes, options.repeats) for case, processes in runs]
    return 0 if all(results) else 1


def process_counts(case: Case, requested: int | None, is_paired: bool) -> tuple[int, ...]:
    """Return the numbers of processes to measure. Only PyTorch has a bare script for two."""
    if case.device == "cuda" or (not is_paired and case.framework != "torch"):
        return (1,)
    return (requested,) if requested else (1, 2)


if __name__ == "__main__":
    sys.exit(main())
