"""Host names taken out of what a report shows: they become host-1, host-2, … in the order in which a run names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...analyse.series import Point, Series
from ...record.run import RunInfo
from ...record.trial import Failure, TrialRecord
from ..table import Grid

# Names that every machine has reveal nothing.
_COMMON = {"", "localhost", "localhost.localdomain", "127.0.0.1", "::1"}


class Redaction:
    """Replaces host names in texts. Without names, everything stays as it is."""

    def __init__(self, hosts: Iterable[Iterable[str]] = ()) -> None:
        """``hosts`` are the names of each host. A host that is named again keeps its number."""
        labels: dict[str, str] = {}
        count = 0
        for names in hosts:
            own = [name for name in _add_short_names(names) if name not in _COMMON]
            label = next((labels[name] for name in own if name in labels), "")
            if own and not label:
                count += 1
                label = f"host-{count}"
            for name in own:
                labels.setdefault(name, label)
        self._labels = labels
        longest_first = sorted(map(re.escape, labels), key=len, reverse=True)
        # A name ends where no name could go on. A dot may end a sentence, so it counts only before a letter or digit.
        self._pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(longest_first)})(?![\w-]|\.\w)") if labels else None

    def redact_text(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._labels[match[0]], text) if self._pattern else text

    def redact_value(self, value: Any) -> Any:
        """Return a value of the provenance with names replaced, also where they are keys."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return {self.redact_value(key): self.redact_value(item) for key, item in value.items()}
        return [self.redact_value(item) for item in value] if isinstance(value, list | tuple) else value

    def redact_run(self, run: RunInfo) -> RunInfo:
        return replace(run, provenance=self.redact_value(run.provenance)) if self._pattern else run

    def redact_series(self, all_series: Sequence[Series]) -> list[Series]:
        if not self._pattern:
            return list(all_series)
        return [replace(series, points=tuple(map(self._redact_point, series.points))) for series in all_series]

    def redact_grid(self, grid: Grid) -> Grid:
        return replace(grid, rows=tuple(tuple(map(self.redact_text, row)) for row in grid.rows))

    def redact_trial(self, record: TrialRecord) -> TrialRecord:
        """Return the record with other names of its ranks' hosts."""
        return replace(record, ranks=tuple(replace(rank, host=self.redact_text(rank.host)) for rank in record.ranks))

    def _redact_point(self, point: Point) -> Point:
        if not point.failures and not point.flags and not point.nvml_note:
            return point
        return replace(
            point,
            failures=tuple(map(self._redact_failure, point.failures)),
            flags=tuple(map(self.redact_text, point.flags)),
            nvml_note=self.redact_text(point.nvml_note),
        )

    def _redact_failure(self, failure: Failure) -> Failure:
        message, tail = self.redact_text(failure.message), tuple(map(self.redact_text, failure.tail))
        return replace(failure, message=message, tail=tail, host=self.redact_text(failure.host))


def redact_hosts(runs: Sequence[tuple[RunInfo, Sequence[TrialRecord]]]) -> Redaction:
    """Return the redaction of all hosts that runs name. A host that several runs name has one number."""
    hosts: list[list[str]] = []
    for run, records in runs:
        provenance = run.read_provenance()
        hosts += [[name, machine.host or ""] for name, machine in (provenance.hosts or {}).items()]
        if provenance.machine and provenance.machine.host:
            hosts.append([provenance.machine.host])
        hosts += [[host] for host in dict.fromkeys(rank.host for record in records for rank in record.ranks)]
        hosts += [[record.failure.host] for record in records if record.failure]
    return Redaction(hosts)


def _add_short_names(names: Iterable[str]) -> list[str]:
    """Return the names, and the first parts of those with a domain. An address has no short name."""
    result = []
    for name in names:
        result.append(name)
        first = name.partition(".")[0]
        if not first.isdigit():
            result.append(first)
    return list(dict.fromkeys(result))
