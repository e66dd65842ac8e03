"""The report of a campaign, as Markdown: faults by launcher, tried and held, and every violation with its seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .campaign import Outcome
from .faults import FAULTS, LAUNCHERS
from .scenario import Scenario


def outcome_line(scenario: Scenario, outcome: Outcome, seconds: float) -> str:
    """Return one line about a scenario, and one for each violation."""
    head = f"{seconds:5.0f} s  {scenario}"
    if outcome.error:
        return f"{head}\n         NOT PERFORMED: {outcome.error}"
    lines = [f"{head}: {len(outcome.faults)} of {len(scenario.faults)} happened"]
    lines += [f"         VIOLATION: {outcome.faults[number]}: {problem}" for number, problem in outcome.broken]
    return "\n".join(lines)


def count_violations(outcomes: Sequence[Outcome]) -> int:
    return sum(len(outcome.broken) for outcome in outcomes)


def markdown(outcomes: Sequence[Outcome], command: str) -> str:
    tried, broken = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for outcome in outcomes:
        tried.update((outcome.launcher, name) for name in outcome.faults)
        broken.update((outcome.launcher, outcome.faults[number]) for number in {number for number, _ in outcome.broken})
    launchers = [name for name in LAUNCHERS if any(launcher == name for launcher, _ in tried)]
    total = sum(tried.values())
    lines = [
        f"`{command}`: {total} faults in {len(outcomes)} runs; {total - sum(broken.values())} of them broke no promise."
        " A cell is the number of tries.",
        "",
        f"| fault | {' | '.join(launchers)} |",
        f"| --- |{' --- |' * len(launchers)}",
    ]
    for fault in FAULTS:
        if any((name, fault.name) in tried for name in launchers):
            cells = [_cell(tried[name, fault.name], broken[name, fault.name]) for name in launchers]
            lines.append(f"| {fault.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, *_details(outcomes)]) + "\n"


def _cell(tried: int, broken: int) -> str:
    if not tried:
        return ""
    return f"{tried}, {broken} broke" if broken else str(tried)


def _details(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        f"- seed {outcome.seed}, {outcome.launcher}, {outcome.faults[number]}: {problem}"
        for outcome in outcomes
        for number, problem in outcome.broken
    ]
    failed = [f"- seed {outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error]
    headed = ["", "Broken promises:", "", *lines] if lines else []
    return [*headed, *(["", "Not performed, because the lab failed:", "", *failed] if failed else [])]
