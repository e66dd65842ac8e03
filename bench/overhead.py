"""What the harness costs: its throughput over that of a bare training script, in interleaved repeats of one run.

    python bench/overhead.py                 1 and 2 CPU processes, ResNet-18 on 96-pixel images, aim ≥ 0.98
    python bench/overhead.py --device cuda   one GPU, ResNet-50, bf16, channels-last, compiled, aim ≥ 0.99

Both sides train the same network on the same batch with the same optimizer, threads and cores; the bare side is
bare_torch.py under torchrun, the other side is `trainscale run`. Only the ratio means anything: it is printed for every
pair, and as a mean with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from trainscale.analyse.statistics import mean_interval

HERE = Path(__file__).parent
CPU = {"depth": 18, "size": 96, "batch": 8, "processes": (1, 2), "steps": 40, "warmup": 5, "aim": 0.98}
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
    """Images per second that trainscale finds."""
    gpu = ["--precision", "bf16", "--layout", "nhwc", "--compile"] if device == "cuda" else ["--cores-per-device", "1"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                sys.executable, "-m", "trainscale", "run", "--models", f"resnet{case['depth']}:{case['batch']}",
                "--image-size", str(case["size"]), "--strategy", "local" if processes == 1 else "allreduce",
                "--devices", str(processes), "--steps", str(case["steps"]), "--warmup", str(case["warmup"]),
                "--repeats", "1", "--device", device, "-o", f"{folder}/run", *gpu,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"trainscale failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        record = json.loads(Path(folder, "run", "trials.jsonl").read_text())
    return sum(rank["images"] for rank in record["ranks"]) / max(rank["window_seconds"] for rank in record["ranks"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=7, help="pairs of runs (default: 7)")
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
