"""Measures how long a journal takes to open and to append to, with 1,000 and with 100,000 trials.

python bench/journal.py [--trials 100000] [--ranks 1] [--steps 20] [--like DIR]

With --like, all trials have the content of the first trial of that run, which may be much more. Each size gets a
process of its own. The program ends with 1 if the large journal takes 2 s or more to open.
"""

import argparse
import functools
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from trainscale.record.journal import TRIALS, open_journal, read_trials
from trainscale.record.run import RunInfo
from trainscale.record.trial import OK, MachineLoad, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial

_RUN = RunInfo({"bench": "journal"})
_SMALL = 1000
_REPEATS = 50  # of each point
_APPENDS = 50
_MOST_SECONDS = 2.0


def make_record(number: int, options: argparse.Namespace) -> TrialRecord:
    """Return a record as a trial on CPUs leaves it. Each config has 50 repeats on each of 8 device counts."""
    point = number // _REPEATS
    config = Config("torch", "mnist", 8 + point // 8, "allreduce", 28, 10)
    trial = Trial(config, 2 ** (point % 8), number % _REPEATS)
    if options.like:
        return replace(_first_record(options.like), trial=trial)
    ranks, steps = options.ranks, options.steps
    samples = tuple(
        RankSample(
            rank=rank, host="node1", samples=32 * steps, window_seconds=0.1 * steps,
            step_seconds=tuple(round(random.gauss(0.1, 0.001), 6) for _ in range(steps)),
            startup_seconds=1.5, first_step_seconds=0.2, first_loss=2.3, last_loss=2.2,
            weights_digest="0123456789abcdef", host_peak_bytes=10**9, cpu_seconds=0.1 * steps,
        )
        for rank in range(ranks)
    )  # fmt: skip
    versions = {"torch": "2.13.0", "numpy": "2.4.0"}
    return TrialRecord(trial, OK, "2026-01-01T00:00:00+00:00", 12.5, 1, 10, steps, samples, versions=versions,
                       machine=MachineLoad(0.1, 0.01))  # fmt: skip


@functools.cache
def _first_record(directory: Path) -> TrialRecord:
    return read_trials(directory)[0]


def write_journal(directory: Path, trials: int, options: argparse.Namespace) -> None:
    open_journal(directory, _RUN).close()
    with (directory / TRIALS).open("w") as file:
        for number in range(trials):
            file.write(json.dumps(make_record(number, options).to_dict(), separators=(",", ":")) + "\n")


def measure(trials: int, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        write_journal(directory, trials, options)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, cpu_began = time.perf_counter(), time.process_time()
        with open_journal(directory, _RUN) as journal:
            opened, cpu_opened = time.perf_counter() - began, time.process_time() - cpu_began
            assert len(journal.records) == trials
            appends = []
            for number in range(trials, trials + _APPENDS):
                record = make_record(number, options)
                cpu_began = time.process_time()
                journal.append(record)
                appends.append(time.process_time() - cpu_began)
            assert len(journal.records) == trials + _APPENDS
        return {
            "megabytes": (directory / TRIALS).stat().st_size / 1e6,
            "open": opened,
            "open_cpu": cpu_opened,
            "append": 1000 * statistics.median(appends),
            "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--like", type=Path, metavar="DIR", help="a run whose first trial gives the content")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return 0
    print("  trials       MB   open s  CPU of it  append ms (CPU)  memory MiB")
    results = []
    for trials in (_SMALL, options.trials):
        command = [sys.executable, __file__, "--one", str(trials)]
        command += ["--ranks", str(options.ranks), "--steps", str(options.steps)]
        command += ["--like", str(options.like)] if options.like else []
        results.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        row = results[-1]
        figures = (row["megabytes"], row["open"], row["open_cpu"], row["append"], row["memory"])
        print(f"{trials:>8}" + "{:>9.1f}{:>9.2f}{:>11.2f}{:>17.2f}{:>12.0f}".format(*figures), flush=True)
    print(f"an append to the large journal takes {results[1]['append'] / results[0]['append']:.2f} times as long")
    return int(results[1]["open_cpu"] >= _MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
