"""What the harness costs: its throughput over that of a bare training script, in interleaved repeats of one run.

    python bench/overhead.py                 1 and 2 CPU processes, ResNet-18 on 96-pixel images, aim ≥ 0.98
    python bench/overhead.py --device cuda   one GPU, ResNet-50, bf16, channels-last, compiled, aim ≥ 0.99

Both sides train the same network on the same batch with the same optimizer, threads and cores; the bare side is
bare_torch.py under torchrun, the other side one trial of trainscale. Only the ratio means anything: it is printed for
every pair, and as a mean with its 95 % interval. Two runs of the same program in fresh processes differ by several per
cent on most machines, so a mean to one per cent needs many short pairs, not a few long ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from trainscale.analyse.statistics import mean_interval
from trainscale.analyse.throughput import images_per_second
from trainscale.cluster.devices import supply
from trainscale.cluster.machine import look
from trainscale.launch.local import LocalLauncher
from trainscale.run.trial import run_trial
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.job import Measure

HERE = Path(__file__).parent
CPU = {"depth": 18, "size": 96, "batch": 8, "processes": (1, 2), "steps": 20, "warmup": 3, "aim": 0.98}
CUDA = {"depth": 50, "size": 224, "batch": 256, "processes": (1,), "steps": 100, "warmup": 10, "aim": 0.99}


def bare(case: dict, processes: int, device: str) -> float:
    """Images per second that the bare script prints."""
    gpu = ["--bf16", "--channels-last", "--compile"] if device == "cuda" else []
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", "0",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(HERE / "bare_torch.py"),
            "--depth", str(case["depth"]), "--image-size", str(case["size"]), "--batch", str(case["batch"]),
            "--steps", str(case["steps"]), "--warmup", str(case["warmup"]), "--device", device, *gpu,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the bare script failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split("images/s")[1].split()[0])


def harness(case: dict, processes: int, device: str) -> float:
    """Images per second of one trial, in fresh processes, as `trainscale run` takes it."""
    gpu = {"precision": "bf16", "layout": "nhwc", "compile": True} if device == "cuda" else {"cores_per_device": 1}
    experiment = Experiment(
        models=(f"resnet{case['depth']}:{case['batch']}",),
        image_size=case["size"],
        strategies=("local" if processes == 1 else "allreduce",),
        devices=(processes,),
        device=device,
        **gpu,
    )
    plan = make_plan(experiment, supply(look(), experiment))
    trial = Trial(plan.configs[0], processes, repeat=0)
    measure = Measure(case["warmup"], case["steps"])
    record = run_trial(trial, measure, plan, LocalLauncher(), {"torch": sys.executable})
    if not record.ok:
        raise SystemExit(f"trainscale failed: {record.failure}")
    return images_per_second(record)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=20, help="pairs of runs (default: 20)")
    options = parser.parse_args()
    case = CUDA if options.device == "cuda" else CPU
    print(f"ResNet-{case['depth']}, {case['size']} pixels, batch {case['batch']} per process, {options.device}")
    good = True
    for processes in case["processes"]:
        ratios = []
        for repeat in range(options.repeats):
            sides = [("bare", bare), ("harness", harness)]
            speed = {name: run(case, processes, options.device) for name, run in (sides if repeat % 2 else sides[::-1])}
            ratios.append(speed["harness"] / speed["bare"])
            print(
                f"  {processes} process(es), pair {repeat + 1}: bare {speed['bare']:,.1f}, harness"
                f" {speed['harness']:,.1f} images/s, ratio {ratios[-1]:.3f}",
                flush=True,
            )
        mean = mean_interval(ratios)
        around = f" (95 %: {mean.low:.3f} … {mean.high:.3f})" if mean.low is not None else ""
        print(f"{processes} process(es): harness / bare = {mean.mean:.3f}{around}, aim ≥ {case['aim']}", flush=True)
        good = good and mean.mean >= case["aim"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
