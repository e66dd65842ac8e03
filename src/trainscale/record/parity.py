"""The result of a parity check: for each framework, whether its build of a network does the same work as the reference.

A run keeps these verdicts in parity.json, beside its journal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import InputError
from ..spec.config import Config
from .decoding import DecodingError, convert, read_document
from .files import write_atomically

PROVEN, FAILED, UNPROVEN = "proven", "failed", "unproven"
FILE = "parity.json"
# Schema history
#     1  first version
SCHEMA = 1


@dataclass(frozen=True)
class Check:
    """One comparison. ``difference`` is relative, or absolute for counts; None if it could not be computed."""

    name: str
    difference: float | None
    tolerance: float
    words: str = ""  # for a person: which tensor, which counts

    @property
    def ok(self) -> bool:
        return self.difference is not None and self.difference <= self.tolerance


@dataclass(frozen=True)
class Verdict:
    """The comparison of one framework's build of one network with that of ``reference``."""

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

    def applies_to(self, config: Config) -> bool:
        """Return whether this verdict is about the network of ``config``."""
        ours = (self.framework, self.model, self.image_size, self.classes, self.layout, self.device)
        theirs = (config.framework, config.model, config.image_size, config.classes, config.layout, config.device)
        return ours == theirs

    @property
    def is_reference(self) -> bool:
        return self.reference == f"{self.framework} {self.layout}" and bool(self.checks)

    @property
    def warning(self) -> str:
        """A sentence that says what is not proven. Empty where the same work is proven."""
        if self.state == PROVEN:
            return ""
        if self.state == UNPROVEN:
            return f"it is not proven that this is the same work as {self.reference}: {self.reason}"
        return f"not the same work as {self.reference}: {self.reason}"


def find_verdict(config: Config, verdicts: Sequence[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.applies_to(config)), None)


def write_parity(directory: Path, verdicts: Sequence[Verdict]) -> None:
    document = {"schema": SCHEMA, "verdicts": [asdict(verdict) for verdict in verdicts]}
    write_atomically(directory / FILE, json.dumps(document, indent=2) + "\n")


def read_parity(directory: Path) -> tuple[Verdict, ...]:
    """Return the verdicts of a run. Empty if it compared no frameworks."""
    path = directory / FILE
    values = read_document(path, SCHEMA, "the verdicts of a parity check")
    if values is None:
        return ()
    try:
        verdicts = convert(values.get("verdicts"), tuple[Verdict, ...])
    except DecodingError as error:
        raise InputError(f"{path}: cannot be read as the verdicts of a parity check: {error}") from None
    unknown = [verdict.state for verdict in verdicts if verdict.state not in (PROVEN, FAILED, UNPROVEN)]
    if unknown:
        raise InputError(f"{path}: unknown state {unknown[0]!r}; valid: {PROVEN}, {FAILED}, {UNPROVEN}")
    return verdicts
