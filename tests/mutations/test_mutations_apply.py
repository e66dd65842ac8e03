"""Every mutation still applies to the sources: exactly once, to valid Python, and to something that it changes."""

from __future__ import annotations

import ast
import functools
from collections import Counter

import pytest
from catalog import FAST, MUTATIONS, PARTS, controls
from mutation import SOURCES, Edit, Mutation, PatchError

from trainscale.worker.frameworks.catalog import FRAMEWORKS


@functools.cache
def syntax_of_source(file: str) -> str:
    return ast.dump(ast.parse((SOURCES / "trainscale" / file).read_text()))


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_the_mutation_changes_its_files_into_other_valid_python(mutation: Mutation) -> None:
    for file, text in mutation.patched_files().items():
        assert ast.dump(ast.parse(text)) != syntax_of_source(str(file)), f"{file} does the same as before"


def test_there_are_at_least_sixty_and_no_two_share_a_name_or_a_patch() -> None:
    everything = [mutation for part in PARTS.values() for mutation in part]
    assert len(everything) >= 60
    assert Counter(mutation.name for mutation in everything).most_common(1)[0][1] == 1
    patches = Counter((mutation.edits, mutation.run) for mutation in everything)
    assert patches.most_common(1)[0][1] == 1


def test_every_framework_and_every_strategy_has_mutations() -> None:
    mutated = {(m.run.mutated_framework, m.run.strategy.partition(":")[0]) for m in MUTATIONS.values()}
    assert {framework for framework, _ in mutated} == set(FRAMEWORKS)
    assert {strategy for _, strategy in mutated} == {s for f in FRAMEWORKS.values() for s in f.strategies}


def test_controls_have_every_strategy_of_every_framework_and_every_command_of_a_mutation() -> None:
    runs = controls()
    pairs = {(run.frameworks, run.strategy) for run in runs}
    assert {(f.name, s) for f in FRAMEWORKS.values() for s in f.strategies} <= pairs
    assert {mutation.run for mutation in MUTATIONS.values()} <= set(runs)
    assert len(set(runs)) == len(runs)


def test_the_fast_ones_exist() -> None:
    assert set(FAST) <= set(MUTATIONS)


@pytest.mark.parametrize("text", ["nothing of it", "step()\nstep()\n"], ids=["missing", "twice"])
def test_an_edit_that_does_not_match_exactly_once_fails_and_names_its_file(text: str) -> None:
    with pytest.raises(PatchError, match=r"some/file\.py"):
        Edit("some/file.py", "step()", "pass").apply(text)
