"""Measures an input pipeline for bench/input.py: takes batches for a while and prints the images per second of time and
per second of processor time that all processes of the pipeline spent.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="the case: digits, crop, enlarge or photographs")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", type=int, help="width and height of an image in pixels")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--loaders", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--alias", action="store_true", help="shrink photographs without an anti-aliasing filter")
    return parser.parse_args()


def measure_batches(batches: Iterator[Any], options: argparse.Namespace) -> Any:
    """Print both speeds and return the pixels of the last batch."""
    for _ in range(3 * options.loaders):
        pixels = next(batches)[0]
    count, start, processor_start = 0, time.perf_counter(), _processor_seconds()
    while time.perf_counter() - start < options.seconds:
        pixels = next(batches)[0]
        count += 1
    seconds, processor_seconds = time.perf_counter() - start, _processor_seconds() - processor_start
    images = count * options.batch
    print(f"images/s {images / seconds:.1f} per processor second {images / processor_seconds:.1f}")
    return pixels


def _processor_seconds() -> float:
    """Return the processor time of this process and all its descendants."""
    parents, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total = 0.0
    for pid in seconds:
        ancestor = pid
        while ancestor not in (0, os.getpid()):
            ancestor = parents.get(ancestor, 0)
        total += seconds[pid] if ancestor else 0.0
    return total
