"""The launchers by name, and that of an experiment. A plug-in may add one (launch/plugins.py)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...cluster.allocation import MPI, choose_launcher, find_mpi_world
from ...cluster.hosts import HostAccess, HostList, select_first_hosts
from ...errors import InputError, explain_unknown
from ...spec.experiment import Experiment
from .base import Launcher

if TYPE_CHECKING:
    from .inside_mpi import InsideMpiLauncher

# "module:class"; a module that begins with a dot is in this package.
LAUNCHERS: dict[str, str] = {
    "local": ".local:LocalLauncher",
    "ssh": ".ssh:SshLauncher",
    "mpi": ".mpi:MpiLauncher",
    "slurm": ".slurm:SlurmLauncher",
    "yarn": ".yarn:YarnLauncher",
    "ray": ".ray:RayLauncher",
}


def make_launcher(
    experiment: Experiment, mpi: InsideMpiLauncher | None = None, environment: Mapping[str, str] = os.environ
) -> Launcher:
    """The caller closes the launcher. It is ``mpi`` where an mpirun runs this command."""
    name = choose_launcher(experiment, environment, mpi is not None)
    if name not in LAUNCHERS:
        raise explain_unknown("launcher", name, LAUNCHERS)
    module, _, class_name = LAUNCHERS[name].partition(":")
    launcher_class: type[Launcher] = getattr(importlib.import_module(module, __package__), class_name)
    cluster, resources = experiment.cluster, experiment.resources
    if mpi is not None:
        if cluster.hosts or name != MPI:
            setting = f"hosts {cluster.hosts}" if cluster.hosts else f"launcher {name}"
            reason = "inside an mpirun its hosts are used"
            raise InputError(f"{setting}: {reason}; type this command without mpirun")
        host_list = HostList(mpi.hosts(), "this mpirun")
    else:
        host_list = launcher_class.find_hosts(experiment, environment)
    hosts = host_list.hosts
    access = HostAccess(
        hosts=select_first_hosts(hosts, cluster.hosts_count, host_list.source) if hosts else (),
        remote_dir=cluster.remote_dir,
        python=cluster.remote_python or "",
        setup=cluster.setup,
        interface=cluster.interface,
        controller=cluster.controller_address or "",
        nodes=cluster.nodes or cluster.hosts_count,
        device=resources.device,
        devices=resources.gpus_per_host,
        cores_per_device=resources.cores_per_device,
        patience_seconds=experiment.safety.timeout,
    )
    if mpi is not None:
        if access.setup or access.python:
            key = "setup" if access.setup else "remote python"
            reason = "inside mpirun hosts are used as they are"
            raise InputError(f"{key}: {reason}; valid: before mpirun, in its script")
        mpi.access = access
        return mpi
    own_settings = [group for group in experiment.groups if type(group) is launcher_class.settings_type]
    return launcher_class(access, *own_settings)


def run_once_inside_mpi(arguments: Sequence[str], main: Callable[[InsideMpiLauncher | None], int]) -> int:
    """Run ``main``. In an mpirun, rank 0 does so with a launcher for all hosts, and the others are keepers."""
    world = find_mpi_world(os.environ)
    if world is None:
        return main(None)
    from ...worker.keeper.program import MPI_PREFIXES
    from .inside_mpi import InsideMpiLauncher, RendezvousFile, serve_as_host

    rendezvous = RendezvousFile.of(world, arguments)
    # What it starts is not in the MPI job, and uses all cores, without Open MPI's terminal.
    for name in [name for name in os.environ if name.startswith(MPI_PREFIXES)]:
        del os.environ[name]
    os.environ["TTY_COMPATIBLE"] = "0"
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    if world.size == 1:
        return main(None)
    if world.rank > 0:
        return serve_as_host(world, rendezvous)
    launcher = InsideMpiLauncher(world, rendezvous)
    try:
        launcher.hosts()  # first: if main failed before this, the others would wait
        return main(launcher)
    finally:
        launcher.close()
