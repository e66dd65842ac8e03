"""The order of a search: short trials until a winner is found, then the winner in full; nothing that cannot fit."""

import json
from dataclasses import replace
from typing import Any

import pytest
from factories import make_rank, record_at
from this_machine import cpus

from trainscale.analyse.race import replay_races_of_run
from trainscale.analyse.series import build_series
from trainscale.measure.context import make_short_measure, make_spec
from trainscale.measure.order import NextTrial, choose_next_trial, count_most_trials, skip_for_memory
from trainscale.questions.best.best import Question, find_best
from trainscale.record.parity import FAILED, Verdict
from trainscale.record.run import RunInfo
from trainscale.record.trial import OUT_OF_MEMORY, SKIPPED, Failure, MachineLoad, TrialRecord, decode_record
from trainscale.report.documents import select_series_in_full
from trainscale.report.run_tables import make_search_grids
from trainscale.runs import Run
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.job import Measure

SPEEDS = {("allreduce", 8): 100.0, ("allreduce", 16): 160.0, ("ps", 8): 40.0, ("ps", 16): 90.0}
MIB = 2**20


def make_search(devices: tuple[int, ...] = (2,), memory_bytes: int = 0, **settings: Any) -> Plan:
    values = {"models": ("mnist",), "strategies": ("allreduce", "ps:1"), "batch": (16, 8), "search": "lists"}
    return make_plan(Experiment.of(**{**values, "devices": devices, "repeats": 3, **settings}), cpus(4, memory_bytes))


def measure(step: NextTrial) -> TrialRecord:
    """A trial whose speed is that of its configuration, on twice the devices nearly twice as high, with some noise."""
    config, repeat = step.trial.config, step.trial.repeat
    speed = SPEEDS[config.strategy, config.batch] * step.trial.devices**0.9 * (1 + 0.01 * (-1) ** repeat)
    record = record_at(speed, config, step.trial.devices, repeat)
    return replace(record, trial=step.trial, warmup=step.measure.warmup, steps=step.measure.steps)


def run_search(plan: Plan, records: list[TrialRecord] | None = None, most: int = 1000) -> list[TrialRecord]:
    done = list(records or [])
    while len(done) < most and (step := choose_next_trial(plan, done)) is not None:
        done.append(measure(step))
    return done


def short_description(records: list[TrialRecord]) -> list[tuple[str, int, int]]:
    return [(r.trial.config.strategy, r.trial.config.batch, r.trial.repeat) for r in records if r.trial.short]


def test_short_trials_have_a_fifth_of_the_steps_and_are_counted() -> None:
    assert make_short_measure(Experiment.of().measurement) == Measure(5, 20)
    assert make_short_measure(Experiment.of(steps=30, warmup=2).measurement) == Measure(2, 10)
    assert make_short_measure(Experiment.of(steps=4, warmup=3).measurement) == Measure(2, 4)
    assert count_most_trials(make_search()) == (4 * 3, 3)
    assert count_most_trials(make_search((1, 2))) == (2 * 4 * 3, 3 + 2 * 3)
    assert count_most_trials(make_search(strategies=("allreduce",), batch=(8,))) == (0, 3)


def test_losers_leave_and_only_the_winners_are_measured_in_full() -> None:
    records = run_search(make_search())
    assert short_description(records)[:4] == [
        ("allreduce", 8, 0), ("ps", 8, 0), ("allreduce", 16, 0), ("ps", 16, 0),
    ]  # fmt: skip
    assert short_description(records)[4:7] == [("ps", 16, 1), ("allreduce", 16, 1), ("allreduce", 8, 1)]
    in_full = [r for r in records if not r.trial.short]
    assert {(r.trial.config.strategy, r.trial.config.batch) for r in in_full} == {("allreduce", 16)}
    assert [(r.trial.devices, r.trial.repeat, r.steps) for r in in_full] == [(2, 0, 100), (2, 1, 100), (2, 2, 100)]
    assert {r.steps for r in records if r.trial.short} == {20}
    records = run_search(make_search((1, 2)))
    assert {r.trial.devices for r in records if r.trial.short} == {1, 2}
    assert sorted({r.trial.devices for r in records if not r.trial.short}) == [1, 2]


@pytest.mark.parametrize("cut", range(1, 13))
def test_an_interrupted_search_continues_as_it_would_have_gone_on(cut: int) -> None:
    plan = make_search()
    whole = run_search(plan)
    assert run_search(plan, run_search(plan, most=cut)) == whole


def test_candidates_that_fail_leave() -> None:
    plan = make_search(batch=(8, 16), strategies=("allreduce",))
    step = choose_next_trial(plan, [])
    failed = TrialRecord(step.trial, OUT_OF_MEMORY, "", 1.0, failure=Failure(OUT_OF_MEMORY, "too large"))
    following = choose_next_trial(plan, [failed])
    assert following.trial.config.batch == 16
    skipped = skip_for_memory(plan, following.trial, [failed])
    assert skipped.failure == Failure(SKIPPED, "not tried: batch 8 ran out of memory")
    assert choose_next_trial(plan, [failed, skipped]) is None
    plan = make_search(strategies=("allreduce",))
    first = choose_next_trial(plan, [])
    crashed = TrialRecord(first.trial, "crash", "", 1.0, failure=Failure("crash", "segmentation fault"))
    second = choose_next_trial(plan, [crashed])
    assert (second.trial.config, second.trial.repeat) == (first.trial.config, 1)
    again = replace(crashed, trial=second.trial)
    third = choose_next_trial(plan, [crashed, again])
    assert third.trial.config != first.trial.config


def test_a_first_trial_that_other_programs_disturbed_is_repeated() -> None:
    plan = make_search()
    records = run_search(plan, most=4)
    slow = next(record for record in records if record.trial.config.strategy == "ps" and record.trial.config.batch == 8)
    busy = replace(slow, machine=MachineLoad(other_cores=1.5))
    for record, departed in ((slow, 1), (busy, 0)):
        others = [other for other in records if other is not slow]
        (race,) = replay_races_of_run(recorded(plan), [*others, record])
        assert len(race.departures) == departed


# ---- memory


def with_memory(trial: Trial, size: int) -> TrialRecord:
    ranks = [make_rank(rank, [0.1] * 3, trial.config.batch, host_peak_bytes=size) for rank in range(trial.devices)]
    return replace(record_at(100, trial.config, trial.devices), trial=trial, ranks=tuple(ranks))


def memory_problem(limit: int, sizes: dict[int, int], batch: int) -> str:
    plan = make_search(batch=(8, 16, 32, 64), strategies=("allreduce",), memory_bytes=limit)
    configs = {config.batch: config for config in plan.configs}
    records = [with_memory(Trial(configs[b], 2, 0, short=True), size) for b, size in sizes.items()]
    record = skip_for_memory(plan, Trial(configs[batch], 2, 0, short=True), records)
    return record.failure.message if record and record.failure else ""


def test_memory_is_estimated_linearly_from_two_smaller_batches_if_there_is_a_limit() -> None:
    sizes = {8: 600 * MIB, 16: 1000 * MIB}  # 50 MiB an image
    assert memory_problem(2 * 1801 * MIB, sizes, 32) == memory_problem(0, sizes, 32) == ""
    assert memory_problem(2 * MIB, {8: 600 * MIB}, 32) == ""
    assert memory_problem(2 * 1799 * MIB, sizes, 32) == (
        "not tried: it would need about 1.8 GiB by its batches 8 (0.6 GiB) and 16 (1.0 GiB), and there are 1.8 GiB"
    )
    plan = make_search(memory_bytes=1)
    assert skip_for_memory(plan, Trial(plan.configs[0], 2, 0), []) is None  # a trial in full is never skipped


# ---- what is recorded and shown


def recorded(plan: Plan) -> RunInfo:
    return RunInfo(json.loads(json.dumps(make_spec(plan))))


def test_a_short_trial_survives_the_journal() -> None:
    record = run_search(make_search(), most=1)[0]
    read = decode_record(json.dumps(record.to_dict()), "here")
    assert read.trial == record.trial
    assert read.trial.short
    assert read.trial.key.endswith("-n2-s0")
    in_full = replace(record, trial=replace(record.trial, short=False))
    assert "short" not in in_full.to_dict()


def test_races_are_those_of_the_recorded_plan_and_of_the_same_work() -> None:
    plan = make_search((1, 2))
    races = replay_races_of_run(recorded(plan), run_search(plan))
    assert [race.devices for race in races] == [1, 2]
    for race in races:
        assert (race.winner.strategy, race.winner.batch) == ("allreduce", 16)
        assert {(d.key.strategy, d.key.batch): d.round for d in race.departures} == {
            ("ps", 8): 1, ("ps", 16): 2, ("allreduce", 8): 2,
        }  # fmt: skip
    sweep = make_search(search=None)
    assert replay_races_of_run(recorded(sweep), []) == []
    assert make_spec(sweep) != make_spec(make_search())
    plan = make_search(models=("mnist", "alexnet"), strategies=("allreduce",))
    races = replay_races_of_run(recorded(plan), [])
    assert [{config.model for config in race.configs} for race in races] == [{"mnist"}, {"alexnet"}]


def test_the_table_says_of_every_candidate_what_became_of_it() -> None:
    plan = make_search()
    records = run_search(plan)
    (grid,) = make_search_grids(Run.from_records(recorded(plan), records))
    assert grid.title == "Search: Deep MNIST on 2 devices"
    fates = {row[0]: row[-1] for row in grid.rows}
    assert fates["torch · allreduce · batch 16"] == "the winner, measured in full"
    assert fates["torch · ps:1 · batch 8"] == "after round 1: slower than half of the leader, 0.250 of its speed"
    assert fates["torch · ps:1 · batch 16"] == (
        "after round 2: slower than the leader, 0.563 (0.490–0.645) of its speed"
    )
    assert grid.rows[0][0] == "torch · allreduce · batch 16"
    assert len(grid.rows) == 4
    plan = make_search()
    config = plan.configs[0]
    verdict = Verdict("torch", "mnist", 28, 10, config.layout, "cpu", "jax nhwc", FAILED, reason="another loss")
    (race,) = replay_races_of_run(recorded(plan), [], [verdict])
    assert (race.running, race.winner, len(race.not_started)) == ((), None, 4)
    (grid,) = make_search_grids(Run.from_records(recorded(plan), [], [verdict]))
    assert {row[-1] for row in grid.rows} == {"parity failed: not the same work as jax nhwc: another loss"}


def test_charts_and_points_show_what_was_measured_in_full() -> None:
    series = {(s.config.strategy, s.config.batch): s for s in build_series(run_search(make_search()))}
    winner, loser = series["allreduce", 16].points[0], series["ps", 8].points[0]
    assert (winner.repeats, loser.repeats) == (3, 1)
    assert "measured only in short trials of a search, 20 steps each" in loser.flags
    assert not any("short" in flag for flag in winner.flags)
    records = run_search(make_search())
    shown = select_series_in_full(Run.from_records(RunInfo({}), records))
    assert [(series.config.strategy, series.config.batch) for series in shown] == [("allreduce", 16)]
    race_only = [record for record in records if record.trial.short]
    assert len(select_series_in_full(Run.from_records(RunInfo({}), race_only))) == 4


def test_best_takes_the_winner_and_says_when_the_others_left() -> None:
    plan = make_search()
    (answer,) = find_best([Run.from_records(recorded(plan), run_search(plan))], Question()).choices
    assert (answer.leader.config.strategy, answer.leader.config.batch, len(answer.leader.good)) == ("allreduce", 16, 3)
    reasons = {out.name: out.reason for out in answer.left_out}
    assert reasons["torch · ps:1 · batch 8"] == (
        "it left the search after round 1: slower than half of the leader, 0.25 of its speed"
    )
