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
from mutation import Mutation

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "measurements.md"
START, END = "<!-- mistakes: made by tests/mutations/make_table.py -->", "<!-- end of mistakes -->"


def make_table(results: dict[str, dict[str, Any]]) -> str:
    """Return the counts, and a table of every mistake with what caught it."""
    return f"{_summary(results)}\n\n" + "\n".join(
        ["| mistake | command | caught by |", "| --- | --- | --- |"]
        + [_row(mutation, results.get(mutation.name)) for part in PARTS.values() for mutation in part]
    )


def _summary(results: dict[str, dict[str, Any]]) -> str:
    entries = [results[name] for name in MUTATIONS if name in results]
    counts = {kind: sum(entry["caught_by"] == kind for entry in entries) for kind in (WITNESS, PARITY)}
    missed = [entry for entry in entries if entry["caught_by"] in (SURVIVED, CRASHED)]
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


def _row(mutation: Mutation, entry: dict[str, Any] | None) -> str:
    caught_by = entry["caught_by"] if entry else "not run"
    if caught_by in (SURVIVED, CRASHED):
        caught_by = f"**nothing**: {mutation.survives or (entry or {}).get('message', '')}"
    cells = (mutation.mistake, f"`{mutation.run}`", caught_by)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def insert_table(page: str, table: str) -> str:
    """Return the page with the text between the two marks replaced."""
    pattern = re.compile(f"{re.escape(START)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} has no place for the table: {START} … {END}")
    return pattern.sub(lambda _: f"{START}\n\n{table}\n\n{END}", page)


if __name__ == "__main__":
    PAGE.write_text(insert_table(PAGE.read_text(), make_table(json.loads(RESULTS.read_text()))))
