"""The events that the roles send which inspect a host: probe, parity, expectation, look, links and program."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Event


@dataclass(frozen=True)
class FrameworkFacts(Event):
    """A framework's version, GPUs and users' networks; or the reason why it cannot be used."""

    kind = "probe"
    sender = "probe"
    is_available: bool
    reason: str = ""  # why it is not available
    install_command: str = ""
    version: str = ""
    versions: dict[str, str] = field(default_factory=dict)  # of the framework and of what it builds on
    gpus: list[str] = field(default_factory=list)  # names of those that the framework sees
    # Of each user's network: its parameter count, or what is wrong with it.
    models: dict[str, dict[str, int] | str] = field(default_factory=dict)


@dataclass(frozen=True)
class NumbersPiece(Event):
    """A piece of the numbers that were computed, in base64."""

    kind = "numbers"
    sender = "parity, expectation"
    data: str


@dataclass(frozen=True)
class ParityDone(Event):
    """All numbers are sent: the parameter count, the multiplications, the seconds it took."""

    kind = "parity"
    sender = "parity"
    parameters: int
    macs: int | None
    seconds: float


@dataclass(frozen=True)
class ExpectationDone(Event):
    """All numbers are sent that a correct trial computes in its first steps: the seconds and the memory it took."""

    kind = "expectation"
    sender = "expectation"
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class HostFactsPiece(Event):
    """A piece of a host's facts as JSON text: machine, addresses, disk, and which Pythons have the frameworks."""

    kind = "look"
    sender = "look, in several lines"
    text: str


@dataclass(frozen=True)
class Links(Event):
    """The round trip to the next host and the bandwidth from the previous one, or what prevented measuring them."""

    kind = "links"
    sender = "links"
    round_trip_seconds: float | None = None
    send_error: str = ""
    bits_per_second: float | None = None
    receive_error: str = ""


@dataclass(frozen=True)
class FolderState(Event):
    """What is wrong with the folder of a user's program; empty if nothing is."""

    kind = "folder"
    sender = "program"
    problem: str
