"""Writes the table of mistakes into docs/measurements.md, from results.json.

python tests/mutations/make_table.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from catalog import MUTATIONS, PARTS, controls
from harness import CRASHED, PARITY, SURVIVED, WITNESS

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "measurements.md"
START, END = "<!-- mistakes: made by tests/mutations/make_table.py -->", "<!-- end of mistakes -->"


def make_table(results: dict[str, dict[str, Any]]) -> str:
    """Return the counts, a table of what caught the mistakes of each part, and those that nothing caught."""
    lines = [
        _summary(results),
        "",
        "| mistakes in | planted | witness | parity check | nothing |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    missed = []
    for part, mutations in PARTS.items():
        caught_by = [results.get(mutation.name, {}).get("caught_by") for mutation in mutations]
        counts = (len(mutations), caught_by.count(WITNESS), caught_by.count(PARITY), sum(map(_is_missed, caught_by)))
        lines.append(f"| {part} | " + " | ".join(map(str, counts)) + " |")
        missed += [mutation for mutation, kind in zip(mutations, caught_by, strict=True) if _is_missed(kind)]
    for mutation in missed:
        message = results[mutation.name]["message"]
        lines += ["", f"Not noticed: {mutation.mistake} (`{mutation.run}`): {message}"]
    return "\n".join(lines)


def _is_missed(caught_by: str | None) -> bool:
    return caught_by in (SURVIVED, CRASHED)


def _summary(results: dict[str, dict[str, Any]]) -> str:
    entries = [results[name] for name in MUTATIONS if name in results]
    counts = {kind: sum(entry["caught_by"] == kind for entry in entries) for kind in (WITNESS, PARITY)}
    missed = [entry for entry in entries if _is_missed(entry["caught_by"])]
    problems = [results[str(run)]["problem"] for run in controls() if str(run) in results]
    proven, not_run = problems.count(""), len(controls()) - len(problems)
    text = (
        f"Of {len(MUTATIONS)} mistakes, the witness refuted {counts[WITNESS]}, the parity check found {counts[PARITY]} "
        f"and {len(missed)} went unnoticed. "
    )
    if len(entries) < len(MUTATIONS):
        text += f"{len(MUTATIONS) - len(entries)} were not run. "
    text += f"Without a mistake, {proven} of {len(controls())} commands were proven"
    return f"{text}, and {not_run} were not run." if not_run else f"{text}."


def insert_table(page: str, table: str) -> str:
    """Return the page with the text between the two marks replaced."""
    pattern = re.compile(f"{re.escape(START)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} has no place for the table: {START} … {END}")
    return pattern.sub(lambda _: f"{START}\n\n{table}\n\n{END}", page)


if __name__ == "__main__":
    PAGE.write_text(insert_table(PAGE.read_text(), make_table(json.loads(RESULTS.read_text()))))
