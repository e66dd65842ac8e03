"""Measures where the time of a trial goes, from the start of its processes to their end.

python bench/trial_phases.py [--frameworks torch,jax] [--models mnist:64] [--device cpu] [--devices 1] [--repeats 3]
                             [--steps 100] [--compile] [--no-cache]

Prints the median seconds of every phase over the repeats. A phase ends when the last rank has reported its end, as the
controller sees it. The first trial of a framework, which may find cold caches, is printed apart.

    imports       starting the keeper and the interpreters, and importing the framework
    building      joining the other ranks, creating the device's context, building the network, making the data
    measuring     warm-up with compilation, window, memory, digest, and what proves the work
    leaving       from the result to the end of the processes
    ending        from there to the end of the keeper
"""

import argparse
import time
from dataclasses import dataclass, field
from statistics import median

from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.hosts import choose_pythons
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.launch.trial.state import TrialState
from trainscale.measure.context import RunContext, run_trial
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Measure

MARKS = {
    "imports": lambda rank: rank.hello,
    "building": lambda rank: rank.ready,
    "measuring": lambda rank: rank.result,
    "leaving": lambda rank: rank.exit_code is not None or None,
}
PHASES = (*MARKS, "ending")


@dataclass
class Watcher:
    """Notes when all ranks have reached the end of a phase."""

    began: float = field(default_factory=time.monotonic)
    times: dict[str, float] = field(default_factory=dict)

    def __call__(self, state: TrialState) -> None:
        for phase, reached in MARKS.items():
            if phase not in self.times and all(reached(rank) is not None for rank in state.workers):
                self.times[phase] = time.monotonic() - self.began

    def phases(self) -> dict[str, float]:
        """Return the seconds of each phase. A phase whose end was not seen lasts until the next one's."""
        seconds, before, end = {}, 0.0, time.monotonic() - self.began
        for phase in PHASES:
            now = self.times.get(phase, end if phase == PHASES[-1] else before)
            seconds[phase] = now - before
            before = now
        return seconds


def measure(framework: str, arguments: argparse.Namespace) -> None:
    experiment = Experiment.of(
        models=(arguments.models,),
        frameworks=(framework,),
        strategies=("allreduce" if arguments.devices > 1 else "local",),
        devices=(arguments.devices,),
        device=arguments.device,
        compile=arguments.compile,
        cache=not arguments.no_cache,
    )
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    context = RunContext(plan, LocalLauncher(), choose_pythons((framework,), {}))
    rows = []
    for repeat in range(arguments.repeats + 1):
        watcher = Watcher()
        trial = Trial(plan.configs[0], arguments.devices, repeat)
        record = run_trial(context, trial, Measure(10, arguments.steps), watcher, witness=True)
        if not record.ok:
            raise SystemExit(f"{framework}: {record.failure}")
        parts = {
            "first step": max(rank.first_step_seconds for rank in record.ranks),
            "window": max(rank.window_seconds for rank in record.ranks),
            "witness": max(rank.witness.seconds for rank in record.ranks if rank.witness),
        }
        rows.append({**watcher.phases(), "all": record.seconds, **parts})
        print(_row(f"{framework}, {record.compilation}" if not repeat else "", [rows[-1]]), flush=True)
    print(_row(f"**{framework}, later, median**", rows[1:]), flush=True)


def _row(name: str, rows: list[dict[str, float]]) -> str:
    return f"| {name} | " + " | ".join(f"{median(row[column] for row in rows):.2f}" for column in rows[0]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", default="torch")
    parser.add_argument("--models", default="mnist:64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3, help="after the first trial")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--no-cache", action="store_true")
    arguments = parser.parse_args()
    columns = (*PHASES, "all", "of it the first step", "the window", "the witness")
    print("| framework | " + " | ".join(f"{column} s" for column in columns) + " |")
    print("|" + " --- |" * (len(columns) + 1))
    for framework in arguments.frameworks.split(","):
        measure(framework, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
