"""Configs and trials: batches under both scaling modes, and the keys that the journal knows them by."""

from dataclasses import fields, replace

import pytest

from trainscale.spec.config import Config, Trial, compute_digest

CONFIG = Config(
    framework="torch", model="alexnet", batch=32, strategy="allreduce", image_size=224, classes=1000, device="cuda"
)


def test_weak_scaling_keeps_the_batch_of_a_device_and_strong_scaling_that_of_all() -> None:
    assert [CONFIG.batch_per_device(n) for n in (1, 2, 4)] == [32, 32, 32]
    assert [CONFIG.global_batch(n) for n in (1, 2, 4)] == [32, 64, 128]
    strong = replace(CONFIG, scaling="strong")
    assert [strong.batch_per_device(n) for n in (1, 2, 4)] == [32, 16, 8]
    assert [strong.global_batch(n) for n in (1, 2, 4)] == [32, 32, 32]


def test_the_journals_identity_of_a_trial_is_unchanged() -> None:
    # A run is resumed by these keys. Whoever changes them, or adds a field to Config, makes every journal out there
    # start from nothing: raise the schema and say so in the changelog, then change these literals.
    assert CONFIG.key == "9de50a35ce22"
    assert Trial(CONFIG, devices=4, repeat=2).key == "9de50a35ce22-n4-r2"


@pytest.mark.parametrize("name", [field.name for field in fields(Config)])
def test_every_field_of_a_config_is_part_of_its_identity(name: str) -> None:
    value = getattr(CONFIG, name)
    if isinstance(value, bool):
        other: object = not value
    elif isinstance(value, str):
        other = value + "x"
    else:
        other = (value or 0) + 1
    assert replace(CONFIG, **{name: other}).key != CONFIG.key


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert compute_digest({"a": 1, "b": [2, 3]}) == compute_digest({"b": [2, 3], "a": 1})
    assert compute_digest({"a": 1, "b": [2, 3]}) != compute_digest({"a": 1, "b": [3, 2]})


def test_a_config_survives_its_dictionary_without_the_fields_of_a_newer_version() -> None:
    assert Config.from_dict(CONFIG.to_dict()) == CONFIG
    assert Config.from_dict({**CONFIG.to_dict(), "colour": "blue"}) == CONFIG


def test_trials_and_strategies_are_labelled_as_a_person_types_them() -> None:
    assert CONFIG.strategy_label == "allreduce"
    assert replace(CONFIG, strategy="ps", servers=2).strategy_label == "ps:2"
    assert Trial(CONFIG, 1, 0).label == "torch alexnet b32 allreduce · 1 device · repeat 1"
    assert Trial(CONFIG, 2, 4).label == "torch alexnet b32 allreduce · 2 devices · repeat 5"
