"""Which launcher and which hosts an experiment means: those it names, those of the allocation it runs in, or this
machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..spec.experiment import Experiment
from . import allocation
from .hosts import Host, HostAccess, Request, first_hosts, read_hosts

LOCAL, SSH, MPI, SLURM, YARN, RAY = "local", "ssh", "mpi", "slurm", "yarn", "ray"
# Where the hosts are not known before the cluster has given them.
_FINDS_ITS_OWN = (YARN, RAY)


@dataclass(frozen=True)
class Target:
    """A launcher's name, and how it reaches which hosts. Local places have none."""

    launcher: str
    access: HostAccess
    source: str = ""  # of the hosts, for messages

    @property
    def local(self) -> bool:
        return not self.access.hosts and self.launcher not in _FINDS_ITS_OWN


def find_target(
    experiment: Experiment, environment: Mapping[str, str] = os.environ, met: tuple[Host, ...] = ()
) -> Target:
    """An InputError where a launcher needs hosts and there are none. ``met``: those that the processes of an mpirun,
    which runs this very command, are on.
    """
    given = allocation.find_allocation(environment)
    name = experiment.launcher or (MPI if met else SSH if experiment.hosts else given.launcher if given else LOCAL)
    if met:
        if experiment.hosts or name != MPI:
            what = f"hosts {experiment.hosts}" if experiment.hosts else f"launcher {name}"
            raise InputError(f"{what}: inside an mpirun its hosts are used; type this command without mpirun")
        source, hosts = "this mpirun", met
    elif experiment.hosts:
        source = experiment.hosts
        hosts = read_hosts(Path(experiment.hosts).expanduser())
    elif given and name in (SSH, MPI, SLURM):
        source, hosts = given.description, given.hosts
    elif name in (SSH, MPI):
        raise InputError(f"launcher {name}: no hosts; name a file by --hosts, or run inside an allocation")
    elif name == SLURM:
        raise InputError("launcher slurm: no allocation here; name --nodes to submit a job")
    else:
        source, hosts = "", ()
    if name in _FINDS_ITS_OWN and hosts:
        raise InputError(f"launcher {name}: it chooses the hosts itself, and {source} names some; valid: --nodes N")
    if name == LOCAL and hosts:
        raise InputError(f"launcher local: it knows no hosts, and {source} names some; valid: --launcher ssh")
    where = HostAccess(
        hosts=first_hosts(hosts, experiment.hosts_count, source) if hosts else (),
        remote_dir=experiment.remote_dir,
        python=experiment.remote_python or "",
        setup=experiment.setup,
        interface=experiment.interface,
        controller=experiment.controller_address or "",
        ssh_config=_ssh_config(experiment.ssh_config),
        forward_agent=experiment.forward_agent,
        request=Request(
            nodes=experiment.nodes or experiment.hosts_count,
            device=experiment.device,
            devices=experiment.gpus_per_host,
            cores_per_device=experiment.cores_per_device,
            queue=experiment.queue or "default",
            yarn=experiment.yarn,
            ray_address=experiment.ray_address or "",
            patience_seconds=experiment.timeout,
        ),
    )
    place = Target(name, where, source)
    if place.local:
        _check_pythons(experiment)
    return place


def _check_pythons(experiment: Experiment) -> None:
    """On this machine, one that was named must be there."""
    for _, path in experiment.python or ():
        if not Path(path).exists():
            raise InputError(f"--python: there is no Python at {path}")


def _ssh_config(text: str | None) -> str | None:
    path = Path(text).expanduser() if text else None
    if path is not None and not path.is_file():
        raise InputError(f"ssh config {path}: there is no such file")
    return str(path) if path else None
