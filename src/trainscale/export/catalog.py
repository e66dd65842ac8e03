"""The exporters by name. A package adds one by an entry point of the group ``trainscale.exporters``."""

from __future__ import annotations

import importlib
import inspect
import operator

from ..errors import InputError, explain_unknown
from ..launch.plugins import EXPORTER, load_plugins
from .base import Exporter

# "module:class"; a module that begins with a dot is in this package. It is imported when it is used.
EXPORTERS: dict[str, str] = {
    "parquet": ".tables:ParquetExporter",
    "csv": ".tables:CsvExporter",
    "json": ".tables:JsonExporter",
    "extra-p": ".extra_p:ExtraPExporter",
    "prometheus": ".prometheus:PrometheusExporter",
    "mlflow": ".mlflow_runs:MlflowExporter",
    "wandb": ".wandb_runs:WandbExporter",
    "reframe": ".reframe_test:ReframeExporter",
}


def list_exporter_names() -> tuple[str, ...]:
    """Return all names, first those of trainscale. A plug-in cannot take one of these."""
    return tuple(_list_references())


def load_exporter(name: str) -> Exporter:
    """Import an exporter. An InputError says why that of a plug-in cannot be used."""
    references = _list_references()
    if name not in references:
        raise explain_unknown("exporter", name, references, "--to")
    module, _, attribute = references[name].partition(":")
    if name in EXPORTERS:
        built_in: type[Exporter] = getattr(importlib.import_module(module, __package__), attribute)
        return built_in()
    try:
        loaded = operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:
        raise InputError(
            f"--to {name}: the plug-in {references[name]} cannot be used: {type(error).__name__}: {error}"
        ) from None
    if not (isinstance(loaded, type) and issubclass(loaded, Exporter)) or inspect.isabstract(loaded):
        raise InputError(f"--to {name}: {references[name]} is not a class that implements Exporter")
    return loaded()


def _list_references() -> dict[str, str]:
    plugins = {plugin.name: plugin.reference for plugin in load_plugins() if plugin.kind == EXPORTER}
    return {**EXPORTERS, **{name: plugins[name] for name in plugins if name not in EXPORTERS}}
