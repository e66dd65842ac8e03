"""The verdict on a trial: what is proven, what is refuted and with which words, and what stays unproven."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import make_config, make_rank, make_record

from trainscale.analyse.series import build_series
from trainscale.analyse.witness import Expectation, SampleFacts, apply_verdict, judge
from trainscale.record.parity import PROVEN, REFUTED, UNPROVEN
from trainscale.record.trial import ServerResult, TrialRecord
from trainscale.worker.sample import RankWitness, SamplesSeen, SeenByRank, pack_flags
from trainscale.worker.witness.witness import compute_decay

TENSORS = {"conv.weight": (3.0,) * 64, "dense.weight": (1.0,) * 64}
TOTAL = (4.0,) * 64
GRADIENT = (5.0,) * 64
EXPECTATION = Expectation(
    losses=((2.30, 2.31), (2.20, 2.21)),
    sketches=TENSORS,
    totals=(TOTAL,),
    loss_spreads=(1e-8, 1e-8),
    spreads=dict.fromkeys(TENSORS, 1e-5),
    total_spread=1e-5,
    gradients=(GRADIENT,),
    gradient_spread=1e-5,
    head_gradients=(GRADIENT,),
    tensor_gradients=TENSORS,
    samples=SampleFacts(deviation=0.99, copies=0, label_kinds=9, count=64),
)
CONFIG = make_config()
UPDATES = 12


def decay(updates: int) -> float:
    return compute_decay(CONFIG, lambda _: CONFIG.learning_rate, updates)


def witness(rank: int, **changes: Any) -> RankWitness:
    values = RankWitness(
        losses=tuple(step[rank] for step in EXPECTATION.losses),
        total=TOTAL,
        updates=UPDATES,
        counted_updates=UPDATES,
        unfinished_seconds=0.001,
        outer_seconds=5.001,
        decay=decay(UPDATES),
        expected_decay=decay(UPDATES),
        next_decay=decay(UPDATES + 1),
        closing_losses=(EXPECTATION.losses[0][rank],) * 3,
        gradients=(GRADIENT, GRADIENT),
        head_gradients=(GRADIENT, GRADIENT),
    )
    return replace(values, **changes)


def trial(*witnesses: RankWitness | None, config: Any = CONFIG, **changes: Any) -> TrialRecord:
    ranks = [make_rank(number, [0.5] * 10, 32, witness=value) for number, value in enumerate(witnesses)]
    return make_record(
        config, devices=len(ranks), ranks=ranks, **{"sketches": TENSORS, "closing_sketches": TENSORS, **changes}
    )


def with_tensor(name: str, value: float) -> dict[str, tuple[float, ...]]:
    return {**TENSORS, name: (value,) * 64}


def test_a_trial_that_computed_what_is_expected_is_proven() -> None:
    verdict = judge(trial(witness(0), witness(1)), EXPECTATION)
    assert (verdict.state, verdict.reason) == (PROVEN, "")
    assert [check.name for check in verdict.checks] == [
        "loss of step 1",
        "loss of step 2",
        "size of the change",
        "change of all weights",
        "change of each tensor",
        "equal weights",
        "loss of closing step 1",
        "loss of closing step 2",
        "loss of closing step 3",
        "gradient of the weights in the closing steps",
        "gradient of the head's weights in the closing steps",
        "gradient of each tensor in the closing steps",
        "equal gradients in the closing steps",
        "deviation of the samples",
        "copies among the samples",
        "kinds of labels",
        "updates that the framework counted",
        "number of updates",
        "equal weights after the window",
        "work left after the window",
        "step times and window",
        "a second clock",
    ]
    record = apply_verdict(trial(witness(0), witness(1)), EXPECTATION)
    again = TrialRecord.from_dict({**record.to_dict(), "key": "ignored"})
    assert again == replace(record, sketches={}, closing_sketches={})
    assert json.dumps(again.to_dict()) == json.dumps(record.to_dict())  # a whole number is written as 0.0, too


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"losses": (2.31, 2.2101)}, "step 2, rank 1: the loss is 2.2101 where 2.21 is expected"),
        ({"losses": (None, None)}, "step 1, rank 1: the loss is not finite where 2.31 is expected"),
        ({"total": (8.0,) * 64}, "after 2 steps, rank 1: the change of the weights is 2 times the expected one"),
        ({"total": (0.0,) * 64}, "after 2 steps, rank 1: the change of the weights is 0 times the expected one"),
        ({"total": (4.004,) * 64}, "after 2 steps, rank 1: the change of the weights is 1.001 times the expected one"),
        ({"total": (8.0, 0.0) * 32}, "after 2 steps, rank 1: the change of the weights differs by 1e+02 %"),
        ({"closing_losses": (2.31, 2.3101)}, "closing step 2, rank 1: the loss is 2.3101 where 2.31 is expected"),
        ({"closing_losses": (None,)}, "closing step 1, rank 1: the loss is not finite where 2.31 is expected"),
        (
            {"gradients": (GRADIENT, (0.0,) * 64)},
            "rank 1: steps from the initial weights update the weights by a gradient that differs by 1e+02 % from that",
        ),
        ({"gradients": ((5.02,) * 64,)}, "a gradient that differs by 0.4 % from that of the first step"),
        ({"head_gradients": ((5.2,) * 64,)}, "update the head's weights by a gradient that differs by 4 % from that"),
        ({"decay": decay(UPDATES - 1)}, "rank 1: by their weight decay, the weights had 11.0 updates and not 12"),
        ({"decay": decay(UPDATES // 2)}, "updates and not 12"),
        (
            {"decay": None, "counted_updates": 11},
            "rank 1: the framework has counted 11 updates of the weights and not 12",
        ),
        (
            {"head_gradients": ((5.002,) * 64,)},
            "update the head's weights by a gradient that differs by 0.04 % from that",
        ),
        ({"outer_seconds": 5.06}, "rank 1: the window took 5 s, and by a second clock 5.06 s"),
        ({"outer_seconds": 10.0}, "rank 1: the window took 5 s, and by a second clock 10 s"),
        ({"unfinished_seconds": 0.2}, "rank 1: when the window of 5 s ended, the device still had 0.2 s of work to do"),
    ],
)
def test_the_first_difference_refutes_a_trial_and_is_named(changes: dict[str, Any], message: str) -> None:
    verdict = judge(trial(witness(0), witness(1, **changes)), EXPECTATION)
    assert verdict.state == REFUTED
    assert message in verdict.reason
    assert verdict.rank == 1


@pytest.mark.parametrize(
    ("first", "second", "changes", "message"),
    [
        ({"total": (4.001,) * 64}, {}, {}, "after 2 steps, ranks 0 and 1 do not have the same weights"),
        ({}, {"total": (8.0, 0.0) * 32}, {"sketches": with_tensor("conv.weight", 0.0)}, "most in conv.weight"),
        ({}, {}, {"sketches": with_tensor("dense.weight", 1.1)}, "the change of dense.weight differs by 10 %"),
        ({}, {}, {"sketches": {"conv.weight": TENSORS["conv.weight"]}}, "dense.weight"),
        (
            {},
            {},
            {"closing_sketches": with_tensor("dense.weight", 0.0)},
            "after the window, rank 1: steps from the initial weights update dense.weight by a gradient",
        ),
        (
            {"gradients": ((5.0005,) * 64,) * 2},
            {},
            {},
            "after the window, ranks 0 and 1 update their weights by different gradients",
        ),
    ],
    ids=["unequal weights", "worst tensor", "small tensor", "missing tensor", "frozen tensor", "unequal gradients"],
)
def test_ranks_that_differ_refute(
    first: dict[str, Any], second: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    verdict = judge(trial(witness(0, **first), witness(1, **second), **changes), EXPECTATION)
    assert verdict.state == REFUTED
    assert message in verdict.reason


def test_rounding_is_no_difference() -> None:
    rounded, coarse = (
        (witness(0, total=values), witness(1, total=values)) for values in ((4.0004,) * 64, (4.04, 3.96) * 32)
    )
    assert judge(trial(*rounded), EXPECTATION).state == PROVEN
    assert judge(trial(*coarse), EXPECTATION).state == REFUTED
    assert judge(trial(*coarse, config=make_config(precision="bf16")), EXPECTATION).state == PROVEN
    """As where training diverges: the gradient is the small difference of two large updates."""
    rounded = {"head_gradients": ((5.002,) * 64,), "closing_change": 1000 * math.hypot(*GRADIENT)}
    assert judge(trial(witness(0), witness(1, **rounded)), EXPECTATION).state == PROVEN
    usual = {**rounded, "closing_change": 10 * math.hypot(*GRADIENT)}
    assert judge(trial(witness(0), witness(1, **usual)), EXPECTATION).state == REFUTED
    stopped = {**rounded, "gradients": ((0.0,) * 64,)}
    assert judge(trial(witness(0), witness(1, **stopped)), EXPECTATION).state == REFUTED
    """A ReLU near zero that is decided the other way changes the first update, and so the second loss."""
    expectation = replace(EXPECTATION, losses=((6.6,), (2.2,)))  # twice the second loss: 1e-4 of it may differ
    assert judge(trial(witness(0, losses=(6.6, 2.2 * (1 + 9e-5)), closing_losses=())), expectation).state == PROVEN
    too_far = judge(trial(witness(0, losses=(6.6, 2.2 * (1 + 1.1e-4)), closing_losses=())), expectation)
    assert too_far.reason.startswith("step 2, rank 0: the loss is")
    first = judge(trial(witness(0, losses=(6.6 * (1 + 9e-5), 2.2), closing_losses=())), expectation)
    assert first.reason.startswith("step 1, rank 0: the loss is")


def test_ranks_that_exchange_nothing_have_expectations_of_their_own() -> None:
    config, own = make_config(strategy="independent"), tuple(-value for value in GRADIENT)
    for changes, expected in (
        ({"total": own}, {"totals": (TOTAL, own)}),
        ({"gradients": (own, own)}, {"gradients": (GRADIENT, own)}),
    ):
        alone = replace(EXPECTATION, **expected)
        assert judge(trial(witness(0), witness(1, **changes), config=config), alone).state == PROVEN
        verdict = judge(trial(witness(0), witness(1), config=config), alone)
        assert (verdict.state, verdict.rank) == (REFUTED, 1)


def test_behind_asynchronous_servers_the_rank_with_the_newest_weights_counts_the_updates() -> None:
    config = make_config(strategy="ps-async", servers=1)
    older = witness(0, decay=decay(UPDATES - 1))
    assert judge(trial(older, witness(1), config=config), EXPECTATION).state == PROVEN
    lost = judge(trial(older, witness(1, decay=decay(UPDATES - 1)), config=config), EXPECTATION)
    assert "had 11.0 updates and not 12" in lost.reason


@pytest.mark.parametrize("config", [make_config(weight_decay=0.0), make_config(precision="bf16")])
def test_updates_are_counted_only_in_fp32_and_with_weight_decay(config: Any) -> None:
    names = [check.name for check in judge(trial(witness(0), witness(1), config=config), EXPECTATION).checks]
    assert "number of updates" not in names


def test_ranks_that_trained_on_the_same_samples_are_refuted() -> None:
    parts = [SeenByRank(rank, 128, (SamplesSeen(0, 64, rank, False),), flags(range(64))) for rank in range(2)]
    verdict = judge(trial(witness(0), witness(1), samples_seen=tuple(parts)), EXPECTATION)
    assert verdict.state == REFUTED
    assert "ranks 0 and 1 both trained on sample 0 (64 in common)" in verdict.reason
    apart = replace(parts[1], flags=flags(range(64, 128)))
    assert judge(trial(witness(0), witness(1), samples_seen=(parts[0], apart)), EXPECTATION).state == PROVEN


def flags(samples: range) -> str:
    values = np.zeros(128, np.bool_)
    values[list(samples)] = True
    return pack_flags(values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 640}, "rank 1: 640 samples are counted in 10 steps of 32"),
        ({"window_seconds": 4.0}, "rank 1: the 10 steps took 5 s, the window 4 s"),
    ],
)
def test_a_window_that_does_not_fit_its_steps_refutes_a_trial(changes: dict[str, Any], message: str) -> None:
    record = trial(witness(0), witness(1))
    record = replace(record, ranks=(record.ranks[0], replace(record.ranks[1], **changes)))
    verdict = judge(record, EXPECTATION)
    assert verdict.state == REFUTED
    assert message in verdict.reason


def test_without_an_expectation_a_trial_is_unproven_but_its_clock_is_still_checked() -> None:
    verdict = judge(trial(witness(0, losses=(), total=())), "--no-witness left it out")
    assert (verdict.state, verdict.reason) == (UNPROVEN, "--no-witness left it out")
    early = judge(trial(witness(0, losses=(), total=(), unfinished_seconds=3.0)), "--no-witness left it out")
    assert early.state == REFUTED


@pytest.mark.parametrize(
    ("silent", "reason"),
    [
        (None, "rank 1 reported nothing about its first steps"),
        (
            witness(1, losses=(), total=(), obstacle="torch cannot switch off dropout"),
            "torch cannot switch off dropout",
        ),
    ],
)
def test_a_rank_that_reports_nothing_leaves_a_trial_unproven(silent: RankWitness | None, reason: str) -> None:
    verdict = judge(trial(witness(0), silent), EXPECTATION)
    assert (verdict.state, verdict.reason, verdict.rank) == (UNPROVEN, reason, 1)


def test_a_refuted_trial_is_a_failed_row_that_names_its_host_and_a_failed_one_is_not_judged() -> None:
    over_hosts = trial(witness(0), witness(1, total=(8.0,) * 64), hosts=2)
    ranks = tuple(replace(rank, host=f"node{rank.rank + 1}") for rank in over_hosts.ranks)
    record = apply_verdict(replace(over_hosts, ranks=ranks), EXPECTATION)
    assert (record.status, record.ok) == ("refuted", False)
    assert (record.failure.rank, record.failure.host) == (1, "node2")
    assert record.failure.message.endswith(" (rank 1 is on node2)")
    (series,) = build_series([record])
    assert (series.points[0].status, series.points[0].samples_per_second) == ("refuted", None)
    crashed = replace(trial(witness(0)), status="crash")
    assert apply_verdict(crashed, EXPECTATION) == crashed


def test_titles_and_flags_say_that_the_work_is_unproven_and_nothing_where_it_is_proven() -> None:
    proven, unproven = (apply_verdict(trial(witness(0)), e) for e in (replace_losses(), "no memory for the reference"))
    (good,), (doubtful,) = build_series([proven]), build_series([unproven])
    assert "unproven" not in good.title
    assert good.work_is_proven
    assert doubtful.title.endswith(" · work unproven")
    assert "it is not proven that the trials did their work: no memory for the reference" in doubtful.points[0].flags


def replace_losses() -> Expectation:
    """The expectation of one worker."""
    return replace(EXPECTATION, losses=tuple((step[0],) for step in EXPECTATION.losses))


def test_a_trial_without_a_counter_or_closing_steps_is_judged_by_the_rest() -> None:
    """Asynchronous servers have none, and neither has an adapter that cannot restore weights."""
    without = [witness(rank, closing_losses=(), gradients=()) for rank in (0, 1)]
    assert judge(trial(*without), EXPECTATION).state == PROVEN
    assert judge(trial(*without), replace(EXPECTATION, gradients=())).state == PROVEN
    older = [witness(rank, counted_updates=None, outer_seconds=None) for rank in (0, 1)]
    assert judge(trial(*older), EXPECTATION).state == PROVEN


def with_digests(record: TrialRecord, *digests: str) -> TrialRecord:
    ranks = [replace(rank, weights_digest=text) for rank, text in zip(record.ranks, digests, strict=True)]
    return replace(record, ranks=tuple(ranks))


def test_ranks_of_one_host_that_train_together_have_the_same_weights_at_the_end_to_the_last_bit() -> None:
    record = with_digests(trial(witness(0), witness(1)), "a", "b")
    verdict = judge(record, EXPECTATION)
    assert (verdict.state, verdict.rank) == (REFUTED, 1)
    assert verdict.reason == "after the window, ranks 0 and 1 do not have the same weights"
    assert judge(replace(record, hosts=2), EXPECTATION).state == PROVEN  # hosts may round differently
    alone = replace(EXPECTATION, gradients=(GRADIENT, GRADIENT), totals=(TOTAL, TOTAL))
    independent = with_digests(trial(witness(0), witness(1), config=make_config(strategy="independent")), "a", "b")
    assert judge(independent, alone).state == PROVEN


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deviation": 0.0}, "the standard deviation of the synthetic samples is 0 and not 1"),
        ({"copies": 7}, "7 of 64 synthetic samples are copies of another one"),
        ({"label_kinds": 1}, "all 64 synthetic samples have the same label"),
    ],
)
def test_samples_that_are_not_random_refute_a_trial(changes: dict[str, Any], message: str) -> None:
    expectation = replace(EXPECTATION, samples=replace(EXPECTATION.samples, **changes))
    assert message in judge(trial(witness(0), witness(1)), expectation).reason
    real = trial(witness(0), witness(1), config=make_config(data="mnist"))
    assert judge(real, expectation).state == PROVEN


def test_few_labels_may_be_alike_by_chance() -> None:
    few = replace(EXPECTATION, samples=SampleFacts(deviation=1.0, copies=0, label_kinds=1, count=2))
    assert judge(trial(witness(0), witness(1)), few).state == PROVEN


@pytest.mark.parametrize(("counted", "state"), [(28, PROVEN), (27, REFUTED), (29, REFUTED), (None, PROVEN)])
def test_asynchronous_servers_count_every_gradient_once(counted: int | None, state: str) -> None:
    """12 steps of all ranks before the closing steps, 3 closing steps of each rank, 3 + 2 resident steps of each."""
    config = make_config(strategy="ps-async", servers=1, data="mnist")
    record = trial(witness(0), witness(1), config=config, servers=(ServerResult(updates=counted),))
    ranks = tuple(replace(rank, resident_steps=3, resident_seconds=1.0) for rank in record.ranks)
    own = replace(EXPECTATION, gradients=(GRADIENT, GRADIENT), totals=(TOTAL, TOTAL), samples=None)
    verdict = judge(replace(record, ranks=ranks), own)
    assert verdict.state == state, verdict.reason
    if state == REFUTED:
        assert f"a server has counted {counted} updates, where 28 gradients were sent" in verdict.reason
