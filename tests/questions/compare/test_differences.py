"""What differs is found and refused; --despite allows it; series find their counterparts."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from sides_for_tests import CONFIG, make_point, make_side, scaled

from trainscale.errors import InputError
from trainscale.questions.compare.compare import FIELDS, NAMES, Pair, check_sides, find_differences, match_sides
from trainscale.questions.compare.sides import BY_BUDGET, Side, select_series
from trainscale.record.parity import WitnessVerdict
from trainscale.record.run import RecordedMachine
from trainscale.record.trial import Failure
from trainscale.spec.config import Config

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
