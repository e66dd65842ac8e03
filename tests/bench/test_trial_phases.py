"""`bench/trial_phases.py`: the phases of a trial add up to its time, also where the end of one was not seen."""

from types import SimpleNamespace

import pytest
from simulated_trial import SimulatedTrial

import trial_phases


def test_phases_add_up_and_one_that_was_not_seen_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(trial_phases, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    watcher, trial = trial_phases.Watcher(began=100.0), SimulatedTrial(2)
    for rank in range(2):
        trial.start_rank(rank)
        clock[0] += 2.0
        watcher(trial.state)
    for rank in range(2):
        trial.exit_rank(rank)
    clock[0] += 5.0
    watcher(trial.state)
    clock[0] += 1.0
    phases = watcher.phases()
    assert sum(phases.values()) == pytest.approx(10.0)
    assert phases["imports"] == 4.0  # of the last rank
    assert phases["measuring"] == 0.0
    assert phases["ending"] == 1.0
