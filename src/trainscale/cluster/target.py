"""Chooses the launcher of an experiment. The launcher then finds its hosts (launch/launchers/target.py)."""

from __future__ import annotations

from collections.abc import Mapping

from ..spec.experiment import Experiment
from .allocation import find_batch_launcher

LOCAL, SSH, MPI, SLURM = "local", "ssh", "mpi", "slurm"


def choose_launcher(experiment: Experiment, environment: Mapping[str, str], is_inside_mpi: bool = False) -> str:
    """Return the name of the launcher that a person named; else ssh for a hosts file, that of the allocation, or
    local.
    """
    if experiment.resources.launcher:
        return experiment.resources.launcher
    if is_inside_mpi:
        return MPI
    if experiment.cluster.hosts:
        return SSH
    return find_batch_launcher(environment) or LOCAL
