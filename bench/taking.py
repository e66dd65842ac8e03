"""The clock of bench/input.py, the same for every side: takes batches for a while and says how many images came, by the
second and by the second of processor time that all processes of the side spent on them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="what is made: digits, crop, enlarge, photographs")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", type=int, help="pixels of a side")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--loaders", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--alias", action="store_true", help="make photographs smaller without a filter")
    return parser.parse_args()


def take(batches: Iterator[Any], options: argparse.Namespace) -> Any:
    """Prints both speeds; gives back the pixels of the last batch."""
    for _ in range(3 * options.loaders):
        pixels = next(batches)[0]
    taken, began, spent = 0, time.perf_counter(), _processor_seconds()
    while time.perf_counter() - began < options.seconds:
        pixels = next(batches)[0]
        taken += 1
    seconds, spent = time.perf_counter() - began, _processor_seconds() - spent
    images = taken * options.batch
    print(f"images/s {images / seconds:.1f} per processor second {images / spent:.1f}")
    return pixels


def _processor_seconds() -> float:
    """Of this process and all that came from it."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(words[1])
        spent[int(entry.name)] = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    total = 0.0
    for number in spent:
        above = number
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        total += spent[number] if above else 0.0
    return total
