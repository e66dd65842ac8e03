"""``trainscale frameworks``: list which framework offers which strategy, and by which of its engines."""

from __future__ import annotations

from ..launch import plugins
from ..worker.frameworks.catalog import FRAMEWORKS, LAYOUTS, PRECISIONS, STRATEGIES, Framework
from ..worker.plugins import FRAMEWORK
from .parser import Parser
from .plugins import print_broken


def main(argv: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    parser = Parser("frameworks", "List the frameworks and what each offers. trainscale check shows what is installed.")
    parser.read(argv)
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("framework", no_wrap=True)
    for strategy in STRATEGIES:
        table.add_column(strategy, justify="center", no_wrap=True)
    for framework in FRAMEWORKS.values():
        table.add_row(framework.name, *("yes" if s in framework.engines else "–" for s in STRATEGIES))
    console.print(table)
    for framework in FRAMEWORKS.values():
        console.print(f"\n[bold]{framework.name}[/] ({framework.title})")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, min_width=18)
        for name, value in _describe_framework(framework):
            grid.add_row(f"  {name}", value)
        console.print(grid)
    print_broken(console, plugins.list_broken_plugins(FRAMEWORK))
    for title, names in (("strategies", STRATEGIES), ("precisions", PRECISIONS), ("layouts", LAYOUTS)):
        console.print(f"\n[bold]{title}[/]")
        for name, meaning in names.items():
            console.print(f"  {name:<12} {meaning}")
    return 0


def _describe_framework(framework: Framework) -> list[tuple[str, str]]:
    """Return rows of names and values. An engine that serves several strategies has one row."""
    served: dict[str, list[str]] = {}
    for strategy, engine in framework.engines.items():
        served.setdefault(engine, []).append(strategy)
    rows = [(", ".join(strategies), engine) for engine, strategies in served.items()]
    layouts = "; ".join(f"{device}: {', '.join(names)}" for device, names in framework.layouts.items())
    networks = [*(f"{name}:NAME" for name in framework.libraries), "my_package.module:function"]
    return [
        *rows,
        ("precisions", ", ".join(framework.precisions) + (" · --compile" if framework.compiles else "")),
        ("layouts", f"{layouts} (the best first)"),
        ("networks", f"those of trainscale, {', '.join(networks)}"),
        *([("plug-in", framework.plugin.reference)] if framework.plugin else []),
    ]
