"""What a parity check found: for each framework's build of a network, whether it does the same work as the reference.

A run keeps its verdicts in parity.json, beside its journal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..spec.config import Config
from .files import write_whole

PROVEN, FAILED, UNPROVEN = "proven", "failed", "unproven"
FILE = "parity.json"
# Schema history
#     1  first version
SCHEMA = 1


@dataclass(frozen=True)
class Check:
    """One comparison. ``difference`` is relative, or absolute for counts; None when it could not be made."""

    name: str
    difference: float | None
    tolerance: float
    words: str = ""  # for a person: which tensor, which counts

    @property
    def ok(self) -> bool:
        return self.difference is not None and self.difference <= self.tolerance


@dataclass(frozen=True)
class Verdict:
    """One framework's build of one network, laid beside ``reference``'s."""

    framework: str
    model: str
    image_size: int
    classes: int
    layout: str
    device: str
    reference: str  # e.g. "torch nchw"
    state: str
    checks: tuple[Check, ...] = ()
    reason: str = ""  # why it is not proven

    def about(self, config: Config) -> bool:
        """Whether this speaks of that config's network."""
        return all(getattr(self, name) == getattr(config, name) for name in _SUBJECT)

    @property
    def is_reference(self) -> bool:
        return self.reference == f"{self.framework} {self.layout}" and bool(self.checks)

    @property
    def words(self) -> str:
        """One sentence for a flag; empty when all is well."""
        if self.state == PROVEN:
            return ""
        if self.state == UNPROVEN:
            return f"it is not proven that this is the same work as {self.reference}: {self.reason}"
        return f"not the same work as {self.reference}: {self.reason}"


_SUBJECT = ("framework", "model", "image_size", "classes", "layout", "device")


def verdict_for(config: Config, verdicts: Sequence[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.about(config)), None)


def write_parity(directory: Path, verdicts: Sequence[Verdict]) -> None:
    document = {"schema": SCHEMA, "verdicts": [asdict(verdict) for verdict in verdicts]}
    write_whole(directory / FILE, json.dumps(document, indent=2) + "\n")


def read_parity(directory: Path) -> tuple[Verdict, ...]:
    """None where nothing was compared, or where an older version of trainscale measured."""
    try:
        document = json.loads((directory / FILE).read_text())
    except FileNotFoundError:
        return ()
    return tuple(_verdict(values) for values in document["verdicts"])


def _verdict(values: dict[str, Any]) -> Verdict:
    return Verdict(**{**values, "checks": tuple(Check(**check) for check in values["checks"])})
