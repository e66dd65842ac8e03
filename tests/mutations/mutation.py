"""A mutation: one planted mistake, as data. It names the texts that it replaces and the command that must refute it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


class PatchError(Exception):
    """A text that a mutation replaces is not in its file, or is there more than once."""


@dataclass(frozen=True)
class MutationRun:
    """A command ``trainscale run``. The mistake is in the last framework; an earlier one is there for comparison."""

    frameworks: str
    model: str
    strategy: str
    devices: int = 1
    options: tuple[str, ...] = ()

    @property
    def mutated_framework(self) -> str:
        return self.frameworks.split(",")[-1]

    def __str__(self) -> str:
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        return " ".join([self.frameworks, self.model, self.strategy, f"on {devices}", *self.options])


@dataclass(frozen=True)
class Edit:
    """Replace ``old``, which must be there exactly once, by ``new`` in a file below src/trainscale."""

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        count = text.count(self.old)
        if count != 1:
            raise PatchError(f"{self.file}: this text is there {count} times, not once:\n{self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutation:
    """``mistake`` is a sentence for people. ``edits`` are applied in their order.

    ``survives`` says why nothing catches this mistake yet. It is empty for all that are caught.
    """

    name: str
    mistake: str
    run: MutationRun
    edits: tuple[Edit, ...]
    survives: str = ""

    @property
    def digest(self) -> str:
        """Return the same text as long as neither the edits nor the command change."""
        return hashlib.sha256(repr((self.edits, self.run)).encode()).hexdigest()[:12]

    def apply(self, sources: Path) -> None:
        """Change the files below a copy of src. Raises PatchError."""
        for edit in self.edits:
            path = sources / "trainscale" / edit.file
            path.write_text(edit.apply(path.read_text()))

    def patched_files(self) -> dict[str, str]:
        """Return the new text of every file that this mutation changes. Raises PatchError."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            before = texts.get(edit.file) or (SOURCES / "trainscale" / edit.file).read_text()
            texts[edit.file] = edit.apply(before)
        return texts


def single(
    name: str, mistake: str, run: MutationRun, file: str, replacement: tuple[str, str], survives: str = ""
) -> Mutation:
    """Return a mutation of one place. ``replacement`` is the old text and the new one."""
    return Mutation(name, mistake, run, (Edit(file, *replacement),), survives)
