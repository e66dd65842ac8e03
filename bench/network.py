"""What a slow link costs: the same ladder, one device a host, over links of different speed.

    python bench/network.py                     1 and 2 hosts, three links, a quarter of an hour
    python bench/network.py --repeats 4         with narrower intervals

AlexNet has 61 million parameters for little arithmetic, Inception v3 24 million for much more: with the same batch,
AlexNet must lose more to a slow link. The program prints the efficiency of two hosts for each link, the share of it
that a slow link leaves, and the ratio of these shares; it ends with 1 where AlexNet keeps as much as Inception v3.

The hosts are those of tests/lab: namespaces on this machine, each on cores of its own, linked by cables whose rate and
delay can be set. Needs root on Linux and two cores. The cores also do what network cards would: both networks lose a
little to that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lab import Lab, needs

MODELS = {"alexnet": "AlexNet", "inceptionv3": "Inception v3"}
BATCH = 4


@dataclass(frozen=True)
class Link:
    name: str
    rate: str | None = None
    delay: str | None = None  # one way


LINKS = (
    Link("unshaped"),
    Link("1 Gbit/s, 1 ms", "1gbit", "1ms"),
    Link("100 Mbit/s, 1 ms", "100mbit", "1ms"),
)


def measure(link: Link, cores: list[int], repeats: int, folder: Path) -> dict[str, dict[str, Any]]:
    """By model, its point on two hosts, from a run of its own over that link."""
    output = folder / link.name.replace("/", " per ")
    with Lab(2, rate=link.rate, delay=link.delay, cores=[[core] for core in cores]) as lab:
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{lab.address(name)} {name}\n" for name in lab.hosts))
        words = [
            sys.executable, "-m", "trainscale", "run", "--hosts", str(hosts),
            "--device", "cpu", "--cores-per-device", "1", "--models", ",".join(f"{model}:{BATCH}" for model in MODELS),
            "--devices", "1,2", "--warmup", "2", "--steps", "3", "--repeats", str(repeats),
            "--output", str(output),
        ]  # fmt: skip
        done = lab.run(words, cwd=folder, stdout=sys.stderr, env={**os.environ, "COLUMNS": "120"})
    if done.returncode:
        sys.exit(f"network.py: the run over {link.name} ended with {done.returncode}; see above")
    found = {}
    for series in json.loads((output / "results.json").read_text())["series"]:
        found[series["config"]["model"]] = next(point for point in series["points"] if point["hosts"] == 2)
    return found


def words(share: dict[str, float | None]) -> str:
    low, high = share["low"], share["high"]
    limits = "" if low is None or high is None else f" ({100 * low:.1f} … {100 * high:.1f})"
    return f"{100 * (share['mean'] or 0):.1f} %{limits}"


def report(points: dict[Link, dict[str, dict[str, Any]]]) -> bool:
    """Print the tables; whether AlexNet fell further on every shaped link."""
    print(f"\nefficiency of 2 hosts, batch {BATCH} on each (95 % interval)")
    print(f"{'link':20}" + "".join(f"{title:>26}" for title in MODELS.values()))
    for link, found in points.items():
        print(f"{link.name:20}" + "".join(f"{words(found[model]['efficiency']):>26}" for model in MODELS))
    unshaped, *shaped = points
    print(f"\nwhat a link leaves of it\n{'link':20}" + "".join(f"{title:>14}" for title in MODELS.values()), end="")
    print(f"{'ratio':>10}")
    good = True
    for link in shaped:
        left = {
            model: points[link][model]["efficiency"]["mean"] / points[unshaped][model]["efficiency"]["mean"]
            for model in MODELS
        }
        ratio = left["alexnet"] / left["inceptionv3"]
        good = good and ratio < 1
        print(f"{link.name:20}" + "".join(f"{left[model]:>14.3f}" for model in MODELS) + f"{ratio:>10.3f}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="What a slow link costs AlexNet and Inception v3.")
    parser.add_argument("--repeats", type=int, default=2, help="trials of each point (default: 2)")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    reason = needs() or ("two hosts need two cores" if len(cores) < 2 else None)
    if reason:
        sys.exit(f"network.py: {reason}")
    with tempfile.TemporaryDirectory(prefix="trainscale-network-") as folder:
        points = {link: measure(link, cores, options.repeats, Path(folder)) for link in LINKS}
    if report(points):
        print("\nAlexNet falls further than Inception v3 on every shaped link, as it must")
        return 0
    print("\nAlexNet does NOT fall further than Inception v3 on every shaped link")
    return 1


if __name__ == "__main__":
    sys.exit(main())
