"""The learning rate of every update, what is a schedule, and which variables concern the C allocator."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainscale.worker.config import (
    ALLOCATORS,
    SYSTEM,
    TUNED,
    Config,
    check_schedule,
    compute_learning_rate,
    select_allocator_variables,
)

EACH = 10  # updates an epoch


def make_config(rate: float, **values: Any) -> Config:
    return Config("torch", "mnist", 8, "local", 28, 10, learning_rate=rate, **values)


def rates(config: Config, epochs: int) -> list[float]:
    return [compute_learning_rate(config, update, EACH) for update in range(epochs * EACH)]


def test_a_constant_rate_is_constant_and_so_is_every_rate_without_epochs() -> None:
    assert set(rates(make_config(0.1, epochs=3), 3)) == {0.1}
    assert compute_learning_rate(make_config(0.1, schedule="cosine"), 1_000_000, 0) == 0.1


def test_steps_multiply_the_rate_from_their_epoch_on_by_a_tenth_unless_told_otherwise() -> None:
    learning_rates = rates(make_config(1.0, epochs=4, schedule="step:1,3:0.5"), 4)
    assert learning_rates == [1.0] * 10 + [0.5] * 20 + [0.25] * 10
    assert rates(make_config(1.0, epochs=2, schedule="step:1"), 2)[-1] == pytest.approx(0.1)


def test_a_cosine_falls_to_nothing_at_the_last_epoch() -> None:
    learning_rates = rates(make_config(1.0, epochs=2, schedule="cosine"), 2)
    assert learning_rates[0] == 1.0
    assert learning_rates[10] == pytest.approx(0.5)
    assert learning_rates == sorted(learning_rates, reverse=True)
    assert learning_rates[-1] == pytest.approx(0.5 * (1 + math.cos(math.pi * 19 / 20)))


def test_the_warm_up_rises_in_a_straight_line() -> None:
    learning_rates = rates(make_config(1.0, epochs=3, warmup_epochs=0.5), 1)
    assert learning_rates == pytest.approx([0.2, 0.4, 0.6, 0.8, *[1.0] * 6])


@pytest.mark.parametrize("text", ["constant", "cosine", "step:30", "step:30,60", "step:0.5,1:0.3", " Cosine "])
def test_schedules(text: str) -> None:
    assert check_schedule(text) == text.strip().lower()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear", "'linear' is not a schedule"),
        ("cosine:3", "is not a schedule"),
        ("step", "is not a schedule"),
        ("step:3:0.1:7", "is not a schedule"),
        ("step:x", "must be numbers"),
        ("step:60,30", "must rise"),
        ("step:0", "must rise"),
        ("step:30:2", "between 0 and 1"),
    ],
)
def test_what_is_no_schedule_is_told_with_what_is(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        check_schedule(text)
    assert "valid: constant, cosine, step:30,60" in str(caught.value)


def test_the_variables_of_the_c_allocator_are_named_and_no_others() -> None:
    own = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "LD_PRELOAD": "libjemalloc.so.2", "MALLOC_ARENA_MAX": "1"}
    others = {"PATH": "/bin", "PYTHONMALLOC": "malloc", "LD_LIBRARY_PATH": "/lib"}
    assert select_allocator_variables({**others, **own}) == own
    assert list(select_allocator_variables({**own, **others})) == sorted(own)


def test_every_variable_of_a_setting_is_reported_by_the_process_that_has_it() -> None:
    assert select_allocator_variables(ALLOCATORS[TUNED]) == ALLOCATORS[TUNED]
    assert len(ALLOCATORS[TUNED]) == 3
    assert ALLOCATORS[SYSTEM] == {}
