"""Parts of the documentation that are made from the code: the reference of docs/python.md from docstrings, and the
list of columns of docs/export.md. ``python tests/support/api_reference.py`` writes them anew.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import trainscale
from trainscale.cli.run import run
from trainscale.export.columns import COLUMNS

DOCS = Path(__file__).parents[2] / "docs"
FUNCTIONS = ("load", "run", "explain", "best", "compare")
REFERENCE = "\n## Reference\n"
FIRST_COLUMN = "- `run` (str): "


def public_object(name: str) -> Any:
    return run if name == "run" else getattr(trainscale, name)


def make_reference() -> str:
    """Return the reference: first the functions, then the classes, the most important first."""
    classes = ["Run", "RunSeries", "RunPoint", "TrialRow", "Interval"]
    classes += sorted(set(trainscale.__all__) - {*FUNCTIONS, *classes, "__version__"})
    parts = [*map(_function, FUNCTIONS), *map(_class, classes)]
    return f"{REFERENCE}\n" + "\n".join(parts)


def make_column_list() -> str:
    """Return the columns of the tidy table, one line each."""
    return "".join(f"- `{c.name}` ({c.kind.__name__}{_unit(c.unit)}): {c.meaning}\n" for c in COLUMNS)


def _unit(unit: str | None) -> str:
    return f", {unit}" if unit else ""


def _function(name: str) -> str:
    function = public_object(name)
    return f"### {name}\n\n`{name}{_signature(function)}`\n\n{_text(function)}\n"


def _signature(function: Callable[..., Any], of_class: bool = False) -> str:
    signature = inspect.signature(function)
    if of_class:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature))  # annotations are texts


def _class(name: str) -> str:
    kind = public_object(name)
    text = f"### {name}\n\n{_text(kind)}\n"
    if name == "TrialRow":
        return f"{text}\nIts fields are the [columns of the tidy table](export.md#columns).\n"
    entries = [*_fields(kind), *_members(kind)]
    return text + "\n" + "".join(f"- {entry}\n" for entry in entries) if entries else text


def _fields(kind: Any) -> Iterator[str]:
    """Yield an entry for each field with a meaning, and one each for columns of the tidy table and other types."""
    described = [field for field in fields(kind) if not field.name.startswith("_")] if is_dataclass(kind) else []
    by_type: dict[str, list[str]] = {}
    columns = {column.name: column.meaning for column in COLUMNS}
    as_columns = [
        f"`{field.name}`"
        for field in described
        if field.metadata.get("meaning") == columns.get(field.name, "") and "Interval" not in _type(field.type)
    ]
    if as_columns:
        yield f"{', '.join(as_columns)}: as the [columns of the tidy table](export.md#columns)"
    for field in described:
        meaning, unit = field.metadata.get("meaning"), field.metadata.get("unit")
        if f"`{field.name}`" in as_columns:
            continue
        if meaning:
            yield f"`{field.name}` ({_type(field.type)}{_unit(unit)}): {meaning}"
        else:
            by_type.setdefault(_type(field.type), []).append(f"`{field.name}`")
    for type_name, names in by_type.items():
        yield f"{', '.join(names)} ({type_name})"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else annotation.__name__
    return text.replace(" | None", " or None").replace("|", "or")


def _members(kind: type) -> Iterator[str]:
    """Yield an entry for each public property and method that the class itself defines."""
    for name, value in vars(kind).items():
        if name.startswith("_") or not getattr(value, "__doc__", None):
            continue
        if inspect.isfunction(value):
            yield f"`{name}{_signature(value, of_class=True)}`: {_text(value)}".replace(" | None", " or None")
        elif isinstance(value, property) or type(value).__name__ == "cached_property":
            yield f"`{name}`: {_text(value)}"


def _text(value: Any) -> str:
    """Return a docstring as Markdown: each paragraph on one line, code in single backticks."""
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(value) or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).replace("``", "`")


def write_pages() -> None:
    python, export = DOCS / "python.md", DOCS / "export.md"
    page = python.read_text()
    python.write_text(page[: page.index(REFERENCE)] + make_reference())
    page = export.read_text()
    start = page.index(FIRST_COLUMN)
    end = page.index("\n\n", start) + 1
    export.write_text(page[:start] + make_column_list() + page[end:])


if __name__ == "__main__":
    write_pages()
