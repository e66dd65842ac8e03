"""Plants causes of lost efficiency in real trials, explains the records, and prints which verdict named which cause.

    python bench/verdicts.py --output DIR                          everything, about half an hour
    python bench/verdicts.py --output DIR --seconds 150            as many repetitions as begin in that time
    python bench/verdicts.py --output DIR --only nothing --repetitions 1

Every repetition measures one device and several that exchange nothing, and several that exchange gradients, three times
each in fresh processes, and asks ``explain_records`` for its verdict. The results are kept in DIR/verdicts.json, the
records beside it, and the same command continues. The program ends with 1 if a verdict did not name its cause.

It needs two cores that nothing else uses; as root, ``nice -n -15`` before the command keeps other programs off. The
slow link needs root, too: its hosts are those of tests/lab.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from environments import python_for
from forked_frameworks import launcher_for
from small_sets import write_cifar10

from lab import Lab, missing_requirement
from planted_causes import CAUSES, Cause, Watcher, take_priority
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.launch.trial.state import TrialState
from trainscale.measure.context import RunContext, run_trial
from trainscale.questions.explain.explain import SLOW_RANK, PointExplanation, explain_records
from trainscale.questions.explain.text import describe_verdict
from trainscale.record.journal import read_trials
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Config, Trial, remove_exchange
from trainscale.spec.devices import LOCALHOST, LOOPBACK, AvailableDevices, Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.job import Measure

NETWORKS = Path(__file__).parents[1] / "tests" / "support"  # the folder of nets.py, whose networks are trained
REPEATS = 3
MEASURE = Measure(warmup=5, steps=40)


def run_cause(cause: Cause, folder: Path, journal: Path | None = None) -> PointExplanation:
    """Measure, and explain the records. With ``journal`` they are kept there, a line for each trial."""
    records = _over_links(cause, folder) if cause.link else _on_this_machine(cause, folder)
    if journal is not None:
        journal.write_text("".join(json.dumps(record.to_dict()) + "\n" for record in records))
    failed = [record.failure for record in records if not record.ok]
    if failed:
        raise RuntimeError(f"a trial failed: {failed[0]}")
    return explain_records(records)[-1]


def _on_this_machine(cause: Cause, folder: Path) -> list[TrialRecord]:
    """Measure every point three times, in rounds."""
    plan = _plan(cause, folder)
    config = plan.configs[0]
    points: list[tuple[Config, int]] = [
        (remove_exchange(config), 1),
        *(((config, 1),) if config.servers else ()),
        (remove_exchange(config), len(cause.cores)),
        (config, len(cause.cores)),
    ]
    python = python_for("torch")
    os.chdir(NETWORKS)  # ranks look for networks in the current folder
    records = []
    with cause.plant(folder) as watch:
        launcher = launcher_for(python, "torch", config.precision) if cause.forks else LocalLauncher()
        context = RunContext(plan, launcher, {"torch": python})
        for repeat in range(REPEATS):
            records += [_trial(context, Trial(*point, repeat), watch) for point in points]
    return records


def _trial(context: RunContext, trial: Trial, watch: Watcher) -> TrialRecord:
    prioritized: set[int] = set()

    def watch_all(state: TrialState) -> None:
        for rank in state.ranks:
            if rank.hello is not None and rank.hello.pid not in prioritized:
                prioritized.add(rank.hello.pid)
                take_priority(rank.hello.pid)
        watch(state)

    return run_trial(context, trial, MEASURE, watch_all)


def _plan(cause: Cause, folder: Path) -> Plan:
    settings: dict[str, Any] = dict(cause.settings)
    if settings.get("data") == "cifar10":
        settings["data"] = f"cifar10:{write_cifar10(folder / 'cifar10', train=8000)}"
    experiment = Experiment.of(
        models=cause.models, strategies=(cause.strategy,), devices=(len(cause.cores),), explain=True, **settings
    )
    host = Host(LOOPBACK, LOCALHOST, devices=cause.devices)
    supply = AvailableDevices("cpu", (host,), 1, f"{len(cause.cores)} CPU devices")
    return make_plan(experiment, supply)


def _over_links(cause: Cause, folder: Path) -> list[TrialRecord]:
    """Run the command on hosts with one core each."""
    with Lab(2, rate=cause.link, cores=[[core] for core in cause.cores]) as lab:
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{lab.address(name)} {name}\n" for name in lab.hosts))
        argv = [
            sys.executable, "-m", "trainscale", "run", "--hosts", str(hosts), "--output", str(folder / "run"),
            "--device", "cpu", "--cores-per-device", "1", "--models", ",".join(cause.models), "--devices", "2",
            "--strategies", f"{cause.strategy},independent", "--explain", "--no-witness",
            "--warmup", "2", "--steps", "6", "--repeats", str(REPEATS),
        ]  # fmt: skip
        done = lab.run(argv, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"the run over the link ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return read_trials(folder / "run")


def label(point: PointExplanation) -> str:
    """Return the verdict; for a slow rank with the reason."""
    if point.verdict != SLOW_RANK:
        return point.verdict
    return f"{SLOW_RANK}: {point.slow_ranks[0].reason}"


def result(point: PointExplanation, seconds: float) -> dict[str, Any]:
    parts = {" and ".join(part.causes): round(part.share, 4) for part in point.parts}
    return {
        "verdict": label(point),
        "parts": parts,
        "step_seconds": point.step_seconds,
        "seconds": round(seconds, 1),
        "sentence": describe_verdict(point),
    }


def print_table(results: dict[str, list[dict[str, Any]]]) -> bool:
    """Print the confusion table in Markdown; return whether every verdict named its cause."""
    verdicts = list(dict.fromkeys(entry["verdict"] for name in CAUSES for entry in results.get(name, [])))
    print(f"| planted | repetitions | named | {' | '.join(verdicts)} |")
    print("| --- " * (3 + len(verdicts)) + "|")
    is_right = True
    for name, cause in CAUSES.items():
        counts = Counter(entry["verdict"] for entry in results.get(name, []))
        named = sum(counts[expected] for expected in cause.expected)
        is_right = is_right and named == counts.total()
        cells = [str(counts[verdict] or "") for verdict in verdicts]
        print(f"| {name} | {counts.total()} | {named} | {' | '.join(cells)} |")
    return is_right


def main() -> int:
    parser = argparse.ArgumentParser(description="Which verdict names which planted cause.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the folder of verdicts.json")
    parser.add_argument("--repetitions", type=int, default=5, help="of every cause (default: 5)")
    parser.add_argument("--only", choices=list(CAUSES), action="append", help="plant only this cause; may be repeated")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no repetition after this time")
    options = parser.parse_args()
    began = time.monotonic()
    take_priority("self")
    options.output.mkdir(parents=True, exist_ok=True)
    file = (options.output / "verdicts.json").absolute()
    results: dict[str, list[dict[str, Any]]] = json.loads(file.read_text()) if file.exists() else {}
    reason = missing_requirement()
    for repetition in range(options.repetitions):
        for name in options.only or CAUSES:
            if len(results.get(name, [])) > repetition or time.monotonic() - began > options.seconds:
                continue
            if CAUSES[name].link and reason:
                print(f"{name}: left out, {reason}")
                continue
            with tempfile.TemporaryDirectory(prefix="trainscale-verdicts-") as folder, contextlib.chdir(folder):
                start = time.monotonic()
                journal = file.with_name(f"{'-'.join(re.findall('[a-z0-9]+', name.lower()))}-{repetition + 1}.jsonl")
                point = run_cause(CAUSES[name], Path(folder), journal)
            results.setdefault(name, []).append(result(point, time.monotonic() - start))
            file.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
            print(f"{name}, {len(results[name])}: {label(point)}: {describe_verdict(point)}", flush=True)
    return 0 if print_table(results) else 1


if __name__ == "__main__":
    sys.exit(main())
