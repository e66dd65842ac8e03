"""Decides whether a command submits a job, and plans it for nodes that are not allocated yet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ...cluster.allocation import is_inside_slurm
from ...cluster.devices import UsableHost, find_devices
from ...errors import InputError
from ...launch.launchers.slurm import SlurmSettings
from ...spec.experiment import Experiment
from ...spec.plan import Plan, make_plan
from ...spec.settings import SettingValues
from ...worker.inspection.machine import Gpu, Machine
from .script import choose_gres, format_time
from .slurm import find_largest_node

_FOR_SLURM = ("nodes", "partition", "time", "account", "gres", "sbatch")
# These settings decide how a run is carried out, not which run it is.
_PATIENCE = (
    *("time", "account", "timeout", "stall_timeout", "controller_address", "ssh_config", "forward_agent"),
    *("explain", "cache"),
)
# These settings choose the machine, so the name of a directory depends on them. But a directory that -o names may be
# continued on another machine.
_MACHINE = ("partition", "gres", "sbatch", "remote_dir", "remote_python", "setup", "python")
# Settings that came later. Where one is not set it is left out, so that directories of earlier runs keep their names.
_OMITTED_UNSET = ("study", "strong_batch")
_UNKNOWN_NODE = (64, 8)  # CPUs and GPUs, where Slurm does not say
_ROUND = 600  # seconds


def should_submit(experiment: Experiment, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to submit a job instead of measuring here.

    An InputError is raised for settings of Slurm that would have no effect.
    """
    if is_inside_slurm(environment):
        return False
    if experiment.resources.launcher == "slurm" and experiment.cluster.nodes:
        return True
    without_effect = [key for key, value in experiment.to_dict().items() if key in _FOR_SLURM and value]
    if without_effect and experiment.resources.launcher in (None, "local", "ssh"):
        raise InputError(
            f"{without_effect[0]}: no job is submitted to Slurm here; valid with --launcher slurm and --nodes N"
        )
    return False


def plan_for_nodes(experiment: Experiment) -> Plan:
    """Make a plan for nodes that are not allocated yet, from what Slurm says of its largest node.

    The plan finds mistakes before the job waits in a queue, and estimates its time.
    """
    cpus, gpus = find_largest_node(experiment.select_settings(SlurmSettings).partition) or _UNKNOWN_NODE
    gres = choose_gres(experiment)
    kind = experiment.resources.device
    if kind == "auto":
        kind = "cuda" if gres and "gpu" in gres else "cpu"
    if kind == "cuda":
        gpus = max(gpus, experiment.resources.gpus_per_host or 0) or _UNKNOWN_NODE[1]
    node_gpus = tuple(Gpu(index, "", 0, "") for index in range(gpus)) if kind == "cuda" else ()
    names = [f"node {number}" for number in range(1, (experiment.cluster.nodes or 1) + 1)]
    hosts = [
        UsableHost(Machine(name, "", tuple(range(cpus)), 1, 0, 0, node_gpus, "", 0.0, None), host=name)
        for name in names
    ]
    return make_plan(experiment, find_devices(hosts, experiment))


def choose_time_limit(experiment: Experiment, plan: Plan) -> str:
    """Return the job's time limit in Slurm's notation.

    By default it is twice the estimate, which may be far off, and ten minutes for what comes before the first trial.
    """
    limit = experiment.select_settings(SlurmSettings).time
    return limit or format_time(-(-(2 * plan.seconds + _ROUND) // _ROUND) * _ROUND)


def select_directory_settings(experiment: Experiment) -> SettingValues:
    """Return the settings that a directory is named after. The ladders of the nodes are not known yet."""
    return _leave_out_settings(experiment, _PATIENCE)


def select_run_settings(experiment: Experiment) -> SettingValues:
    """Return the settings that must be the same to continue a run in a given directory."""
    return _leave_out_settings(experiment, (*_PATIENCE, *_MACHINE))


def _leave_out_settings(experiment: Experiment, keys: tuple[str, ...]) -> SettingValues:
    """Return settings as they would be read back from a JSON file."""
    values = {key: value for key, value in experiment.to_dict().items() if value or key not in _OMITTED_UNSET}
    settings = {key: value for key, value in values.items() if key not in keys}
    return dict(json.loads(json.dumps(settings)))
