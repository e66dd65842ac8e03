"""The runs of ``trainscale report``: reading them, telling them apart by labels, and where a report of several goes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..record.decoding import remove_unprintable
from ..record.journal import RUN, read_run, read_trials
from ..record.parity import Verdict, read_parity
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from ..report.csv_json import make_slug
from .damage import warn_of_damage

DEFAULT_OUTPUT = Path("report")
RESULTS = "results.json"


@dataclass(frozen=True)
class ReadRun:
    """A run that has results. ``label`` tells it apart from the others of a report; empty if it is the only one."""

    directory: Path
    label: str
    info: RunInfo
    records: list[TrialRecord]
    verdicts: list[Verdict]


def read_runs(directories: Sequence[Path], labels: Sequence[str]) -> list[ReadRun]:
    """Read the runs. An InputError says which cannot be in a report."""
    if labels and len(directories) == 1:
        raise InputError("--label: valid with several runs; a report of one run needs no label")
    resolved = [directory.resolve() for directory in directories]
    for path, count in Counter(resolved).items():
        if count > 1:
            raise InputError(f"{directories[resolved.index(path)]}: this run is named {count} times; valid: once")
    names = _read_labels(directories, labels) if len(directories) > 1 else [""]
    runs = [_read(directory, label) for directory, label in zip(directories, names, strict=True)]
    for index, run in enumerate(runs):
        for other in runs[:index]:
            if (run.info, run.records) == (other.info, other.records):
                raise InputError(f"{run.directory}: a copy of {other.directory}; both hold the same trials")
    return runs


def _read(directory: Path, label: str) -> ReadRun:
    info, records = read_run(directory), read_trials(directory, warn_of_damage)
    run = ReadRun(directory, label, info, records, list(read_parity(directory)))
    if not run.records:
        raise InputError(f"{directory}: no trial of this run has finished; continue it with the command that began it")
    return run


def _read_labels(directories: Sequence[Path], labels: Sequence[str]) -> list[str]:
    """Return a label for each run: those that were given, or the names of the directories."""
    names = [remove_unprintable(label).strip() for label in labels] or choose_labels(directories)
    if len(names) != len(directories):
        raise InputError(f"--label: given {len(names)} times for {len(directories)} runs; valid: once for each run")
    if not all(names):
        raise InputError("--label: a label is empty")
    slugs = Counter(make_slug(name).lower() for name in names)
    for name in names:
        if slugs[make_slug(name).lower()] > 1:
            raise InputError(f"--label {name}: another run has this label, or one with the same file names")
    return names


def choose_labels(directories: Sequence[Path]) -> list[str]:
    """Return the names of directories; where two are the same, with as many of their parents as tell them apart."""
    parts = [directory.resolve().parts for directory in directories]
    longest = max(map(len, parts))
    for count in range(1, longest + 1):
        labels = ["/".join(each[-count:]).lstrip("/") for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [str(directory) for directory in directories]


def choose_output(runs: Sequence[ReadRun], output: Path | None) -> Path:
    """Return the directory of the outputs: of one run its own; of several one that no run has.

    A directory that holds anything but an earlier report of the same runs is refused.
    """
    if len(runs) == 1:
        if output is not None:
            raise InputError("--output: valid with several runs; the report of one run is in its own directory")
        return runs[0].directory
    where = f"--output {output or DEFAULT_OUTPUT}"
    directory = output or DEFAULT_OUTPUT
    advice = "name a new directory by --output"
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{where}: this is a file; {advice}")
    if (directory / RUN).exists():
        raise InputError(f"{where}: this is the directory of a run, which holds the run's own report; {advice}")
    if directory.exists() and any(directory.iterdir()) and not _holds_report_of(directory, runs):
        raise InputError(f"{where}: this directory holds other files, or a report of other runs; {advice}")
    return directory


def _holds_report_of(directory: Path, runs: Sequence[ReadRun]) -> bool:
    try:
        document = json.loads((directory / RESULTS).read_bytes())
        held = [each["run"] for each in document["runs"]]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return held == [json.loads(json.dumps(run.info.to_dict())) for run in runs]
