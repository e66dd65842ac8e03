"""Compares the images/s of the input pipeline with those of torch's DataLoader and of tf.data, in interleaved rounds.

    python bench/input.py                                 MNIST and CIFAR-10, where `trainscale data get` puts them
    python bench/input.py --photographs DIR               and photographs: train/ and val/, each with a folder per class
    python bench/input.py --only crop,enlarge --rounds 20

No network is trained: the program takes batches as fast as they come and discards them. All pipelines read the same
files on the same cores, with as many loader processes (torch's workers, tf.data's threads) as there are cores; they
shuffle, and return batches of 8-bit pixels and their labels. The other two are in bare_input_NAME.py, written as their
users write them. Every round measures each pipeline once, in fresh processes and in alternating order. Only the ratios
are meaningful. The ratios of processor time (of all processes of a pipeline) also hold on a machine that others use.
"""

import argparse
import itertools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from input_clock import measure_batches, parse_arguments
from trainscale.analyse.statistics import Interval, mean_interval
from trainscale.launch.hosts import choose_pythons
from trainscale.spec.data import find_dataset
from trainscale.worker.config import Config
from trainscale.worker.data.facts import DataError, read_facts
from trainscale.worker.data.loader import BatchRequest, Loader
from trainscale.worker.job import WORKER, Device, Job

HERE = Path(__file__).parent
AIM = 1.0
OURS = "trainscale"
# By default tf.image.resize applies no anti-aliasing filter when it shrinks an image; Pillow's and torchvision's resize
# do. Both forms are measured. Only the one that does the same work counts for the result.
ALIASED, ALIASING = "-aliased", {("tensorflow", "photographs")}
_OURS = "BENCH_INPUT_OURS"  # set in the process that measures our pipeline


@dataclass(frozen=True)
class Case:
    data: str
    size: int
    batch: int
    description: str


CASES = {
    "digits": Case("mnist", 28, 128, "MNIST, 28 pixels, as stored"),
    "crop": Case("cifar10", 28, 128, "CIFAR-10, random crop of 28 pixels, mirrored"),
    "enlarge": Case("cifar10", 299, 32, "CIFAR-10 enlarged to 299 pixels"),
    "photographs": Case("imagefolder", 224, 32, "photographs, random resized crop of 224 pixels, mirrored"),
}


def ours() -> None:
    """Measure our loader processes; ``measure`` starts this in a process."""
    options = parse_arguments()
    case = CASES[options.name]
    directory, channels = str(options.directory), 1 if case.data == "mnist" else 3
    config = Config("torch", "mnist", case.batch, "local", case.size, 10, channels, data=case.data)
    job = Job(WORKER, 0, 1, 0, ("",), (1,), 2, Device(), config, case.batch, data_dir=directory)
    steps = range(read_facts(case.data, directory).train // case.batch)
    loader = Loader(job, options.loaders)
    measure_batches(
        loader.load_batches(BatchRequest(step, epoch) for epoch in itertools.count() for step in steps), options
    )
    loader.close()


def measure(side: str, name: str, directory: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return the images per second, and per second of processor time, of one pipeline in a fresh process."""
    case = CASES[name]
    framework = "torch" if side == OURS else side.removesuffix(ALIASED)
    script = Path(__file__) if side == OURS else HERE / f"bare_input_{framework}.py"
    argv = [name, directory, "--size", case.size, "--batch", case.batch, "--loaders", options.loaders,
            "--seconds", options.seconds, *(["--alias"] if side.endswith(ALIASED) else [])]  # fmt: skip
    cores = sorted(os.sched_getaffinity(0))[: options.loaders]
    done = subprocess.run(
        [choose_pythons([framework], {})[framework], str(script), *map(str, argv)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        env={**os.environ, _OURS: "1" if side == OURS else ""},
    )
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-2000:]}")
    speeds = done.stdout.split("images/s")[1].split()
    return float(speeds[0]), float(speeds[-1])


def compare(name: str, directory: str, options: argparse.Namespace) -> bool:
    """Print the ratios and return whether our pipeline is as fast as the others, on the mean over the rounds."""
    others = [*options.against, *(side + ALIASED for side in options.against if (side, name) in ALIASING)]
    sides = [OURS, *others]
    speeds: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    print(f"{CASES[name].description}; batch {CASES[name].batch}, {options.loaders} loaders", flush=True)
    for number in range(options.rounds):
        for side in sides if number % 2 else sides[::-1]:
            speeds[side].append(measure(side, name, directory, options))
        summary = ", ".join(f"{side} {speeds[side][-1][0]:,.0f}" for side in sides)
        print(f"  round {number + 1}: {summary} images/s", flush=True)
    is_fast_enough = True
    for other in others:
        pairs = list(zip(speeds[OURS], speeds[other], strict=True))
        by_time, by_processor = (mean_interval([a[i] / b[i] for a, b in pairs]) for i in range(2))
        print(
            f"{name}: {OURS} / {other} = {_format(by_time)} by time, {_format(by_processor)} by processor time,"
            f" aim ≥ {AIM:g}",
            flush=True,
        )
        is_fast_enough = is_fast_enough and (by_time.mean >= AIM or other.endswith(ALIASED))
    return is_fast_enough


def _format(ratio: Interval) -> str:
    return f"{ratio.mean:.2f}" + (f" (95 %: {ratio.low:.2f} … {ratio.high:.2f})" if ratio.low is not None else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", metavar="DIR", help="folder of MNIST (default: where `trainscale data get` puts it)")
    parser.add_argument(
        "--cifar10", metavar="DIR", help="folder of CIFAR-10 (default: where `trainscale data get` puts it)"
    )
    parser.add_argument("--photographs", metavar="DIR", help="folder of photographs (default: skip that case)")
    parser.add_argument("--only", default=",".join(CASES), help="cases to measure (default: %(default)s)")
    parser.add_argument(
        "--against", default="torch,tensorflow", help="pipelines to compare with (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement (default: %(default)s)")
    parser.add_argument("--loaders", type=int, default=min(8, len(os.sched_getaffinity(0))))
    options = parser.parse_args()
    options.against = [side for side in options.against.split(",") if side]
    results = []
    for name in options.only.split(","):
        data = CASES[name].data
        folder = options.photographs if name == "photographs" else getattr(options, data)
        if name == "photographs" and not folder:
            print("photographs: skipped; name a folder with --photographs DIR")
            continue
        dataset = find_dataset(f"{data}:{folder}" if folder else data)
        try:
            _ = dataset.facts  # refuses a damaged folder
            dataset.check()
        except (DataError, ValueError) as error:
            raise SystemExit(str(error)) from None
        results.append(compare(name, dataset.directory, options))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(ours() if os.environ.get(_OURS) else main())
