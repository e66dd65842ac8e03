"""What a slow link costs: the same ladder, one device a host, over links of different speed.

    python bench/network.py                     1 and 2 hosts, three links, a quarter of an hour
    python bench/network.py --rounds 4          on a machine that others use too

AlexNet has 61 million parameters for little arithmetic, Inception v3 24 million for much more: with the same batch,
AlexNet must lose more to a slow link. The program prints the efficiency of two hosts for each link, the share of it
that a slow link leaves, and the ratio of these shares; it ends with 1 where AlexNet keeps as much as Inception v3.

Links take turns, and every round has its own 1-host points, so that a machine that slows down does not look like a slow
link. The hosts are those of tests/lab: namespaces on this machine, each on a core of its own, linked by cables whose
rate and delay can be set. Needs root on Linux and two cores. The cores also do what network cards would: both networks
lose a little to that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

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


def efficiencies(link: Link, cores: list[int], output: Path) -> dict[str, float]:
    """Of two hosts, by network: one run of the ladder over that link."""
    with Lab(2, rate=link.rate, delay=link.delay, cores=[[core] for core in cores]) as lab:
        hosts = output.with_suffix(".hosts")
        hosts.write_text("".join(f"{lab.address(name)} {name}\n" for name in lab.hosts))
        words = [
            sys.executable, "-m", "trainscale", "run", "--hosts", str(hosts), "--output", str(output),
            "--device", "cpu", "--cores-per-device", "1", "--models", ",".join(f"{model}:{BATCH}" for model in MODELS),
            "--devices", "1,2", "--warmup", "2", "--steps", "3", "--repeats", "1",
        ]  # fmt: skip
        done = lab.run(words, cwd=output.parent)
    if done.returncode:
        sys.exit(f"network.py: the run over {link.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    found = {}
    for series in json.loads((output / "results.json").read_text())["series"]:
        (two,) = [point for point in series["points"] if point["hosts"] == 2]
        found[series["config"]["model"]] = two["efficiency"]["mean"]
    return found


def words(values: list[float], scale: float, digits: int) -> str:
    low, mean, high = (f"{scale * value:.{digits}f}" for value in (min(values), fmean(values), max(values)))
    return f"{mean} ({low} … {high})" if len(values) > 1 else mean


def report(rounds: list[dict[Link, dict[str, float]]]) -> bool:
    """Print the tables; whether AlexNet fell further on every shaped link."""
    unshaped, *shaped = LINKS
    heads = "".join(f"{title:>26}" for title in MODELS.values())
    print(f"\nefficiency of 2 hosts in %, batch {BATCH} on each; mean (lowest … highest) of {len(rounds)} rounds")
    print(f"{'link':20}{heads}")
    for link in LINKS:
        cells = [words([one[link][model] for one in rounds], 100, 1) for model in MODELS]
        print(f"{link.name:20}" + "".join(f"{cell:>26}" for cell in cells))
    print("\nthe share of it that a link leaves, and AlexNet's over Inception v3's")
    print(f"{'link':20}{heads}{'ratio':>10}")
    good = True
    for link in shaped:
        left = {model: [one[link][model] / one[unshaped][model] for one in rounds] for model in MODELS}
        ratio = fmean(left["alexnet"]) / fmean(left["inceptionv3"])
        good = good and ratio < 1
        print(f"{link.name:20}" + "".join(f"{words(left[model], 1, 3):>26}" for model in MODELS) + f"{ratio:>10.3f}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="What a slow link costs AlexNet and Inception v3.")
    parser.add_argument("--rounds", type=int, default=2, help="over all links (default: 2)")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    reason = needs() or ("two hosts need two cores" if len(cores) < 2 else None)
    if reason:
        sys.exit(f"network.py: {reason}")
    rounds: list[dict[Link, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="trainscale-network-") as folder:
        for number in range(options.rounds):
            rounds.append({})
            for place, link in enumerate(LINKS):
                rounds[-1][link] = efficiencies(link, cores, Path(folder) / f"{number}-{place}")
                found = ", ".join(f"{MODELS[model]} {share:.1%}" for model, share in rounds[-1][link].items())
                print(f"round {number + 1}, {link.name}: {found}", flush=True)
    good = report(rounds)
    verdict = "falls further" if good else "does NOT fall further"
    print(f"\nAlexNet {verdict} than Inception v3 on every shaped link")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
