"""Whether a command submits a job, and the plan for nodes that are not allocated yet."""

from __future__ import annotations

import pytest

from trainscale.errors import InputError
from trainscale.launch.launchers.slurm import SlurmSettings
from trainscale.measure.submission.plan import plan_for_nodes, should_submit
from trainscale.spec.experiment import Experiment, make_experiment


def test_only_slurm_outside_of_a_job_with_nodes_submits() -> None:
    experiment = Experiment.of(launcher="slurm", nodes=2)
    assert should_submit(experiment, {})
    assert not should_submit(experiment, {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a"})
    assert not should_submit(Experiment(), {})
    assert not should_submit(Experiment.of(launcher="ray", nodes=2), {})
    with pytest.raises(InputError, match="partition: no job is submitted to Slurm here"):
        should_submit(Experiment.of((SlurmSettings,), partition="p"), {})


@pytest.mark.processes
def test_a_plan_for_nodes_that_are_not_there_yet_finds_mistakes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonesuch")
    plan = plan_for_nodes(make_experiment({"nodes": 4, "device": "cuda", "gpus_per_host": 4, "models": ("alexnet",)}))
    assert (plan.available.kind, plan.available.devices_per_host) == ("cuda", [4, 4, 4, 4])
    assert plan.ladders == ((1, 2, 4, 8, 16),)
    with pytest.raises(InputError, match="20 workers need 5 hosts of 4 devices"):
        plan_for_nodes(make_experiment({"nodes": 4, "gpus_per_host": 4, "max_devices": 20}))
