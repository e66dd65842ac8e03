"""``python -m tests.chaos --minutes 60``: run the fault campaign and write its report."""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

# As pytest does it: the lab is a package of tests/, helpers are modules of tests/support.
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from .campaign import CampaignSettings, Outcome, count_faults, run_campaign
from .faults import FAULTS, LAUNCHERS
from .places import unavailable
from .report import count_violations, markdown, outcome_line
from .scenario import Scenario


def main() -> int:
    options = _parser().parse_args()
    patterns = options.faults.split(",")
    faults = [fault for fault in FAULTS if any(fnmatch(fault.name, pattern) for pattern in patterns)]
    launchers = []
    for name in options.launchers.split(","):
        reason = unavailable(name)
        if reason:
            print(f"without {name}: {reason}", flush=True)
        else:
            launchers.append(name)
    if not faults or not launchers:
        print("no fault or no launcher is left", file=sys.stderr)
        return 2

    def report(scenario: Scenario, outcome: Outcome, seconds: float) -> None:
        print(outcome_line(scenario, outcome, seconds), flush=True)

    seconds = options.minutes * 60
    settings = CampaignSettings(launchers, faults, options.at_once, seconds, options.count, options.patience, report)
    first = int(time.time()) if options.seed is None else options.seed
    seeds = itertools.count(first) if options.only is None else iter([options.only])
    outcomes = run_campaign(seeds, settings)
    text = markdown(outcomes, f"python -m tests.chaos {shlex.join(sys.argv[1:])}")
    if options.report:
        options.report.write_text(text)
    print(f"\n{text}\n{count_faults(outcomes)} faults, {count_violations(outcomes)} violations")
    return int(count_violations(outcomes) > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further run after this time")
    parser.add_argument("--count", type=int, help="begin no further run after so many faults")
    parser.add_argument("--seed", type=int, help="the first seed (default: by the clock)")
    parser.add_argument("--only", type=int, metavar="SEED", help="repeat the run of this seed")
    parser.add_argument("--launchers", default=",".join(LAUNCHERS), help="a list (default: %(default)s)")
    parser.add_argument("--faults", default="*", help="patterns, such as 'rank:*,host: power-off'")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time (default: 2)")
    parser.add_argument(
        "--patience", type=int, default=1, metavar="N", help="multiply the time limits of runs, on a busy machine"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
