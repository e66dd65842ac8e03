"""The verdict on a curve, the gate, what counts where a point is missing, and in what two sides differ."""

from dataclasses import fields, replace
from typing import Any

import pytest
from sides_for_tests import CONFIG, NEAR, make_point, make_side, scaled

from trainscale.errors import InputError
from trainscale.questions.compare.compare import (
    AT_LEAST,
    FAIL,
    FASTER,
    FIELDS,
    MIXED,
    NAMES,
    PASS,
    SAME,
    SLOWER,
    THRESHOLD,
    UNKNOWN,
    Gate,
    Pair,
    RunComparison,
    check_sides,
    compare_pairs,
    find_differences,
    match_sides,
)
from trainscale.questions.compare.sides import BY_BUDGET, Side, select_series
from trainscale.questions.compare.text import say
from trainscale.record.parity import WitnessVerdict
from trainscale.record.run import RecordedMachine
from trainscale.record.trial import Failure
from trainscale.spec.config import Config

WIDE = (0.95, 0.98, 1.0, 1.02, 1.05)
LADDER = make_side({1: scaled(100), 2: scaled(190), 4: scaled(360)})


def compare(b: Side, a: Side = LADDER, **options: object) -> RunComparison:
    return compare_pairs([(a, b)], **options)  # type: ignore[arg-type]


def side(*factors: float, values: tuple[float, ...] = NEAR) -> Side:
    return make_side({n: scaled(s * f, values) for (n, s), f in zip({1: 100, 2: 190, 4: 360}.items(), factors)})  # noqa: B905


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [
        ((1.0, 1.0, 1.0), SAME),
        ((0.95, 0.95, 0.95), SLOWER),
        ((1.05, 1.05, 1.05), FASTER),
        ((1.0, 1.0, 0.95), SLOWER),
        ((1.0, 1.05, 1.0), FASTER),
        ((1.05, 1.0, 0.95), MIXED),
    ],
)
def test_one_verdict_for_the_curve(factors: tuple[float, ...], verdict: str) -> None:
    comparison = compare(side(*factors))
    assert comparison.verdict == verdict
    assert [curve.verdict for curve in comparison.curves] == [verdict]


def test_wide_intervals_cannot_tell_and_say_how_many_repeats_would() -> None:
    comparison = compare(side(1.0, 1.0, 1.0, values=WIDE))
    assert comparison.verdict == UNKNOWN
    assert all(5 < (point.repeats_for_verdict or 0) < 200 for point in comparison.points)


@pytest.mark.parametrize(("on_one", "verdict"), [(100, UNKNOWN), (90, SLOWER)])
def test_a_difference_counts_more_than_what_is_unknown_and_that_more_than_what_is_the_same(
    on_one: float, verdict: str
) -> None:
    comparison = compare(make_side({1: scaled(on_one), 2: scaled(190), 4: scaled(360, WIDE)}))
    assert [point.verdict for point in comparison.points[1:]] == [SAME, UNKNOWN]
    assert comparison.verdict == verdict


def busy(side: Side, cores: float, repeats: int = 5) -> Side:
    return replace(side, other_cores={n: [cores] * repeats + [0.0] * (5 - repeats) for n in side.points})


def full(side: Side) -> Side:
    """The side on a machine whose workers need all cores."""
    return replace(side, machines=(RecordedMachine(cores=1),))


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (LADDER, busy(side(0.8, 0.8, 0.8), 0.3), UNKNOWN),
        (LADDER, busy(side(0.6, 0.6, 0.6), 0.3), SLOWER),  # what the others used does not explain so much
        (LADDER, busy(side(0.9, 0.9, 0.9), 0.3, repeats=1), SLOWER),  # 0.3 cores in one of five repeats
        (LADDER, busy(side(1.1, 1.1, 1.1), 0.3), FASTER),  # although it was disturbed
        (LADDER, busy(side(1.0, 1.0, 1.0), 0.3), UNKNOWN),
        (busy(LADDER, 0.3), side(1.2, 1.2, 1.2), UNKNOWN),
        (busy(LADDER, 0.3), side(0.9, 0.9, 0.9), SLOWER),
        (LADDER, busy(side(0.1, 0.1, 0.1), 1.5), UNKNOWN),
    ],
)
def test_what_other_programs_may_explain_is_not_claimed(a: Side, b: Side, verdict: str) -> None:
    comparison = compare(full(b), full(a))
    assert comparison.verdict == verdict
    assert all(point.is_hidden == (verdict == UNKNOWN) for point in comparison.points)


@pytest.mark.parametrize(("factor", "outcome"), [(0.9, UNKNOWN), (0.6, FAIL), (1.1, PASS)])
def test_a_gate_allows_for_what_other_programs_used(factor: float, outcome: str) -> None:
    comparison = compare(full(busy(side(factor, factor, factor), 0.3)), full(LADDER), gate=Gate(THRESHOLD, 0.98))
    assert comparison.outcome == outcome


def test_programs_that_fit_onto_free_cores_take_nothing() -> None:
    """The machine has 8 cores, and 1, 2 and 4 of them are used."""
    assert compare(busy(side(0.9, 0.9, 0.9), 3.5)).verdict == SLOWER
    assert [point.verdict for point in compare(busy(side(0.9, 0.9, 0.9), 4.5)).points] == [SLOWER, SLOWER, UNKNOWN]


@pytest.mark.parametrize("repeats", [1, 2])
def test_without_intervals_nothing_is_claimed_however_large_the_difference(repeats: int) -> None:
    b = make_side({1: [50.0] * repeats, 2: [95.0] * repeats, 4: [180.0] * repeats})
    comparison = compare(b, gate=Gate(THRESHOLD, 0.98))
    assert (comparison.verdict, comparison.outcome) == (UNKNOWN, UNKNOWN)
    assert comparison.points[0].ratio.mean == pytest.approx(0.5)  # type: ignore[union-attr]


def test_intervals_are_adjusted_for_the_points_that_are_looked_at() -> None:
    b = side(1.0, 1.0, 1.0)
    all_points, only_4 = compare(b), compare(b, devices=[4])
    assert (all_points.confidence, only_4.confidence) == (pytest.approx(1 - 0.05 / 3), pytest.approx(0.95))
    assert [point.devices for point in only_4.points] == [4]
    assert all_points.points[2].ratio.half_width > only_4.points[0].ratio.half_width  # type: ignore[union-attr, operator]
    several = compare_pairs([(LADDER, b), (LADDER, side(0.9, 0.9, 0.9))])
    assert several.confidence == pytest.approx(1 - 0.05 / 6)
    assert [curve.verdict for curve in several.curves] == [SAME, SLOWER]
    assert several.verdict == SLOWER


# ---- efficiency


def test_the_efficiency_ratio_is_that_of_the_speedups() -> None:
    points = compare(side(0.9, 0.9, 0.81)).points
    assert points[0].efficiency_ratio is None
    assert points[1].efficiency_ratio.mean == pytest.approx(1.0)  # type: ignore[union-attr]
    assert points[2].efficiency_ratio.mean == pytest.approx(0.9)  # type: ignore[union-attr]
    assert points[2].efficiency_ratio.half_width > points[2].ratio.half_width  # type: ignore[union-attr, operator]
    without_baseline = make_side({2: scaled(190), 4: scaled(360)})
    assert [point.efficiency_ratio for point in compare(without_baseline).points] == [None, None]


# ---- gates


@pytest.mark.parametrize(
    ("gate", "factor", "outcome"),
    [
        (Gate(THRESHOLD, 0.98), 1.0, PASS),
        (Gate(THRESHOLD, 0.98), 0.999, PASS),
        (Gate(THRESHOLD, 0.98), 0.98, UNKNOWN),
        (Gate(THRESHOLD, 0.98), 0.9815, UNKNOWN),
        (Gate(THRESHOLD, 0.98), 0.97, FAIL),
        (Gate(THRESHOLD, 0.98), 1.1, PASS),
        (Gate(AT_LEAST, 0.95), 1.0, PASS),
        (Gate(AT_LEAST, 0.95), 0.96, PASS),
        (Gate(AT_LEAST, 0.95), 0.95, UNKNOWN),
        (Gate(AT_LEAST, 0.95), 0.94, FAIL),
    ],
)
def test_a_gate_is_decided_by_the_interval(gate: Gate, factor: float, outcome: str) -> None:
    comparison = compare(side(1.0, 1.0, factor), gate=gate)
    assert comparison.outcome == outcome
    assert [point.outcome for point in comparison.points] == [PASS, PASS, outcome]


def test_same_means_within_the_threshold() -> None:
    assert compare(side(1.0, 1.0, 1.0)).margin == 0.02
    narrow = compare(side(1.0, 1.0, 1.0), gate=Gate(THRESHOLD, 0.999))
    assert (narrow.margin, narrow.verdict) == (0.001, UNKNOWN)


def test_a_gate_says_how_many_repeats_would_decide_it() -> None:
    point = compare(side(1.0, 1.0, 0.9815), gate=Gate(THRESHOLD, 0.98)).points[2]
    assert point.verdict == SLOWER
    assert point.repeats_for_verdict is None
    assert 5 < (point.repeats_for_gate or 0) <= 30


def test_a_point_that_fails_only_in_b_fails_the_gate_and_one_that_fails_only_in_a_does_not_count() -> None:
    lost = make_side({1: scaled(100), 2: scaled(190), 4: []})
    comparison = compare(lost, gate=Gate(THRESHOLD, 0.98))
    assert comparison.outcome == FAIL
    assert (comparison.points[2].is_lost, comparison.points[2].outcome) == (True, FAIL)
    assert comparison.confidence == pytest.approx(1 - 0.05 / 2)
    assert compare(lost).verdict == SAME
    comparison = compare(side(1.0, 1.0, 1.0), lost, gate=Gate(THRESHOLD, 0.98))
    assert (comparison.outcome, comparison.points[2].outcome) == (PASS, None)


def test_a_point_that_b_did_not_measure_has_not_passed() -> None:
    b = make_side({1: scaled(100), 2: scaled(190)})
    assert compare(b, gate=Gate(AT_LEAST, 0.95)).outcome == UNKNOWN
    assert compare(b, gate=Gate(AT_LEAST, 0.95)).curves[0].only_a == (4,)
    assert compare(b, gate=Gate(AT_LEAST, 0.95), devices=[1, 2]).outcome == PASS
    assert compare(LADDER, b, gate=Gate(AT_LEAST, 0.95)).outcome == PASS


# ---- nothing to compare


def test_a_network_that_failed_everywhere_is_named_beside_one_that_did_not() -> None:
    failed = make_side({1: [], 2: []})
    comparison = compare_pairs([(LADDER, side(0.9, 0.9, 0.9)), (failed, failed)])
    assert [curve.verdict for curve in comparison.curves] == [SLOWER, UNKNOWN]
    assert say("describe_curve", comparison.curves[1], 0.02).startswith(
        "nothing to compare: no device count has a result"
    )


@pytest.mark.parametrize(
    ("b", "devices", "message"),
    [
        (make_side({1: [], 2: [], 4: []}), None, "no device count has a result in both A and B"),
        (LADDER, [8], "--devices 8: not measured in both; valid: 1, 2, 4"),
        (make_side({8: scaled(700)}), None, r"no device count was measured in both: A, .* has 1, 2, 4; B, .* has 8"),
    ],
)
def test_device_counts_without_a_result_on_both_sides_are_refused(
    b: Side, devices: list[int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compare(b, devices=devices)


# ---- what differs is found and refused; --despite allows it; series find their counterparts

A = make_side({1: scaled(100), 2: scaled(190)})


def with_config(side: Side = A, **changes: object) -> Side:
    return replace(side, config=replace(CONFIG, **changes))  # type: ignore[arg-type]


def with_witness(state: str) -> Side:
    verdict = None if state == "not checked" else WitnessVerdict("unproven")
    failures = (Failure("refuted", "it did nothing"),) if state == "refuted" else ()
    return replace(A, points={**A.points, 2: make_point(2, scaled(190), verdict=verdict, failures=failures)})


def test_every_field_of_a_config_has_one_name() -> None:
    covered = [field for names in FIELDS.values() for field in names]
    assert sorted(covered) == sorted(field.name for field in fields(Config))


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "runs/b"},
        {"machines": (RecordedMachine(host="another"),)},
        {"measurement": {"warmup": "10", "steps": BY_BUDGET}},
        {"versions": {}, "machine": {}},  # not recorded
    ],
)
def test_what_says_nothing_of_the_work_does_not_differ(changes: dict[str, Any]) -> None:
    named = replace(A, machines=(RecordedMachine(host="one"),))
    assert find_differences(named, replace(named, **changes)) == ()


@pytest.mark.parametrize(
    ("b", "name", "values"),
    [
        (with_config(model="vgg16"), "model", ("alexnet", "vgg16")),
        (with_config(image_size=128), "model", ("224", "128")),
        (with_config(batch=64), "batch", ("32", "64")),
        (with_config(scaling="strong"), "batch", ("weak", "strong")),
        (with_config(strategy="ps"), "strategy", ("allreduce", "ps")),
        (with_config(device="cuda"), "device", ("cpu", "cuda")),
        (with_config(precision="bf16"), "precision", ("fp32", "bf16")),
        (with_config(compile=True), "compile", ("no", "yes")),
        (with_config(data="cifar10"), "data", ("synthetic", "cifar10")),
        (with_config(until_accuracy=0.9), "training", ("none", "0.9")),
        (with_config(allocator="system"), "allocator", ("tuned", "system")),
        (replace(A, measurement={"warmup": "0", "steps": "100"}), "measurement", ("10", "0")),
        (replace(A, versions={**A.versions, "torch": "2.10.0"}), "versions", ("2.9.1", "2.10.0")),
        (replace(A, versions={**A.versions, "cuda": "13"}), "versions", ("none", "13")),
        (replace(A, machine={**A.machine, "CPU": "Another CPU"}), "machine", ("A CPU", "Another CPU")),
        (replace(A, parity="failed"), "parity", ("not checked", "failed")),
        (with_witness("unproven"), "witness", ("proven", "unproven")),
        (with_witness("refuted"), "witness", ("proven", "refuted")),
        (with_witness("not checked"), "witness", ("proven", "not checked")),
    ],
)
def test_a_difference_is_refused_and_can_be_allowed(b: Side, name: str, values: tuple[str, str]) -> None:
    (difference,) = find_differences(A, b)
    assert (difference.name, difference.a, difference.b) == (name, *values)
    with pytest.raises(InputError) as caught:
        check_sides(A, b, ["hosts"])
    for text in (f"differ in {name}:", f"A {values[0]}", f"B {values[1]}", "--despite "):
        assert text in str(caught.value)
    assert check_sides(A, b, [name]) == (difference,)
    assert name in NAMES


def test_the_refusal_names_all_differences_and_keeps_what_was_allowed() -> None:
    b = replace(with_config(batch=64, precision="bf16"), machine={"CPU": "Another CPU", "cores": "8"})
    with pytest.raises(InputError, match=r"--despite batch,precision,machine$"):
        check_sides(A, b, ["machine"])


def test_hosts_of_a_point_count() -> None:
    b = replace(A, points={**A.points, 2: replace(A.points[2], hosts=2)})
    (difference,) = find_differences(A, b)
    assert (difference.name, difference.field, difference.a, difference.b) == ("hosts", "hosts of 2 devices", "1", "2")


@pytest.mark.parametrize(
    ("parities", "differs"),
    [
        (("proven", "proven"), False),
        (("proven", "not checked"), False),
        (("failed", "failed"), False),
        (("proven", "unproven"), True),
        (("failed", "unproven"), True),
    ],
)
def test_the_parity_of_one_framework(parities: tuple[str, str], differs: bool) -> None:
    a, b = (replace(A, parity=state) for state in parities)
    assert bool(find_differences(a, b)) == differs


@pytest.mark.parametrize(
    ("versions", "differs"),
    [
        ({"cuda": ("13.0", "13")}, False),
        ({"cuda": ("13.0", "13.1")}, True),
        ({"cudnn": ("91900", "9.19.0.56")}, False),
        ({"cudnn": ("8902", "8.9.2")}, False),
        ({"cudnn": ("91900", "9.20.0.1")}, True),
        ({"torch": ("2.9", "2.9.1")}, True),
    ],
)
def test_cuda_libraries_are_compared_as_far_as_both_sides_say(
    versions: dict[str, tuple[str, str]], differs: bool
) -> None:
    a, b = (replace(A, versions={name: both[side] for name, both in versions.items()}) for side in (0, 1))
    assert bool(find_differences(a, b)) == differs


@pytest.mark.parametrize("parities", [("proven", "not checked"), ("not checked", "not checked"), ("failed", "failed")])
def test_two_frameworks_need_a_proof_of_parity(parities: tuple[str, str]) -> None:
    a, b = replace(A, parity=parities[0]), replace(with_config(framework="jax"), parity=parities[1])
    assert [difference.name for difference in find_differences(a, b)] == ["framework", "parity"]
    proven = [replace(side, parity="proven") for side in (a, b)]
    assert [difference.name for difference in find_differences(*proven)] == ["framework"]


def test_two_frameworks_are_compared_in_the_versions_that_both_have() -> None:
    b = replace(with_config(framework="jax"), versions={"jax": "0.11.2", "python": "3.12.3"})
    proven = [replace(side, parity="proven") for side in (A, b)]
    assert [difference.field for difference in find_differences(*proven)] == ["framework", "python"]


def test_a_proof_that_both_lack_is_not_called_a_difference() -> None:
    with pytest.raises(InputError) as caught:
        check_sides(A, with_config(framework="jax"), ())
    message = str(caught.value)
    assert "because they differ in framework and their parity is not proven:" in message
    assert "both not checked; two frameworks are compared if both are proven" in message


# ---- which series belong together

VGG, BIG, BF16 = with_config(model="vgg16"), with_config(batch=64), with_config(precision="bf16")
FAR = with_config(model="vgg16", batch=1, precision="bf16")


@pytest.mark.parametrize(
    ("all_a", "all_b", "despite", "pairs"),
    [
        ([A, VGG], [VGG, BIG, A], [], [(A, A), (VGG, VGG)]),  # by their configs
        ([A], [BIG], [], [(A, BIG)]),  # two single series, whatever differs
        ([A, VGG], [BF16, VGG], ["precision"], [(A, BF16), (VGG, VGG)]),  # what was meant to change
        ([A], [FAR, BIG], [], [(A, BIG)]),  # the nearest two, for the refusal
    ],
)
def test_series_are_matched(all_a: list[Side], all_b: list[Side], despite: list[str], pairs: list[Pair]) -> None:
    assert match_sides(all_a, all_b, despite) == pairs


def test_several_counterparts_are_an_error() -> None:
    several = [BF16, with_config(precision="tf32")]
    for all_a, all_b in (([A], several), (several, [A])):
        with pytest.raises(InputError, match="2 series may be the counterpart"):
            match_sides(all_a, all_b, ["precision"])


# ---- names of series


TITLED = [replace(A, title=title) for title in ("AlexNet · torch · allreduce", "AlexNet · torch · ps:2")]


@pytest.mark.parametrize("text", ["AlexNet · torch · ps:2", "alexnet · torch · ps:2", "ps:2", "torch ps:2"])
def test_a_series_is_named_by_its_title_or_a_part_of_it(text: str) -> None:
    assert select_series(TITLED, text) is TITLED[1]


@pytest.mark.parametrize(("text", "problem"), [("jax", "no such series"), ("torch", "2 series match"), ("", "no such")])
def test_a_wrong_name_of_a_series_lists_the_valid(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        select_series(TITLED, text)
    assert problem in str(caught.value)
    assert all(side.title in str(caught.value) for side in TITLED)
