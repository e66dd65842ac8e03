"""A mutation is one planted mistake: the texts that it replaces and the command that must refute it.

They are in the files of ``mistakes``, where the first character says what a line is: ``$`` the command's frameworks,
model, strategy, number of devices and options; ``@`` the file of an edit, below src/trainscale; ``-``, ``+`` and a
space a line of the edit, as in a diff. Any other line begins a mistake with its name and a sentence for people.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from trainscale.worker.frameworks.catalog import FRAMEWORKS

SOURCES = Path(__file__).parents[2] / "src"
MISTAKES = Path(__file__).parent / "mistakes"


class PatchError(Exception):
    """A text that a mutation replaces is not in its file, or is there more than once."""


@dataclass(frozen=True)
class MutationRun:
    """A command ``trainscale run``. The mistake is in the last framework; an earlier one is there for comparison.

    The networks are those of tests/support/graph_nets.py. The harness puts a small data set in place of ``mnist:DIR``.
    """

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
    """``edits`` are applied in their order."""

    name: str
    mistake: str
    run: MutationRun
    edits: tuple[Edit, ...]

    @property
    def digest(self) -> str:
        """Return the same text as long as neither the edits nor the command change."""
        return hashlib.sha256(repr((self.edits, self.run)).encode()).hexdigest()[:12]

    def patch_files(self) -> dict[str, str]:
        """Return the new text of every file that this mutation changes. Raises PatchError."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            before = texts.get(edit.file) or (SOURCES / "trainscale" / edit.file).read_text()
            texts[edit.file] = edit.apply(before)
        return texts


def read_mutations(area: str) -> tuple[Mutation, ...]:
    mutations = []
    for block in (MISTAKES / f"{area}.txt").read_text().rstrip("\n").split("\n\n")[1:]:
        title, command, *edits = block.split("\n")
        name, _, mistake = title.partition(": ")
        frameworks, model, strategy, devices, *options = command.removeprefix("$ ").split()
        run = MutationRun(frameworks, model, strategy, int(devices), tuple(options))
        mutations.append(Mutation(name, mistake, run, _read_edits(edits)))
    return tuple(mutations)


def _read_edits(lines: list[str]) -> tuple[Edit, ...]:
    edits = []
    for part in "\n".join(lines).removeprefix("@ ").split("\n@ "):
        file, *diff = part.split("\n")
        old = "\n".join(line[1:] for line in diff if line[0] in "- ")
        new = "\n".join(line[1:] for line in diff if line[0] in "+ ")
        edits.append(Edit(file, old, new))
    return tuple(edits)


# The titles of the table's parts.
PARTS = {
    "PyTorch": read_mutations("torch"),
    "TensorFlow": read_mutations("tensorflow"),
    "JAX": read_mutations("jax"),
    "Keras": read_mutations("keras"),
    "MXNet": read_mutations("mxnet"),
    "Several ranks": read_mutations("distributed"),
    "Parameter servers": read_mutations("servers"),
    "Loop and data": read_mutations("loop_and_data"),
    "A part of the work": read_mutations("in_a_part"),
    "After the warm-up": read_mutations("after_warm_up"),
}
MUTATIONS = {mutation.name: mutation for part in PARTS.values() for mutation in part}

# Part of ``make test``: one framework after the other, and what only a witness sees.
FAST = (
    "torch-allreduce-sums",
    "torch-sharded-one-shard-updated",
    "window-skips-steps",
    "ranks-get-the-same-images",
    "mxnet-mean-taken-twice",
    "torch-last-layer-frozen-after-warm-up",
)


def controls() -> list[MutationRun]:
    """Return every command of a mutation, and every strategy of every framework, each once."""
    runs = [mutation.run for mutation in MUTATIONS.values()]
    for framework in FRAMEWORKS.values():
        for strategy in framework.engines:
            runs.append(MutationRun(framework.name, "plain-graph:4", strategy, 1 if strategy == "local" else 2))
    return list(dict.fromkeys(runs))
