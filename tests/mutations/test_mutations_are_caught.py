"""A few planted mistakes, run for real: each is refuted, and the same command without it is proven."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiers
from catalog import FAST, MUTATIONS
from harness import WITNESS, Workshop, try_control, try_mutation

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("mutations"))


@pytest.mark.parametrize("name", FAST)
def test_the_mistake_is_refuted(name: str, workshop: Workshop) -> None:
    tiers.require("framework")
    outcome = try_mutation(workshop, MUTATIONS[name])
    assert outcome.caught_by == WITNESS, outcome.message
    assert outcome.message


def test_the_commands_are_proven_without_a_mistake(workshop: Workshop) -> None:
    for number, run in enumerate(dict.fromkeys(MUTATIONS[name].run for name in FAST)):
        assert try_control(workshop, number, run) == "", str(run)


def test_the_processes_of_a_trial_run_the_mutated_copy(workshop: Workshop, tmp_path: Path) -> None:
    from mutation import single
    from runs import local

    crash = single(
        "crash",
        "The loop crashes",
        local("torch"),
        "worker/training/loop.py",
        ('    heartbeat.phase = "first step"\n', '    raise RuntimeError("this is the copy")\n'),
    )
    outcome = try_mutation(workshop, crash)
    assert (outcome.caught_by, outcome.message) == ("crashed", "rank 0: this is the copy")
