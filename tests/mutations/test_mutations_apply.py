"""Every mutation still applies to the sources: exactly once, to valid Python, and to something that it changes. The
table of mistakes in the documentation is made from the results of ``make mutations``.
"""

import ast
import functools
import json
from collections import Counter

import pytest
from catalog import MUTATIONS, PARTS, SOURCES, Edit, Mutation, PatchError, controls
from run_mutations import PAGE, RESULTS, insert_table, make_table

from trainscale.worker.frameworks.catalog import FRAMEWORKS


@functools.cache
def syntax_of_source(file: str) -> str:
    return ast.dump(ast.parse((SOURCES / "trainscale" / file).read_text()))


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_the_mutation_changes_its_files_into_other_valid_python(mutation: Mutation) -> None:
    for file, text in mutation.patch_files().items():
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
    assert {strategy for _, strategy in mutated} == {s for f in FRAMEWORKS.values() for s in f.engines}


def test_controls_have_every_strategy_of_every_framework_and_every_command_of_a_mutation() -> None:
    runs = controls()
    pairs = {(run.frameworks, run.strategy) for run in runs}
    assert {(f.name, s) for f in FRAMEWORKS.values() for s in f.engines} <= pairs
    assert {mutation.run for mutation in MUTATIONS.values()} <= set(runs)
    assert len(set(runs)) == len(runs)


@pytest.mark.parametrize("text", ["nothing of it", "step()\nstep()\n"], ids=["missing", "twice"])
def test_an_edit_that_does_not_match_exactly_once_fails_and_names_its_file(text: str) -> None:
    with pytest.raises(PatchError, match=r"some/file\.py"):
        Edit("some/file.py", "step()", "pass").apply(text)


def test_the_table_is_that_of_the_results() -> None:
    """To write it anew: python tests/mutations/run_mutations.py none, which runs no mutation."""
    page = PAGE.read_text()
    assert insert_table(page, make_table(json.loads(RESULTS.read_text()))) == page


def test_results_are_of_mutations_and_controls_that_exist() -> None:
    assert json.loads(RESULTS.read_text()).keys() <= {*MUTATIONS, *map(str, controls())}


def test_a_mistake_that_nothing_caught_is_counted_and_shown() -> None:
    caught, missed = list(MUTATIONS)[:2]
    table = make_table(
        {
            caught: {"caught_by": "witness", "message": "the loss is 3 | not 2"},
            missed: {"caught_by": "survived", "message": "nothing noticed it"},
        }
    )
    assert (
        f"Of {len(MUTATIONS)} mistakes, the witness refuted 1, the parity check found 0 and 1 went unnoticed" in table
    )
    assert f"{len(MUTATIONS) - 2} were not run" in table
    assert f"Not noticed: {MUTATIONS[missed].mistake} (`{MUTATIONS[missed].run}`): nothing noticed it" in table
    part = next(part for part, mutations in PARTS.items() if MUTATIONS[missed] in mutations)
    assert f"| {part} | {len(PARTS[part])} | 1 | 0 | 1 |" in table


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the table"):
        insert_table("# Method\n", "table")
