"""``trainscale frameworks``: which framework offers which strategy, from the one table in the code."""

from __future__ import annotations

from ..worker.frameworks.catalog import FRAMEWORKS, LAYOUTS, PRECISIONS, STRATEGIES
from .parser import Parser


def main(words: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    Parser("frameworks", "List the frameworks and what each offers. Whether it is installed: trainscale check.").read(
        words
    )
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("framework", no_wrap=True)
    for strategy in STRATEGIES:
        table.add_column(strategy, justify="center", no_wrap=True)
    for framework in FRAMEWORKS.values():
        table.add_row(framework.name, *("yes" if s in framework.strategies else "–" for s in STRATEGIES))
    console.print(table)
    for framework in FRAMEWORKS.values():
        console.print(
            f"[bold]{framework.name}[/] ({framework.title}): precisions {', '.join(framework.precisions)};"
            f" layouts {', '.join(framework.layouts)}{'; --compile' if framework.compiles else ''}; also"
            f" {', '.join(f'{name}:NAME' for name in framework.libraries)}, my_package.module:function"
        )
    for title, names in (("strategies", STRATEGIES), ("precisions", PRECISIONS), ("layouts", LAYOUTS)):
        console.print(f"[bold]{title}[/]")
        for name, meaning in names.items():
            console.print(f"  {name:<12} {meaning}")
    return 0
