"""What the command line costs before it does anything: `trainscale --help` over a bare interpreter start, interleaved.

python bench/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "trainscale --help": [sys.executable, "-m", "trainscale", "--help"],
    "trainscale models": [sys.executable, "-m", "trainscale", "models"],
}
REPEATS = 30


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    bare = statistics.median(taken["python -c pass"])
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:<18} {median * 1000:6.1f} ms, {median / bare:4.1f} times a bare interpreter")


if __name__ == "__main__":
    main()
