"""A run that another process measures is watched by its journal and its lock."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import learning_config
from watched_runs import CONFIG, begin, plan_of_two_nodes, records, run_info, submitted_record

from trainscale.cluster.allocation import JobStatus
from trainscale.errors import InputError
from trainscale.measure import watching
from trainscale.measure.batches import Attempt, Search, write_batches
from trainscale.measure.context import make_spec
from trainscale.measure.measure import RunListener
from trainscale.measure.order import NextTrial, choose_next_trial
from trainscale.measure.watching import FollowedRun, make_plan_of_run, watch_run
from trainscale.record import journal as journals
from trainscale.record.journal import Journal, is_being_measured, open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import CRASH, MISSING, TrialRecord
from trainscale.spec.config import AUTO
from trainscale.spec.plan import Plan


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_POLL_SECONDS", 0.0)


def happening(*steps: Callable[[], object]) -> Callable[[], bool]:
    """Each look at the run makes the next step happen. It is measured while any is left."""
    left = list(steps)

    def is_measured() -> bool:
        if not left:
            return False
        left.pop(0)()
        return True

    return is_measured


class Seen(RunListener):
    """What a listener is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.plan: Plan | None = None

    @contextmanager
    def show(self, plan: Plan, journal: Journal) -> Iterator[RunListener]:
        self.plan = plan
        yield self

    def trial_begins(self, trial: NextTrial) -> None:
        self.events.append(("begins", trial.trial.key))

    def trial_ends(self, record: TrialRecord) -> None:
        self.events.append(("ends", record.trial.key))


def test_the_lock_tells_whether_a_run_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "run"
    assert not is_being_measured(directory)
    with begin(directory):
        assert is_being_measured(directory)
        assert is_being_measured(directory)
    assert not is_being_measured(directory)
    directory = tmp_path / "run"
    begin(directory).close()
    with (directory / "trials.jsonl").open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        monkeypatch.setattr(journals.time, "sleep", lambda _: fcntl.flock(looked_at, fcntl.LOCK_UN))
        open_journal(directory, run_info()).close()


def test_the_plan_of_a_run_gives_the_same_next_trials() -> None:
    plan, all_records = make_plan_of_run(run_info()), records()
    for done in range(len(all_records)):
        step = choose_next_trial(plan, all_records[:done])
        assert step.trial == all_records[done].trial
        assert (step.measure.warmup, step.measure.steps) == (2, 3)
    assert choose_next_trial(plan, all_records) is None


@pytest.mark.parametrize("key", ["budget", "until_interval"])
def test_the_plan_of_a_run_has_its_rule(key: str) -> None:
    info = run_info(**{key: 0.5})
    del info.spec["repeats"]
    assert getattr(make_plan_of_run(info).experiment.measurement, key) == 0.5


def test_a_training_to_an_accuracy_has_the_facts_that_were_recorded() -> None:
    info = run_info(learning_config())
    info.provenance["data"] = {"name": "cifar10", "classes": 10, "train": 50_000, "valid": 10_000}
    plan = make_plan_of_run(info)
    assert plan.dataset.facts.train == 50_000
    assert plan.estimate_seconds(*plan.points[0]) > 0


@pytest.mark.parametrize("spec", [{}, {"series": []}, {"series": [{}]}, {"series": 3}])
def test_a_run_without_series_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"run\.json: it does not name the series"):
        make_plan_of_run(RunInfo(spec))


def test_trials_are_told_as_they_are_recorded_until_the_run_is_complete(tmp_path: Path) -> None:
    directory, seen, all_records = tmp_path / "run", Seen(), records()
    with begin(directory, all_records[0]) as journal:
        appends = [lambda record=record: journal.append(record) for record in all_records[1:]]
        end = watch_run(directory, happening(lambda: None, *appends), seen.show)
    keys = [record.trial.key for record in all_records]
    assert seen.events == [(event, key) for key in keys[1:] for event in ("begins", "ends")]
    assert end.is_complete
    assert [record.trial.key for record in end.records] == keys


def test_a_run_that_nobody_measures_is_left_as_it_is(tmp_path: Path) -> None:
    begin(tmp_path / "run", *records()[:3]).close()
    seen = Seen()
    end = watch_run(tmp_path / "run", happening(), seen.show)
    assert (end.is_complete, len(end.records), seen.events) == (False, 3, [])


def test_waiting_goes_on_while_nobody_measures(tmp_path: Path) -> None:
    directory, all_records, looks = tmp_path / "run", records(), []
    with begin(directory, *all_records[:3]) as journal:

        def look() -> bool:
            """Look at a run on a host whose lock is not seen here."""
            looks.append(directory)
            if len(looks) == 3:
                journal.append(all_records[3])
            return False

        end = watch_run(directory, look, Seen().show, waits=True)
    assert end.is_complete
    assert len(looks) == 3


def test_what_is_written_before_the_lock_is_free_is_read(tmp_path: Path) -> None:
    directory, all_records = tmp_path / "run", records()
    with begin(directory, *all_records[:2]) as journal:
        last = lambda: [journal.append(record) for record in all_records[2:]]  # noqa: E731
        end = watch_run(directory, happening(last), Seen().show)
    assert end.is_complete


def test_the_points_are_shown_once_their_batches_are_known(tmp_path: Path) -> None:
    directory, seen = tmp_path / "run", Seen()
    config = replace(CONFIG, batch=AUTO)

    def find() -> None:
        search = Search(config, 64, "", (Attempt(32, True, 1.0), Attempt(64, False, 1.0)), done=True)
        write_batches(directory, {config.key: search})

    with begin(directory, config=config):
        watch_run(directory, happening(lambda: None, find), seen.show)
    assert [c.batch for c in seen.plan.configs] == [32]


# ---- a run of a batch job


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("PATH", "/nonesuch")
    return plan_of_two_nodes()


@pytest.fixture
def journal(plan: Plan, tmp_path: Path) -> Iterator[Journal]:
    with open_journal(tmp_path / "run", RunInfo(make_spec(plan))) as journal:
        yield journal


@pytest.mark.processes
def test_what_is_under_way_is_known_from_the_journal(plan: Plan, journal: Journal) -> None:
    run = FollowedRun(journal.directory, plan)
    assert run.has_begun
    for trial in plan.list_trials():
        step = run.find_next_trial()
        assert step.trial == trial
        assert not run.is_complete
        journal.append(submitted_record(trial))
        assert run.has_new_records
        assert [record.trial for record in run.read_new_records()] == [trial]
        assert run.read_new_records() == []
    assert run.is_complete


@pytest.mark.processes
def test_a_run_that_has_not_begun_is_not_complete(plan: Plan, tmp_path: Path) -> None:
    run = FollowedRun(tmp_path / "none", plan)
    assert not run.has_begun
    assert not run.is_complete
    assert not run.wait_for_records(JobStatus("RUNNING"))
    assert not run.has_new_records


@pytest.mark.processes
def test_trials_to_be_tried_again_are_not_complete_until_they_were(plan: Plan, journal: Journal) -> None:
    first, *others = plan.list_trials()
    for trial in others:
        journal.append(submitted_record(trial))
    journal.append(submitted_record(first, CRASH))
    assert FollowedRun(journal.directory, plan).is_complete
    run = FollowedRun(journal.directory, plan, retry_failed=True)
    assert not run.is_complete
    assert run.wait_for_records(JobStatus("RUNNING"))
    journal.append(submitted_record(first))
    run.read_new_records()
    assert run.is_complete


@pytest.mark.processes
def test_frameworks_that_are_missing_are_not_waited_for(plan: Plan, journal: Journal) -> None:
    for trial in plan.list_round(0):
        journal.append(submitted_record(trial, MISSING))
    assert FollowedRun(journal.directory, plan).is_complete
