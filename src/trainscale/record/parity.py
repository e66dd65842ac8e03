"""Verdicts on trials (part of their records) and on builds of networks (parity.json)."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

from ..spec.config import Config
from ..worker.type_aliases import JsonObject
from .decoding import DecodingError, convert, read_document
from .files import write_atomically

PROVEN, FAILED, UNPROVEN, REFUTED = "proven", "failed", "unproven", "refuted"
FILE = "parity.json"
# Schema history
#     1  first version
SCHEMA = 1
# Fields of a config and of its verdict.
BUILD = ("framework", "model", "image_size", "classes", "layout", "device")
_identify = attrgetter(*BUILD)


@dataclass(frozen=True)
class Check:
    """One comparison. ``difference`` is relative, or absolute for counts."""

    name: str
    difference: float | None
    tolerance: float
    words: str = ""  # for a person: which tensor, which counts

    @property
    def ok(self) -> bool:
        return self.difference is not None and self.difference <= self.tolerance


@dataclass(frozen=True)
class WitnessVerdict:
    """Whether a trial did the work that it was timed for."""

    state: str
    reason: str = ""  # why it is not proven
    rank: int | None = None  # with the first difference
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The comparison of one build of a network with that of ``reference``."""

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

    @property
    def is_reference(self) -> bool:
        return self._is_its_own_reference and bool(self.checks)

    @property
    def _is_its_own_reference(self) -> bool:
        return self.reference == f"{self.framework} {self.layout}"

    @property
    def warning(self) -> str:
        """What is not proven, as a sentence."""
        if self.state == PROVEN:
            return ""
        if self.state == UNPROVEN:
            other = "as in the other series" if self._is_its_own_reference else f"as {self.reference}"
            return f"it is not proven that this is the same work {other}: {self.reason}"
        return f"not the same work as {self.reference}: {self.reason}"


def find_verdict(config: Config, verdicts: Sequence[Verdict]) -> Verdict | None:
    build = _identify(config)
    return next((verdict for verdict in verdicts if _identify(verdict) == build), None)


def write_parity(directory: Path, verdicts: Sequence[Verdict]) -> None:
    document = {"schema": SCHEMA, "verdicts": [asdict(verdict) for verdict in verdicts]}
    write_atomically(directory / FILE, json.dumps(document, indent=2) + "\n")


def read_parity(directory: Path) -> tuple[Verdict, ...]:
    def decode(values: JsonObject) -> tuple[Verdict, ...]:
        verdicts = convert(values.get("verdicts"), tuple[Verdict, ...])
        for verdict in verdicts:
            if verdict.state not in (PROVEN, FAILED, UNPROVEN):
                raise DecodingError(f"unknown state {verdict.state!r}; valid: {PROVEN}, {FAILED}, {UNPROVEN}")
        return verdicts

    return read_document(directory / FILE, SCHEMA, "the verdicts of a parity check", decode) or ()
