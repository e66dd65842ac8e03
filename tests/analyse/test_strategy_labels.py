"""The labels of the tables in which a network may have many configs."""

from __future__ import annotations

from factories import make_config

from trainscale.analyse.titles import make_strategy_labels


def test_a_label_is_the_strategy_and_only_what_differs() -> None:
    configs = [make_config(), make_config(precision="bf16", strategy="ps", servers=2)]
    assert list(make_strategy_labels(configs).values()) == ["allreduce fp32", "ps:2 bf16"]
    assert list(make_strategy_labels(configs[:1]).values()) == ["allreduce"]
    both = [make_config(compile=True, layout="nhwc"), make_config()]
    assert list(make_strategy_labels(both).values()) == ["allreduce nhwc compiled", "allreduce nchw eager"]


def test_the_ladders_of_a_study_have_their_scaling_in_their_labels() -> None:
    configs = [make_config(), make_config(scaling="strong", batch=64)]
    assert list(make_strategy_labels(configs).values()) == ["allreduce weak", "allreduce strong"]
