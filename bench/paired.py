"""`bench/overhead.py --paired`: the bare loop and the harness's alternate block by block in one process, on one network
object, one optimizer and one batch, so that neither the process nor the machine's drift differs between them.

    bare side (A)     a plain loop of the framework: bench/paired_loops.py says what each one is
    our side (B)      worker/training/loop.time_steps with the framework's adapter: the loop of every trial, with its
                      tickets, its waiting for each step, its time stamps and its heartbeats

Not compared: start-up, compilation, warm-up and the barriers around a window, which are outside of both clocks; the
network itself, which is the same object on both sides (bench/overhead.py without --paired compares it with a
hand-written one); and the processes that supervise a trial.

A block lasts about half a second, and at least two steps. Four blocks are one comparison, in the order A B B A or,
every other time, B A A B, so that a steady drift cancels out: its ratio is the time of both A blocks over that of both
B blocks, above 1 if the harness is faster. With two processes a block lasts as long as the slower one takes. The result
is the 20 % trimmed mean of the logarithms of the ratios, with Student's t interval for trimmed means (Tukey and
McLaughlin): comparisons in which another program took the core do not count, on either side. It goes on until the
interval is within ±0.5 %, or until the time is over. Whether it is narrow enough is checked after 32 comparisons, and
then whenever there are a quarter more of them: an interval that is checked all the time, and taken as soon as it
happens to be narrow, covers less than it says.

The ratio of processor times, of all threads of the workers, is computed alike. Other programs disturb it less, but it
does not see what a loop waits for.

`bench/witness.py --paired` compares in the same way blocks of the harness's loop: those of side B follow the work of a
witness (sketches, the first steps, the initial weights put back, the closing steps), those of side A follow none of it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import IO, Any, Self

from case import Case
from trainscale.analyse.statistics import CONFIDENCE, Interval, student_t
from trainscale.launch.trial.trial import TrialSettings, build_tasks, count_ports, place_trial
from trainscale.spec.config import Trial
from trainscale.spec.plan import Plan
from trainscale.worker.events import MARK
from trainscale.worker.job import Measure, Task
from trainscale.worker.listening import find_free_ports

RANK = Path(__file__).with_name("paired_rank.py")
HARNESS, WITNESS = "harness", "witness"  # what the two sides differ in
ORDERS = ("ABBA", "BAAB")
BLOCK_SECONDS = 0.5
WARMUP = 3  # steps of each side, twice
WANTED_HALF_WIDTH = 0.005
FIRST_CHECK, CHECKS_GROW = 32, 1.25  # comparisons
TRIMMED = 0.2  # share of the comparisons that is left out at each end


@dataclass(frozen=True)
class Comparison:
    """The ratios of four blocks: side A over side B."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, order: str, blocks: Sequence[dict[str, float]]) -> Comparison:
        def ratio(name: str) -> float:
            first, second = (
                sum(block[name] for side, block in zip(order, blocks, strict=True) if side == wanted)
                for wanted in ("A", "B")
            )
            return first / second

        return cls(ratio("seconds"), ratio("cpu_seconds"))


@dataclass(frozen=True)
class Paired:
    """The result of one case."""

    wall: Interval
    cpu: Interval
    blocks: int
    steps: int  # per block
    step_seconds: float

    @property
    def is_narrow(self) -> bool:
        return (self.wall.half_width or math.inf) <= WANTED_HALF_WIDTH


class PairedRanks:
    """The processes of a trial. Use it in a ``with`` statement, which ends them."""

    def __init__(self, plan: Plan, trial: Trial, python: str, sides: str = HARNESS) -> None:
        slots = place_trial(trial, plan.available)
        ports = {host: find_free_ports(count) for host, count in count_ports(slots).items()}
        pythons = {trial.config.framework: python}
        settings = TrialSettings(Measure(), plan.experiment.work.seed, pythons, witness=sides == WITNESS)
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by __exit__)
        self._ranks = [self._start(task, sides) for task in build_tasks(trial, slots, ports, settings)]

    @classmethod
    def of(cls, case: Case, processes: int) -> Self:
        return cls(*case.make_trial(processes), case.python)

    def _start(self, task: Task, sides: str) -> subprocess.Popen[str]:
        """Start a process with the environment that its keeper would give it."""
        rank = subprocess.Popen(
            [task.command[0], str(RANK), sides],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**task.defaults, **os.environ, **task.environment},
        )
        _stream(rank.stdin).write(task.job + "\n")
        _stream(rank.stdin).flush()
        return rank

    def blocks(self, order: str, steps: int) -> list[dict[str, float]]:
        """Return seconds and CPU seconds of every block."""
        blocks: list[dict[str, float]] = self._request(order, steps)
        return blocks

    def finish(self) -> str:
        """End the processes; return the digest of the weights."""
        digest: str = self._request("", 0)
        return digest

    def _request(self, order: str, steps: int) -> Any:
        first = self._ranks[0]
        try:
            _stream(first.stdin).write(json.dumps({"order": order, "steps": steps}) + "\n")
            _stream(first.stdin).flush()
        except BrokenPipeError:
            pass  # it has ended; its log says why
        for line in _stream(first.stdout):
            if not line.startswith(MARK):
                return json.loads(line)
        self._log.seek(0)
        raise SystemExit(f"a process of the bench ended early:\n{self._log.read()[-3000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for rank in self._ranks:
            try:
                rank.wait(0 if kind else 60)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()
            _stream(rank.stdin).close()
            _stream(rank.stdout).close()
        self._log.close()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def compare(paired_ranks: PairedRanks, seconds: float) -> Paired:
    """Alternate until the interval is narrow or the time is over, then end the processes."""
    with paired_ranks as ranks:
        ranks.blocks("AB", WARMUP)
        paces = ranks.blocks("AB", WARMUP)
        steps = max(2, round(BLOCK_SECONDS * WARMUP / max(block["seconds"] for block in paces)))
        comparisons: list[Comparison] = []
        step_seconds: list[float] = []
        checks, deadline = check_counts(), time.monotonic() + seconds
        next_check = next(checks)
        while True:
            order = ORDERS[len(comparisons) % 2]
            blocks = ranks.blocks(order, steps)
            comparisons.append(Comparison.of(order, blocks))
            step_seconds += [block["seconds"] / steps for block in blocks]
            is_over = time.monotonic() > deadline
            if len(comparisons) < next_check and not is_over:
                continue
            next_check = next(checks)
            result = summarise(comparisons, steps, median(step_seconds))
            if result.is_narrow or is_over:
                ranks.finish()
                return result


def check_counts() -> Iterator[int]:
    """Yield the numbers of comparisons after which the interval is looked at."""
    count = FIRST_CHECK
    while True:
        yield count
        count = math.ceil(count * CHECKS_GROW)


def summarise(comparisons: Sequence[Comparison], steps: int, step_seconds: float) -> Paired:
    wall, cpu = ([getattr(item, name) for item in comparisons] for name in ("wall", "cpu"))
    return Paired(ratio_of_ratios(wall), ratio_of_ratios(cpu), 4 * len(comparisons), steps, step_seconds)


def ratio_of_ratios(ratios: Sequence[float]) -> Interval:
    """Return the trimmed geometric mean of positive ratios, with its 95 % interval."""
    logarithms = sorted(map(math.log, ratios))
    count = len(logarithms)
    cut = int(TRIMMED * count)
    kept = logarithms[cut : count - cut]
    mean = sum(kept) / len(kept)
    if len(kept) < 2:
        return Interval(math.exp(mean))
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = sum(winsorized) / count
    deviation = math.sqrt(sum((value - centre) ** 2 for value in winsorized) / (count - 1))
    error = deviation / ((1 - 2 * TRIMMED) * math.sqrt(count))
    reach = student_t(1 - (1 - CONFIDENCE) / 2, len(kept) - 1) * error
    return Interval(*(math.exp(value) for value in (mean, mean - reach, mean + reach)))


def measure(cases: Sequence[tuple[Case, int]], seconds: float) -> bool:
    """Print a Markdown table; return whether every ratio reaches its aim."""
    print(f"{cases[0][0].describe()}; at most {seconds:g} s of blocks per row\n")
    print("| framework | processes | ratio harness / bare | 95 % interval | by processor time | blocks | block |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    has_reached = True
    for case, processes in cases:
        result = compare(PairedRanks.of(case, processes), seconds)
        has_reached &= result.wall.mean >= case.aim
        cells = [f"`{case.framework}`", processes, f"{result.wall.mean:.4f}", limits_text(result.wall),
                 f"{result.cpu.mean:.4f} ({limits_text(result.cpu)})", result.blocks,
                 f"{result.steps} steps of {result.step_seconds * 1000:.0f} ms"]  # fmt: skip
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return has_reached


def limits_text(interval: Interval) -> str:
    return "none" if interval.low is None else f"{interval.low:.4f} … {interval.high:.4f}"


if __name__ == "__main__":
    sys.exit("this module is part of overhead.py and witness.py: python bench/overhead.py --paired")
