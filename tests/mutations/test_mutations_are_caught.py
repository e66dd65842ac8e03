"""A few planted mistakes, run for real: each is refuted, and the same command without it is proven."""

import pytest
import tiers
from catalog import FAST, MUTATIONS, Edit, Mutation, MutationRun
from harness import CRASHED, WITNESS, Workshop, try_control, try_mutation

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


# The other commands are proven by the tests of witnesses, and by ``make mutations``.
@pytest.mark.parametrize("name", [FAST[0], FAST[-1]])
def test_the_command_is_proven_without_the_mistake(name: str, workshop: Workshop) -> None:
    assert try_control(workshop, FAST.index(name), MUTATIONS[name].run) == ""


def test_the_processes_of_a_trial_run_the_mutated_copy(workshop: Workshop) -> None:
    edit = Edit("worker/training/loop.py", 'heartbeat.phase = "first step"', 'raise RuntimeError("this is the copy")')
    run = MutationRun("torch", "plain-graph:4", "local")
    outcome = try_mutation(workshop, Mutation("crash", "The loop crashes", run, (edit,)))
    assert (outcome.caught_by, outcome.message) == (CRASHED, "rank 0: this is the copy")
