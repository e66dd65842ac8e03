"""What a process must know to load a plug-in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PluginReference:
    """A framework, a model or a launcher of a third party.

    ``reference`` is "module:name". ``folder`` holds the top-level package, for environments that do not have it.
    """

    kind: str
    name: str
    reference: str
    folder: str

    @property
    def package(self) -> str:
        return parse_package(self.reference)


def parse_package(reference: str) -> str:
    """Return the top-level package or module that holds all of a plug-in."""
    return reference.partition(":")[0].partition(".")[0]
