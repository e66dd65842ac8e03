"""The contract of an exporter, and the exporters by name.

A package adds one by an entry point of the group ``trainscale.exporters``.
"""

import importlib
import inspect
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..errors import InputError, TrainscaleError, explain_unknown
from ..launch.plugins import EXPORTER, load_plugins
from ..record.files import write_output
from ..report.numbers import format_count
from ..runs import Run

DEFAULT_PROJECT = "trainscale"

# "module:class"; a module that begins with a dot is in this package. It is imported when it is used.
EXPORTERS: dict[str, str] = {
    "parquet": ".tables:ParquetExporter",
    "csv": ".tables:CsvExporter",
    "json": ".tables:JsonExporter",
    "mlflow": ".trackers:MlflowExporter",
    "wandb": ".trackers:WandbExporter",
}
# Formats of version 0.1 that a few lines of Python make from the table.
_RECIPES = {"extra-p": "Extra-P", "prometheus": "Prometheus", "reframe": "ReFrame"}


@dataclass(frozen=True)
class Destination:
    """Where the results go."""

    output: str | None = None  # a file, a folder or an address, as the exporter says
    project: str = DEFAULT_PROJECT  # under which trackers such as MLflow collect runs


class Exporter(ABC):
    """A format or a program that results can be handed to."""

    name: ClassVar[str]  # that people type after --to
    description: ClassVar[str]  # one line for --help

    @abstractmethod
    def export(self, runs: Sequence[Run], destination: Destination) -> str:
        """Export the runs, each of which has a trial. Return what to print on standard output."""


class TextExporter(Exporter):
    """An exporter that writes text: to a file, or to standard output where none is given."""

    @abstractmethod
    def text(self, runs: Sequence[Run]) -> str:
        """Return the whole text, with a newline at its end."""

    def export(self, runs: Sequence[Run], destination: Destination) -> str:
        text = self.text(runs)
        return text if destination.output is None else describe_file(write_output(destination.output, text), runs)


def describe_file(path: Path, runs: Sequence[Run]) -> str:
    """Return one line that says what was written."""
    trials = sum(len(run.records) for run in runs)
    return f"{path}: {format_count(trials, 'trial')} of {format_count(len(runs), 'run')}\n"


def list_exporters() -> dict[str, str]:
    """Return "module:class" by name, those of trainscale first. A plug-in cannot take one of their names."""
    plugins = {plugin.name: plugin.reference for plugin in load_plugins() if plugin.kind == EXPORTER}
    return EXPORTERS | plugins | EXPORTERS  # the first give the order, the last win


def load_exporter(name: str) -> Exporter:
    """Import an exporter. An InputError says why one of a plug-in cannot be used."""
    references = list_exporters()
    if name in _RECIPES and name not in references:
        raise InputError(
            f"--to {name}: trainscale no longer writes this format; docs/export.md, section {_RECIPES[name]}, has a"
            f" recipe that makes it from --to csv; valid: {', '.join(references)}"
        )
    if name not in references:
        raise explain_unknown("exporter", name, references, "--to")
    module, _, attribute = references[name].partition(":")
    try:
        loaded = operator.attrgetter(attribute)(importlib.import_module(module, __package__))
    except Exception as error:
        raise InputError(
            f"--to {name}: the plug-in {references[name]} cannot be used: {type(error).__name__}: {error}"
        ) from None
    if not (isinstance(loaded, type) and issubclass(loaded, Exporter)) or inspect.isabstract(loaded):
        raise InputError(f"--to {name}: {references[name]} is not a class that implements Exporter")
    return loaded()


def import_package(name: str, purpose: str, distribution: str = "") -> Any:
    """Import a package that only ``purpose`` needs. An error says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TrainscaleError(
            f"{purpose} needs the package {name}, which cannot be imported ({error})\n"
            f"  install it: pip install {distribution or name}"
        ) from None
