"""The report of a campaign, as Markdown: faults by launcher, tried and held, and every violation with its seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .campaign import Outcome
from .faults import FAULTS, LAUNCHERS
from .judge import violations

_LONGEST_ERROR = 200


@dataclass(frozen=True)
class Result:
    """What is kept of a scenario: the faults that happened, and what was broken, with the number of its fault."""

    seed: int
    launcher: str
    faults: tuple[str, ...]
    broken: tuple[tuple[int, str], ...] = ()
    error: str = ""  # why it was not performed

    @classmethod
    def of(cls, outcome: Outcome) -> Result:
        seed, launcher, seen = outcome.scenario.seed, outcome.scenario.launcher, outcome.observation
        if seen is None:
            return cls(seed, launcher, (), error=outcome.error.splitlines()[0][:_LONGEST_ERROR])
        broken = violations(seen) if seen.hits else []
        names = tuple(hit.fault.name for hit in seen.hits)
        return cls(seed, launcher, names, tuple((item.hit, item.problem) for item in broken))


def append_result(path: Path, result: Result) -> None:
    with path.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def read_results(path: Path) -> list[Result]:
    rows = map(json.loads, path.read_text().splitlines())
    return [
        Result(row["seed"], row["launcher"], tuple(row["faults"]), tuple(map(tuple, row["broken"])), row["error"])
        for row in rows
    ]


def outcome_line(outcome: Outcome) -> str:
    """Return one line about a scenario, and one for each violation."""
    result = Result.of(outcome)
    head = f"{outcome.seconds:5.0f} s  {outcome.scenario}"
    if result.error:
        return f"{head}\n         NOT PERFORMED: {result.error}"
    lines = [f"{head}: {len(result.faults)} of {len(outcome.scenario.faults)} happened"]
    lines += [f"         VIOLATION: {result.faults[number]}: {problem}" for number, problem in result.broken]
    return "\n".join(lines)


def count_violations(results: Sequence[Result]) -> int:
    return sum(len(result.broken) for result in results)


def count_faults(results: Sequence[Result]) -> int:
    return sum(len(result.faults) for result in results)


def markdown(results: Sequence[Result], command: str) -> str:
    tried, broken = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for result in results:
        tried.update((result.launcher, name) for name in result.faults)
        broken.update((result.launcher, result.faults[number]) for number in {number for number, _ in result.broken})
    launchers = [name for name in LAUNCHERS if any(launcher == name for launcher, _ in tried)]
    total = sum(tried.values())
    lines = [
        f"`{command}`: {total} faults in {len(results)} runs; {total - sum(broken.values())} of them broke no promise."
        " A cell is the number of tries.",
        "",
        f"| fault | {' | '.join(launchers)} |",
        f"| --- |{' --- |' * len(launchers)}",
    ]
    for fault in FAULTS:
        if any((name, fault.name) in tried for name in launchers):
            cells = [_cell(tried[name, fault.name], broken[name, fault.name]) for name in launchers]
            lines.append(f"| {fault.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, *_details(results)]) + "\n"


def _cell(tried: int, broken: int) -> str:
    if not tried:
        return ""
    return f"{tried}, {broken} broke" if broken else str(tried)


def _details(results: Sequence[Result]) -> list[str]:
    lines = [
        f"- seed {result.seed}, {result.launcher}, {result.faults[number]}: {problem}"
        for result in results
        for number, problem in result.broken
    ]
    failed = [f"- seed {result.seed}: {result.error}" for result in results if result.error]
    headed = ["", "Broken promises:", "", *lines] if lines else []
    return [*headed, *(["", "Not performed, because the lab failed:", "", *failed] if failed else [])]
