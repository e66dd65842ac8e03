"""Host names in a report become host-1, host-2, …"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..record.trial import Failure
from ..runs import Run

# Names that every machine has reveal nothing.
_COMMON = {"", "localhost", "localhost.localdomain", "127.0.0.1", "::1"}


class Redaction:
    def __init__(self, hosts: Iterable[Iterable[str]] = ()) -> None:
        """``hosts`` are the names of each host."""
        self._labels: dict[str, str] = {}
        for names in hosts:
            # The first part of a name with a domain is a name too. An address has no short name.
            both = [part for name in names for part in (name, name.partition(".")[0])]
            own = [name for name in both if name not in _COMMON and not name.isdigit()]
            next_label = f"host-{len(set(self._labels.values())) + 1}"
            label = next((self._labels[name] for name in own if name in self._labels), next_label)
            for name in own:
                self._labels.setdefault(name, label)
        longest_first = sorted(map(re.escape, self._labels), key=len, reverse=True)
        # A name ends where no name could go on. A dot may end a sentence.
        pattern = rf"(?<![\w.-])(?:{'|'.join(longest_first)})(?![\w-]|\.\w)"
        self._pattern = re.compile(pattern) if longest_first else None

    def redact(self, value: Any) -> Any:
        """Replace names in all texts of a value, also in keys."""
        if self._pattern and isinstance(value, str):
            return self._pattern.sub(lambda match: self._labels[match[0]], value)
        if isinstance(value, dict):
            return {self.redact(key): self.redact(item) for key, item in value.items()}
        if isinstance(value, Failure):
            return replace(value, **{name: self.redact(item) for name, item in vars(value).items()})
        return type(value)(map(self.redact, value)) if isinstance(value, list | tuple) else value

    def redact_run(self, run: Run) -> Run:
        if not self._pattern:
            return run
        info = replace(run.info, provenance=self.redact(run.info.provenance))
        names = ("failures", "flags", "nvml_note")
        all_series = []
        for series in run.series:
            points = []
            for point in series.points:
                shown = {name: self.redact(getattr(point, name)) for name in names}
                points.append(replace(point, **shown))
            all_series.append(replace(series, points=tuple(points)))
        return Run.from_records(info, run.records, run.parity, run.directory, run.label, all_series)


def make_redaction(runs: Sequence[Run]) -> Redaction:
    hosts: list[list[str]] = []
    for run in runs:
        provenance = run.info.read_provenance()
        hosts += [[name, machine.host or ""] for name, machine in (provenance.hosts or {}).items()]
        if provenance.machine and provenance.machine.host:
            hosts.append([provenance.machine.host])
        of_ranks = dict.fromkeys(rank.host for record in run.records for rank in record.ranks)
        hosts += [[host] for host in of_ranks]
        hosts += [[record.failure.host] for record in run.records if record.failure]
    return Redaction(hosts)
