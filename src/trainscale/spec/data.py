"""The data set of an experiment: what ``--data`` names, and where its files are."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import InputError, explain_unknown
from ..folders import find_data_folder
from ..worker.data import published_files
from ..worker.data.facts import FOLDER, KNOWN, SOURCES, SYNTHETIC, DataError, DatasetFacts, parse_data_kind, read_facts


@dataclass(frozen=True)
class Dataset:
    name: str  # as in configs: without the path, except for the last folder of photographs
    directory: str  # absolute; empty for synthetic images
    recorded: DatasetFacts | None = None  # of a run whose files may be on another machine

    @property
    def is_real(self) -> bool:
        return self.name != SYNTHETIC

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules that loader processes import besides numpy."""
        return ("PIL",) if parse_data_kind(self.name) == FOLDER else ()

    @cached_property  # it takes long to list a folder of a million photographs
    def facts(self) -> DatasetFacts:
        if self.recorded:
            return self.recorded
        try:
            return read_facts(self.name, self.directory)
        except DataError as error:
            raise InputError(f"data: {error}") from None

    def check(self) -> None:
        """Check every byte of a published data set; ``trainscale data check`` opens photographs."""
        kind = parse_data_kind(self.name)
        if kind in KNOWN:
            try:
                published_files.check_files(kind, self.directory)
            except DataError as error:
                raise InputError(f"data: {error}") from None


SYNTHETIC_DATASET = Dataset(SYNTHETIC, "")


def parse_data(text: str) -> str:
    """Return the value of ``--data`` with its kind in lower case, or raise ValueError."""
    kind, colon, directory = text.partition(":")
    if kind.lower() not in SOURCES:
        raise ValueError(str(explain_unknown("value", text, [*SOURCES])))
    if kind.lower() == SYNTHETIC and colon:
        raise ValueError(f"{text!r}: synthetic images have no folder; valid: synthetic")
    if kind.lower() == FOLDER and not directory:
        raise ValueError(f"{text!r} has no folder; valid: imagefolder:DIR")
    if colon and not directory:
        raise ValueError(f"{text!r} has an empty folder; valid: {kind} or {kind}:DIR")
    return f"{kind.lower()}{colon}{directory}"


def find_dataset(text: str) -> Dataset:
    kind, _, directory = text.partition(":")
    if kind == SYNTHETIC:
        return SYNTHETIC_DATASET
    folder = Path(directory).expanduser() if directory else find_datasets_folder() / kind
    path = Path(os.path.abspath(folder))  # noqa: PTH100
    return Dataset(f"{kind}:{path.name}" if kind == FOLDER else kind, str(path))


def find_datasets_folder() -> Path:
    return find_data_folder() / "data"
