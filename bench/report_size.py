"""Measures `trainscale report` on runs of many trials: seconds and memory, and how both grow with the trials.

python bench/report_size.py [--trials 1000,10000,100000] [--memory-limit 2]

A run has 200 series of 10 device counts, or fewer where it has fewer trials; the repeats make up the rest. The command
runs in a process of its own, whose memory may be limited: a report that needs more fails.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "analyse")]

from full_run import full_run, many_records  # noqa: E402

from trainscale.record.journal import RUN, TRIALS, open_journal  # noqa: E402

SERIES, COUNTS = 200, 10


def write_journal(directory: Path, trials: int) -> int:
    """Write a run of so many trials, and return the bytes of its journal. Only the repeats differ, by their number."""
    open_journal(directory, full_run()).close()
    series = min(SERIES, max(1, trials // (COUNTS * 5)))
    records = many_records(series, repeats=5)
    repeats = trials // (series * COUNTS)
    with (directory / TRIALS).open("w") as file:
        for repeat in range(repeats):
            for record in records:
                if record.trial.repeat == repeat % 5:
                    again = replace(record, trial=replace(record.trial, repeat=repeat))
                    file.write(json.dumps(again.to_dict(), separators=(",", ":")) + "\n")
    assert (directory / RUN).exists()
    return (directory / TRIALS).stat().st_size


def measure(directory: Path, limit: int) -> tuple[float, float, int]:
    """Return wall and processor seconds, and the bytes of memory that `trainscale report` used at most."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "trainscale", "report", str(directory)],
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)) if limit else None,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"trainscale report ended with exit code {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", default="1000,10000,100000", help="numbers of trials (default: 1000,10000,100000)")
    parser.add_argument("--memory-limit", type=float, default=0, metavar="GIB", help="of the command (default: none)")
    options = parser.parse_args()
    for trials in map(int, options.trials.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            size = write_journal(Path(folder) / "run", trials)
            wall, cpu, memory = measure(Path(folder) / "run", int(options.memory_limit * 2**30))
            print(
                f"{trials:>7,} trials, journal of {size / 1e6:.0f} MB: {wall:.1f} s ({cpu:.1f} s of a core),"
                f" {memory / 2**20:.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
