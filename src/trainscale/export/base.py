"""The contract of an exporter, which hands finished runs to another program. A plug-in may add one (catalog.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..errors import InputError
from ..record.files import write_atomically
from .stored_run import StoredRun

DEFAULT_PROJECT = "trainscale"


@dataclass(frozen=True)
class Destination:
    """Where the results go: ``output`` is a file, a folder or an address, as the exporter says; None if none is given.

    ``project`` is the name under which trackers such as MLflow collect runs.
    """

    output: str | None = None
    project: str = DEFAULT_PROJECT


class Exporter(ABC):
    """A format or a program that results can be handed to."""

    name: ClassVar[str]  # that people type after --to
    description: ClassVar[str]  # one line for --help

    @abstractmethod
    def export(self, runs: Sequence[StoredRun], destination: Destination) -> str:
        """Export the runs, each of which has a trial. Return what to print on standard output."""


class TextExporter(Exporter):
    """An exporter that writes text: to a file, or to standard output where none is given."""

    @abstractmethod
    def text(self, runs: Sequence[StoredRun]) -> str:
        """Return the whole text, with a newline at its end."""

    def export(self, runs: Sequence[StoredRun], destination: Destination) -> str:
        text = self.text(runs)
        return text if destination.output is None else describe_file(write_file(destination.output, text), runs)


def write_file(output: str, content: str | bytes) -> Path:
    """Write a file. An InputError says why it cannot be written."""
    path = Path(output)
    if path.is_dir():
        raise InputError(f"--output {output}: this is a directory; valid: the name of a file")
    try:
        return write_atomically(path, content)
    except OSError as error:
        raise InputError(f"--output {output}: this file cannot be written: {error.strerror}") from None


def describe_file(path: Path, runs: Sequence[StoredRun]) -> str:
    """Return one line that says what was written."""
    trials = sum(len(run.records) for run in runs)
    return f"{path}: {format_count(trials, 'trial')} of {format_count(len(runs), 'run')}\n"


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
