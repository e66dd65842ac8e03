"""Which images an experiment trains on, and where they lie: what ``--data`` says, before anything is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import InputError, unknown
from ..worker.data import published_files
from ..worker.data.facts import FOLDER, KNOWN, SOURCES, SYNTHETIC, DataError, DatasetFacts, kind_of, read_facts


@dataclass(frozen=True)
class Images:
    """``name`` stands in configs: the set, not the place. A folder of photographs goes by the folder's name."""

    name: str
    directory: str  # absolute; nothing where the images are synthetic

    @property
    def real(self) -> bool:
        return self.name != SYNTHETIC

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules that loader processes import besides numpy."""
        return ("PIL",) if kind_of(self.name) == FOLDER else ()

    def facts(self) -> DatasetFacts:
        return self._facts

    @cached_property
    def _facts(self) -> DatasetFacts:
        """Looked up once: a folder of a million photographs takes its time to list."""
        try:
            return read_facts(self.name, self.directory)
        except DataError as error:
            raise InputError(f"data: {error}") from None

    def check(self) -> None:
        """Every byte of a published set, before anything relies on it. Raises InputError. Photographs are only counted:
        ``trainscale data check`` opens them all.
        """
        if kind_of(self.name) not in KNOWN:
            return
        try:
            published_files.check_files(kind_of(self.name), self.directory)
        except DataError as error:
            raise InputError(f"data: {error}") from None


NO_IMAGES = Images(SYNTHETIC, "")


def parse(text: str) -> str:
    """``--data`` as it was typed, if it can be understood. Raises ValueError."""
    kind, colon, directory = text.partition(":")
    if kind.lower() not in SOURCES:
        raise ValueError(str(unknown("value", text, [*SOURCES])))
    if kind.lower() == SYNTHETIC and colon:
        raise ValueError(f"{text!r}: synthetic images lie nowhere; valid: synthetic")
    if kind.lower() == FOLDER and not directory:
        raise ValueError(f"{text!r} has no folder; valid: imagefolder:DIR")
    if colon and not directory:
        raise ValueError(f"{text!r} has an empty folder; valid: {kind} or {kind}:DIR")
    return f"{kind.lower()}{colon}{directory}"


def images(text: str) -> Images:
    """What a parsed ``--data`` means here."""
    kind, _, directory = text.partition(":")
    if kind == SYNTHETIC:
        return NO_IMAGES
    place = Path(os.path.abspath(Path(directory).expanduser())) if directory else home() / kind  # noqa: PTH100
    return Images(f"{kind}:{place.name}" if kind == FOLDER else kind, str(place))


def home() -> Path:
    """Where sets are kept that ``trainscale data get`` got. An empty or relative XDG_DATA_HOME counts as none."""
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return base / "trainscale" / "data"
