"""Measures what a slow link costs: runs the same ladder, with one device per host, over links of different speed.

    python bench/network.py                     1 and 2 hosts, three links, a quarter of an hour
    python bench/network.py --rounds 4          on a machine that others use too

AlexNet has 61 million parameters and little arithmetic, Inception v3 24 million and much more. With the same batch,
AlexNet must lose more to a slow link. The program prints the efficiency of two hosts for each link, the share of it
that remains on a slow link, and the ratio of these shares. It exits with 1 if AlexNet keeps as much as Inception v3.

The links take turns, and every round measures its own 1-host points, so that a machine that slows down does not look
like a slow link. The hosts come from tests/lab: namespaces on this machine, each on its own core, with links whose rate
and delay can be set. The program needs root on Linux and two cores. The cores also do the work of network cards, which
costs both networks a little.
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lab import Lab, missing_requirement

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
    """Run the ladder over this link and return the efficiency of two hosts, by network."""
    with Lab(2, rate=link.rate, delay=link.delay, cores=[[core] for core in cores]) as lab:
        hosts = output.with_suffix(".hosts")
        hosts.write_text("".join(f"{lab.address(name)} {name}\n" for name in lab.hosts))
        argv = [
            sys.executable, "-m", "trainscale", "run", "--hosts", str(hosts), "--output", str(output),
            "--device", "cpu", "--cores-per-device", "1", "--models", ",".join(f"{model}:{BATCH}" for model in MODELS),
            "--devices", "1,2", "--warmup", "2", "--steps", "3", "--repeats", "1",
        ]  # fmt: skip
        done = lab.run(argv, cwd=output.parent)
    if done.returncode:
        sys.exit(f"network.py: the run over {link.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    efficiency_by_model = {}
    for series in json.loads((output / "results.json").read_text())["series"]:
        (two,) = [point for point in series["points"] if point["hosts"] == 2]
        efficiency_by_model[series["config"]["model"]] = two["efficiency"]["mean"]
    return efficiency_by_model


def format_range(values: list[float], scale: float, digits: int) -> str:
    low, mean, high = (f"{scale * value:.{digits}f}" for value in (min(values), fmean(values), max(values)))
    return f"{mean} ({low} … {high})" if len(values) > 1 else mean


def report(rounds: list[dict[Link, dict[str, float]]]) -> bool:
    """Print the tables and return whether AlexNet lost more on every shaped link."""
    unshaped, *shaped = LINKS
    heads = "".join(f"{title:>26}" for title in MODELS.values())
    print(f"\nefficiency of 2 hosts in %, batch {BATCH} on each; mean (lowest … highest) of {len(rounds)} rounds")
    print(f"{'link':20}{heads}")
    for link in LINKS:
        cells = [format_range([efficiency[link][model] for efficiency in rounds], 100, 1) for model in MODELS]
        print(f"{link.name:20}" + "".join(f"{cell:>26}" for cell in cells))
    print("\nshare of it that remains on a link, and AlexNet's share over Inception v3's")
    print(f"{'link':20}{heads}{'ratio':>10}")
    is_as_expected = True
    for link in shaped:
        shares = {
            model: [efficiency[link][model] / efficiency[unshaped][model] for efficiency in rounds] for model in MODELS
        }
        ratio = fmean(shares["alexnet"]) / fmean(shares["inceptionv3"])
        is_as_expected = is_as_expected and ratio < 1
        print(
            f"{link.name:20}"
            + "".join(f"{format_range(shares[model], 1, 3):>26}" for model in MODELS)
            + f"{ratio:>10.3f}"
        )
    return is_as_expected


def main() -> int:
    parser = argparse.ArgumentParser(description="What a slow link costs AlexNet and Inception v3.")
    parser.add_argument("--rounds", type=int, default=2, help="rounds over all links (default: 2)")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    reason = missing_requirement() or ("two hosts need two cores" if len(cores) < 2 else None)
    if reason:
        sys.exit(f"network.py: {reason}")
    rounds: list[dict[Link, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="trainscale-network-") as folder:
        for number in range(options.rounds):
            rounds.append({})
            for index, link in enumerate(LINKS):
                rounds[-1][link] = efficiencies(link, cores, Path(folder) / f"{number}-{index}")
                summary = ", ".join(f"{MODELS[model]} {share:.1%}" for model, share in rounds[-1][link].items())
                print(f"round {number + 1}, {link.name}: {summary}", flush=True)
    is_as_expected = report(rounds)
    verdict = "loses more" if is_as_expected else "does NOT lose more"
    print(f"\nAlexNet {verdict} than Inception v3 on every shaped link")
    return 0 if is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
