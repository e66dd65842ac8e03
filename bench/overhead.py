"""Measures what the harness costs: the throughput of a trial over that of a bare training script, in interleaved pairs.

    python bench/overhead.py                              PyTorch, 1 and 2 CPU processes, ResNet-18 on 96-pixel images
    python bench/overhead.py --framework jax              another framework: tensorflow, keras-jax, mxnet, …; 1 process
    python bench/overhead.py --device cuda                one GPU, ResNet-50, bf16, channels-last, compiled
    python bench/overhead.py --device cuda --framework jax

Both sides train the same network on the same batch, with the same optimizer, threads, cores and allocator settings, in
the same interpreter. The bare side is bare_NAME.py, written as a user of that framework would write it (Keras with
`fit`); the other side is one trial of trainscale. Only the ratio is meaningful: the program prints it for every pair,
and the mean with its 95 % interval. Two runs of the same program in fresh processes differ by several per cent on most
machines, so a mean to one per cent needs many short pairs, not a few long ones.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trainscale.analyse.statistics import mean_interval
from trainscale.analyse.throughput import samples_per_second
from trainscale.cluster.devices import find_local_devices
from trainscale.launch.inspection.pythons import choose_pythons
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.run.context import RunContext
from trainscale.run.trial import run_trial
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.allocator import ALLOCATORS, TUNED
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.inspection.machine import read_machine
from trainscale.worker.job import Measure

HERE = Path(__file__).parent
GPU_AIM = 0.99
TORCH_AIM, AIM = 0.98, 0.97  # on the CPU: of PyTorch, and of the other frameworks


@dataclass(frozen=True)
class Case:
    framework: str
    device: str
    depth: int
    size: int
    batch: int
    warmup: int
    steps: int

    @property
    def aim(self) -> float:
        if self.device == "cuda":
            return GPU_AIM
        return TORCH_AIM if self.framework == "torch" else AIM

    @property
    def processes(self) -> tuple[int, ...]:
        return (1, 2) if self.framework == "torch" and self.device == "cpu" else (1,)

    @property
    def python(self) -> str:
        return choose_pythons([self.framework], {})[self.framework]


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
    settings = (
        {"precision": "bf16", "layout": "nhwc", "compile": True} if case.device == "cuda" else {"cores_per_device": 1}
    )
    if case.framework == "torch" and case.device == "cpu":
        settings["layout"] = "nchw"  # the layout of the bare script
    experiment = Experiment.of(
        models=(f"resnet{case.depth}:{case.batch}",),
        frameworks=(case.framework,),
        image_size=case.size,
        strategies=("local" if processes == 1 else "allreduce",),
        devices=(processes,),
        device=case.device,
        **settings,
    )
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    trial = Trial(plan.configs[0], processes, repeat=0)
    measure = Measure(case.warmup, case.steps)
    record = run_trial(RunContext(plan, LocalLauncher(), {case.framework: case.python}), trial, measure)
    if not record.ok:
        raise SystemExit(f"trainscale failed: {record.failure}")
    return samples_per_second(record)


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
    parser.add_argument("--framework", default="torch", choices=tuple(FRAMEWORKS))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=20, help="pairs of runs (default: 20)")
    options = parser.parse_args()
    sizes = (50, 224, 256, 10, 100) if options.device == "cuda" else (18, 96, 8, 3, 20)
    case = Case(options.framework, options.device, *sizes)
    print(f"ResNet-{case.depth}, {case.size} pixels, batch {case.batch} per process, {case.framework}, {case.device}")
    results = [compare(case, processes, options.repeats) for processes in case.processes]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
