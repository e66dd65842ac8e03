"""A run that goes on elsewhere, as its directory shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from submitted import plan_of_two_nodes, record

from trainscale.measure.context import make_spec
from trainscale.measure.watching import FollowedRun
from trainscale.record.journal import Journal, open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import CRASH, MISSING
from trainscale.spec.plan import Plan

pytestmark = pytest.mark.processes


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("PATH", "/nonesuch")
    return plan_of_two_nodes()


@pytest.fixture
def journal(plan: Plan, tmp_path: Path) -> Iterator[Journal]:
    with open_journal(tmp_path / "run", RunInfo(make_spec(plan))) as journal:
        yield journal


def test_what_is_under_way_is_known_from_the_journal(plan: Plan, journal: Journal) -> None:
    run = FollowedRun(journal.directory, plan, retry_failed=False)
    assert run.has_begun
    for trial in plan.list_trials():
        step = run.find_next_trial()
        assert step is not None
        assert step.trial == trial
        assert not run.is_complete
        journal.append(record(trial))
        assert run.has_new_records
        assert [record.trial for record in run.read_new_records()] == [trial]
        assert run.read_new_records() == []
    assert run.is_complete


def test_a_run_that_has_not_begun_is_not_complete(plan: Plan, tmp_path: Path) -> None:
    run = FollowedRun(tmp_path / "none", plan, retry_failed=False)
    assert [run.has_begun, run.is_complete, run.has_every_record(), run.has_new_records] == [False] * 4


def test_trials_to_be_tried_again_are_not_complete_until_they_were(plan: Plan, journal: Journal) -> None:
    first, *others = plan.list_trials()
    for trial in others:
        journal.append(record(trial))
    journal.append(record(first, CRASH))
    assert FollowedRun(journal.directory, plan, retry_failed=False).is_complete
    run = FollowedRun(journal.directory, plan, retry_failed=True)
    assert not run.is_complete
    assert run.has_every_record()
    journal.append(record(first))
    run.read_new_records()
    assert run.is_complete


def test_frameworks_that_are_missing_are_not_waited_for(plan: Plan, journal: Journal) -> None:
    for trial in plan.list_round(0):
        journal.append(record(trial, MISSING))
    assert FollowedRun(journal.directory, plan, retry_failed=False).is_complete
