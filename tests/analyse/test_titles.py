"""Titles are short, and tell every series from every other."""

from __future__ import annotations

from factories import make_config

from trainscale.analyse.titles import describe_differences, find_model_title, make_series_titles, make_strategy_labels
from trainscale.spec.config import Config


def titles(*configs: Config) -> list[str]:
    return list(make_series_titles(configs).values())


def test_a_lone_series_needs_model_framework_and_strategy_only() -> None:
    assert titles(make_config()) == ["AlexNet · torch · allreduce"]
    assert titles(make_config(strategy="ps", servers=2)) == ["AlexNet · torch · ps:2"]


def test_what_models_differ_in_anyway_is_not_repeated() -> None:
    all_titles = titles(make_config(batch=512), make_config(model="inceptionv3", batch=32))
    assert all_titles == ["AlexNet · torch · allreduce", "Inception v3 · torch · allreduce"]


def test_only_series_that_would_be_alike_get_more_words() -> None:
    all_titles = titles(make_config(), make_config(precision="bf16", batch=64), make_config(strategy="local"))
    assert all_titles == [
        "AlexNet · torch · allreduce · batch 32 · fp32",
        "AlexNet · torch · allreduce · batch 64 · bf16",
        "AlexNet · torch · local",
    ]


def test_two_models_of_one_title_go_by_their_names() -> None:
    assert titles(make_config(model="inceptionv3"), make_config(model="Inception-v3")) == [
        "inceptionv3 · torch · allreduce",
        "Inception-v3 · torch · allreduce",
    ]


def test_every_field_of_a_config_can_tell_two_series_apart() -> None:
    base = make_config(strategy="ps", servers=1)
    for name, value in base.to_dict().items():
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}x"
        changed = Config(**{**base.to_dict(), name: other})
        assert len(set(titles(base, changed))) == 2, name


def test_configs_that_do_not_differ_have_no_differences() -> None:
    assert describe_differences([make_config()]) == {make_config(): []}


def test_a_users_own_model_is_called_what_the_user_calls_it() -> None:
    assert find_model_title("my_package.nets:build") == "my_package.nets:build"
    assert find_model_title("net\x1b[31m\x00") == "net"


def test_a_label_is_the_strategy_and_only_what_differs() -> None:
    configs = [make_config(), make_config(precision="bf16", strategy="ps", servers=2)]
    assert list(make_strategy_labels(configs).values()) == ["allreduce fp32", "ps:2 bf16"]
    assert list(make_strategy_labels(configs[:1]).values()) == ["allreduce"]
    both = [make_config(compile=True, layout="nhwc"), make_config()]
    assert list(make_strategy_labels(both).values()) == ["allreduce nhwc compiled", "allreduce nchw eager"]


def test_the_ladders_of_a_study_have_their_scaling_in_their_labels() -> None:
    configs = [make_config(), make_config(scaling="strong", batch=64)]
    assert list(make_strategy_labels(configs).values()) == ["allreduce weak", "allreduce strong"]
