"""Tables of a command on the terminal, without lines."""

from typing import Any

from rich.table import Column, Table


def text(heading: str = "", **options: Any) -> Column:
    return Column(heading, no_wrap=True, **options)


def number(heading: str, **options: Any) -> Column:
    return Column(heading, no_wrap=True, justify="right", **options)


def folded(heading: str = "") -> Column:
    return Column(heading, overflow="fold")


def make_table(*columns: Column, title: str | None = None, show_header: bool = True, gap: int = 2) -> Table:
    options: dict[str, Any] = {"title_justify": "left", "caption_justify": "left", "show_header": show_header}
    return Table(*columns, title=title, box=None, padding=(0, gap, 0, 0), **options)
