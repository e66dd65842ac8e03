"""What answers are written with: sections, templates, JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..analyse.titles import find_model_title
from ..worker.type_aliases import JsonObject
from . import numbers, wording
from .table import Grid, TerminalGrid

if TYPE_CHECKING:
    import jinja2

Filter = Callable[..., Any]


@dataclass(frozen=True)
class Section:
    """A heading, a table, and paragraphs after it."""

    heading: str
    paragraphs: Sequence[str] = ()
    grid: Grid | None = None
    command: str = ""


def print_sections(sections: Iterable[Section], note: str) -> None:
    """Print tables, their sentences, and the note."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for section in sections:
        if section.grid:
            console.print(TerminalGrid(section.grid), end="")
        else:
            console.print(Text(section.heading, style="bold"))
        for text in section.paragraphs:
            print(fill(text, console.width, initial_indent="  ", subsequent_indent="    "))
        console.print()
    if note:
        console.print(Text(note, style="dim"))


@cache
def load_template(
    package: str, name: str, filters: tuple[tuple[str, Filter], ...] = (), autoescape: bool = False
) -> jinja2.Template:
    """Return a template; its tags are none of LaTeX or Markdown."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        autoescape=autoescape,  # of HTML; the other formats escape in their own way
    )
    environment.filters.update(filters)
    environment.globals |= {"find_model_title": find_model_title, "numbers": numbers, "wording": wording}
    return environment.get_template(name)


def join_lines(text: str) -> str:
    """Return a rendered sentence in one line."""
    return re.sub(" (?=[.,;:] )", "", re.sub("[ \\n]+", " ", text)).strip()


def split_paragraphs(text: str) -> list[str]:
    return [paragraph for part in text.split("\n\n") if (paragraph := join_lines(part))]


def pick(answer: object, names: str) -> JsonObject:
    """Return attributes of an answer by name."""
    picked = {name: getattr(answer, name) for name in names.split()}
    if config := picked.get("config"):
        picked["config"] = config.to_dict()
    return picked


def render_json(document: JsonObject) -> str:
    """Return dataclasses, numbers and texts as JSON; infinity becomes null."""
    import msgspec

    def convert(value: Any) -> Any:
        return value.item() if hasattr(value, "item") else str(value)  # numpy's numbers become Python's

    encoded = msgspec.json.encode(document, enc_hook=convert)
    return msgspec.json.format(encoded, indent=2).decode() + "\n"
