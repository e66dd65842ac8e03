"""Runs mutations and controls: ``python tests/mutations/run_mutations.py [NAME …]``. ``make mutations`` runs all.

The results are kept in results.json, and from there written into the table in docs/measurements.md. The exit code
is 1 if a control is not proven or a mistake is not caught.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from catalog import MUTATIONS, PARTS, Mutation, MutationRun, controls
from harness import CRASHED, PARITY, SURVIVED, WITNESS, Workshop, try_control, try_mutation

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "measurements.md"
START, END = "<!-- mistakes: made by tests/mutations/run_mutations.py -->", "<!-- end of mistakes -->"


class Results:
    """What is known of mutations by name, and of controls by their command. Each is written to the file at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.entries: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())

    def add(self, name: str, entry: dict[str, Any]) -> None:
        with self._lock:
            self.entries[name] = entry
            known = [*map(str, controls()), *MUTATIONS]
            ordered = {name: self.entries[name] for name in known if name in self.entries}
            lines = [f"{json.dumps(name)}: {json.dumps(ordered[name], ensure_ascii=False)}" for name in ordered]
            RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> int:
    options = _parse()
    results = Results()
    mutations = [m for m in MUTATIONS.values() if _is_chosen(m.name, options.names)]
    runs = [] if options.names else controls()
    if options.resume:
        mutations = [m for m in mutations if results.entries.get(m.name, {}).get("digest") != m.digest]
        runs = [run for run in runs if results.entries.get(str(run), {}).get("problem") != ""]
    with tempfile.TemporaryDirectory() as temporary:
        workshop = Workshop(Path(temporary))
        lacking = _run_all(options.jobs, runs, lambda run: _control(workshop, results, run))
        lacking += _run_all(options.jobs, mutations, lambda mutation: _mutation(workshop, results, mutation))
    PAGE.write_text(insert_table(PAGE.read_text(), make_table(results.entries)))
    total = len(mutations) + len(runs)
    print(f"{total - len(lacking)} of {total} as they must be" + "".join(f"\n  not: {name}" for name in lacking))
    return 1 if lacking else 0


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


def _run_all(jobs: int, items: Iterable[Any], run: Callable[[Any], str]) -> list[str]:
    with ThreadPoolExecutor(jobs) as pool:
        return [name for name in pool.map(run, items) if name]


def _control(workshop: Workshop, results: Results, run: MutationRun) -> str:
    problem = try_control(workshop, controls().index(run), run)
    results.add(str(run), {"problem": problem})
    print(f"without a mistake: {run}: {problem or 'proven'}", flush=True)
    return str(run) if problem else ""


def _mutation(workshop: Workshop, results: Results, mutation: Mutation) -> str:
    outcome = try_mutation(workshop, mutation)
    results.add(mutation.name, {"digest": mutation.digest, **asdict(outcome)})
    print(f"{mutation.name} | {outcome.caught_by} | {outcome.message} ({outcome.seconds:.0f} s)", flush=True)
    return "" if outcome.is_caught else mutation.name


def _is_chosen(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch(name, pattern) for pattern in patterns)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="mutations to run, such as 'torch-*' (default: all, and all controls)")
    parser.add_argument("--resume", action="store_true", help="leave out what the results file has already")
    parser.add_argument("--jobs", type=int, default=1, help="number of commands at a time (default: 1)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
