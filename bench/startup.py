"""Measures how long the command line takes to start: `trainscale --help` over a bare interpreter, interleaved.

python bench/startup.py
"""

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


def run_seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    seconds_by_command: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, command in COMMANDS.items():
            seconds_by_command[name].append(run_seconds(command))
    bare = statistics.median(seconds_by_command["python -c pass"])
    for name, times in seconds_by_command.items():
        median = statistics.median(times)
        print(f"{name:<18} {median * 1000:6.1f} ms, {median / bare:4.1f} times a bare interpreter")


if __name__ == "__main__":
    main()
