"""Prints plug-ins that cannot be used, alike in every listing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..launch.plugins import Plugin

if TYPE_CHECKING:
    from rich.console import Console


def print_broken(console: Console, plugins: Iterable[Plugin]) -> None:
    """Print each plug-in with its package and its error. The text is not ours, so it must not be read as markup."""
    for plugin in plugins:
        origin = f"plug-in of {plugin.package}" if plugin.package else "plug-in"
        reference = f"{plugin.reference}: " if plugin.reference else ""
        console.print(f"\n{plugin.kind} {plugin.name} ({origin}) cannot be used", markup=False)
        console.print(f"  {reference}{plugin.error}", markup=False, soft_wrap=True)
