"""The table of mistakes in the documentation is made from the results of ``make mutations``."""

from __future__ import annotations

import json

import pytest
from catalog import MUTATIONS, PARTS, controls
from make_table import PAGE, RESULTS, insert_table, make_table


def test_the_table_is_that_of_the_results() -> None:
    """To write it anew: python tests/mutations/make_table.py."""
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
