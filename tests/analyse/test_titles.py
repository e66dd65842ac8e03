"""Titles are short, and tell every series from every other."""

from typing import Any

import pytest
from factories import make_config

from trainscale.analyse.titles import describe_differences, find_model_title, make_series_titles, make_strategy_labels
from trainscale.spec.config import Config


@pytest.mark.parametrize(
    ("settings", "titles"),
    [
        ([{}], ["AlexNet · torch · allreduce"]),
        ([{"strategy": "ps", "servers": 2}], ["AlexNet · torch · ps:2"]),
        # What models differ in anyway is not repeated
        (
            [{"batch": 512}, {"model": "inceptionv3", "batch": 32}],
            ["AlexNet · torch · allreduce", "Inception v3 · torch · allreduce"],
        ),
        (
            [{}, {"precision": "bf16", "batch": 64}, {"strategy": "local"}],
            [
                "AlexNet · torch · allreduce · batch 32 · fp32",
                "AlexNet · torch · allreduce · batch 64 · bf16",
                "AlexNet · torch · local",
            ],
        ),
        # Two models of one title go by their names
        (
            [{"model": "inceptionv3"}, {"model": "Inception-v3"}],
            ["inceptionv3 · torch · allreduce", "Inception-v3 · torch · allreduce"],
        ),
    ],
)
def test_only_series_that_would_be_alike_get_more_words(settings: list[dict[str, Any]], titles: list[str]) -> None:
    assert list(make_series_titles([make_config(**values) for values in settings]).values()) == titles


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ([{}], ["allreduce"]),
        ([{}, {"precision": "bf16", "strategy": "ps", "servers": 2}], ["allreduce fp32", "ps:2 bf16"]),
        ([{"compile": True, "layout": "nhwc"}, {}], ["allreduce nhwc compiled", "allreduce nchw eager"]),
        ([{}, {"scaling": "strong", "batch": 64}], ["allreduce weak", "allreduce strong"]),  # of a study
    ],
)
def test_a_label_is_the_strategy_and_only_what_differs(settings: list[dict[str, Any]], labels: list[str]) -> None:
    assert list(make_strategy_labels([make_config(**values) for values in settings]).values()) == labels


def test_every_field_of_a_config_can_tell_two_series_apart() -> None:
    base = make_config(strategy="ps", servers=1)
    for name, value in base.to_dict().items():
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}x"
        changed = Config(**{**base.to_dict(), name: other})
        assert len(set(make_series_titles([base, changed]).values())) == 2, name
    assert describe_differences([make_config()]) == {make_config(): []}


def test_a_users_own_model_is_called_what_the_user_calls_it() -> None:
    assert find_model_title("my_package.nets:build") == "my_package.nets:build"
    assert find_model_title("net\x1b[31m\x00") == "net"
